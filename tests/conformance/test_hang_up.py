"""SIGHUP: an orderly end of `forebay run`, another look at the configuration file for `forebay serve`."""
import os
import signal
import subprocess

from bed import MIB, eventually, pattern, test
import nbd


def write(server, version):
    h = nbd.NBD()
    h.connect_uri(server.uri)
    h.pwrite(pattern(0, 4096, version), 0)
    h.flush()
    return h


@test(forebay_only=True)
def a_hang_up_ends_a_run_in_order(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = bed.disk("file:" + image, mode="write-back", flash=bed.path("flash") + ":64MiB")
    write(disk, 3)
    disk.was_ended = True
    disk.process.send_signal(signal.SIGHUP)
    assert disk.process.wait(30) == 0, disk.log()
    assert "SIGHUP: finishing what is in flight" in disk.log()
    assert not os.path.exists(disk.socket)


@test(forebay_only=True)
def a_run_that_was_told_to_ignore_hang_ups_goes_on(bed):
    disk = bed.disk("mem:16MiB", wait=False)
    disk.command = ["nohup", *disk.command]
    disk.start()
    disk.process.send_signal(signal.SIGHUP)
    write(disk, 3)
    assert disk.stop() == 0
    assert "SIGHUP" not in disk.log()


@test(forebay_only=True)
def a_hang_up_makes_serve_read_its_configuration_again_and_serve_on(bed):
    control, listen = bed.path("serve.control"), "unix:" + bed.path("a.sock")
    raw = bed.image("raw", 4 * MIB)
    image = bed.path("b.raw")
    with open(image, "wb") as f:
        f.write(b"QFI\xfb" + bytes(MIB - 4))

    def config(more=""):
        return ('http = "off"\ncontrol = "%s"\n[[disk]]\nname = "a"\nbackend = "mem:16MiB"\nram = "16MiB"\nnbd = ["%s"]\n'
                '[[disk]]\nname = "b"\nbackend = "file:%s"\nram = "16MiB"\nnbd = ["unix:%s"]\n%s'
                % (control, listen, image, bed.path("b.sock"), more))

    def hang_up(more, *expected):
        with open(bed.path("forebay.toml"), "w") as f:
            f.write('state-dir = "%s"\n' % bed.path("state") + config(more))
        server.process.send_signal(signal.SIGHUP)

        def is_told():
            said = subprocess.run([bed.program, "events", "--control", control], capture_output=True, text=True).stdout
            return all(text in said for text in expected)
        eventually(is_told, "an event says %r" % (expected,))

    server = bed.serve(config(), [listen])
    h = write(server, 1)
    hang_up("", "says what is in force")
    hang_up('[[disk]]\nname = "c"\nbackend = "mem:1MiB"\nnbd = ["unix:%s"]\n' % bed.path("c.sock"),
            "was read again", "c  the disk is served now")
    hang_up("colour = 3\n", "until this is right", "colour")
    os.replace(raw, image)
    hang_up("", "b  the disk is served now")
    other = nbd.NBD()
    other.connect_uri("nbd+unix:///b?socket=" + bed.path("b.sock"))
    assert bytes(other.pread(512, 0)) == pattern(0, 512)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1)
    assert server.stop() == 0
