"""`forebay serve --check` finds what would keep a start from serving what is configured."""
import json
import os
import socket
import subprocess
import sys
import threading

import test_sockets
from bed import MIB, free_port, test


class Config:
    def __init__(self, bed):
        self.bed, self.text = bed, 'state-dir = "%s"\ncontrol = "%s"\n' % (bed.path("state"), bed.path("control"))
        self.count = 0

    def disk(self, backend, **more):
        self.count += 1
        settings = {"ram": "16MiB", "nbd": ["unix:" + self.bed.path("%d.sock" % self.count)], **more}
        lines = ["%s = %s" % (key.replace("_", "-"), json.dumps(value)) for key, value in settings.items()]
        self.text += '[[disk]]\nname = "d%d"\nbackend = "%s"\n%s\n' % (self.count, backend, "\n".join(lines))
        return self

    def target(self, disk, listen):
        self.text += '[[iscsi]]\nlisten = ["%s"]\ntarget = "iqn.2026-01.x:t"\ndisks = ["%s"]\n' % (listen, disk)
        return self

    def check(self, *expected, prefix=(), **how):
        path = self.bed.path("check.toml")
        with open(path, "w") as f:
            f.write(self.text)
        before = sorted(os.listdir(self.bed.directory))
        result = self.bed.run([*prefix, self.bed.program, "serve", "--config", path, "--check"], code=None, **how)
        assert sorted(os.listdir(self.bed.directory)) == before, "it changed something"
        assert result.returncode == (1 if expected else 0), result
        for text in expected:
            assert text in result.stderr, (text, result.stderr)
        assert ("is fine" in result.stdout) == (not expected), result.stdout
        return result.stdout


@test(forebay_only=True)
def a_check_finds_what_is_wrong_with_primary_storage(bed):
    a, b = bed.image("a.raw", MIB), bed.image("b.raw", MIB)
    os.symlink(a, bed.path("link"))
    with open(bed.path("c.qcow2"), "wb") as f:
        f.write(b"QFI\xfb" + bytes(MIB - 4))
    Config(bed).disk("file:" + a).disk("file:" + b).check()
    Config(bed).disk("file:" + a).disk("file:" + bed.path("link")).check(
        "primary storage of disk 'd1' and primary storage of disk 'd2' are one and the same")
    Config(bed).disk("file:" + a, read_only=True).disk("file:" + a, read_only=True).check()
    nbd = "nbd+unix:///x?socket=" + bed.path("other.sock")
    Config(bed).disk(nbd).disk(nbd + "&connections=2").check("are one and the same")
    Config(bed).disk("file:" + bed.path("missing.raw")).check("disk 'd1'", "missing.raw")
    Config(bed).disk("file:" + bed.path("c.qcow2")).check("is a qcow2 image", "qemu-nbd")
    Config(bed).disk("file:" + a, flash=a + ":64MiB").check("the flash %s" % a)
    Config(bed).disk("file:" + a, read_only=True, flash=a + ":64MiB").check("are one and the same")
    Config(bed).disk("file:" + a).check()


@test(forebay_only=True)
def a_check_finds_what_is_wrong_with_memory_flash_and_addresses(bed):
    port = free_port()
    Config(bed).disk("mem:1MiB", ram="1TiB", metadata_limit="1TiB").check("memory", "all disks together")
    Config(bed).disk("mem:1MiB", ram="64GiB", block_size="4KiB", metadata_limit="1MiB").check("metadata")
    Config(bed).disk("mem:1MiB", flash=bed.path("nowhere/pool") + ":64MiB").check("there is no folder", "nowhere")
    Config(bed).disk("mem:1MiB", flash=bed.path("pool") + ":1024TiB", metadata_limit="1024TiB", block_size="1MiB").check(
        "free")
    Config(bed).disk("mem:1MiB", nbd=["127.0.0.1:%d" % port]).disk("mem:1MiB", nbd=["0.0.0.0:%d" % port]).check(
        "two listeners use one address")
    v6_only = "/proc/sys/net/ipv6/bindv6only"
    if os.path.exists(v6_only) and open(v6_only).read().strip() == "0":
        Config(bed).disk("mem:1MiB", nbd=["127.0.0.1:%d" % port]).disk("mem:1MiB", nbd=["[::]:%d" % port]).check(
            "two listeners use one address")
    Config(bed).disk("mem:1MiB", nbd=["192.0.2.1:%d" % port]).check("this host does not have the address")
    os.symlink(bed.directory, bed.path("again"))
    Config(bed).disk("mem:1MiB", nbd=["unix:" + bed.path("x")]).disk(
        "mem:1MiB", nbd=["unix:" + bed.path("again/x")]).check("have one socket")
    with open(bed.path("file"), "w"):
        pass
    Config(bed).disk("mem:1MiB", nbd=["unix:" + bed.path("file/x")]).check("is no folder")
    Config(bed).disk("mem:1MiB", nbd=["unix:" + bed.path("new/x")]).check()


@test(forebay_only=True)
def a_check_beside_the_daemon_that_runs_is_fine(bed):
    image, port = bed.image("a.raw", MIB), free_port()
    listen = "127.0.0.1:%d" % port
    config = Config(bed).disk("file:" + image, nbd=[listen, "unix:" + bed.path("a.sock")],
                              vhost_user=bed.path("device"), flash=bed.path("pool") + ":64MiB")
    config.target("d1", "127.0.0.1:%d" % free_port())
    server = bed.serve(config.text.partition("\n")[2], [listen])
    config.check()
    assert server.stop() == 0


@test(forebay_only=True)
def a_check_finds_who_listens_where_the_daemon_is_to(bed):
    """A start fails there, or refuses a disk. A socket that nobody listens at is replaced, and busy metrics stop no disk."""
    path, device = bed.path("busy.sock"), bed.path("device.sock")
    unix, tcp = test_sockets.listening(path), socket.create_server(("127.0.0.1", 0))
    listen = "127.0.0.1:%d" % tcp.getsockname()[1]
    config = Config(bed).disk("mem:1MiB", nbd=["unix:" + path, listen])
    config.check("a listener cannot have its socket %s: another process listens there; stop it" % path,
                 "nobody can listen at %s: another server is there; stop it" % listen)
    said = bed.run([bed.program, "doctor", "--json", "--config", bed.path("check.toml")], code=None)
    assert said.returncode == 1 and listen in said.stdout and path in said.stdout, said
    Config(bed).disk("mem:1MiB").target("d1", listen).check("nobody can listen at " + listen)
    of_device = test_sockets.listening(device)
    Config(bed).disk("mem:1MiB", vhost_user=device).check("the device of disk 'd1' cannot have its socket " + device)
    control = test_sockets.listening(bed.path("control"))
    control.settimeout(30)
    threading.Thread(target=lambda: control.accept()[0].close(), daemon=True).start()
    Config(bed).disk("mem:1MiB").check("the control socket cannot have its socket " + bed.path("control"))

    for sock in (unix, of_device, control):
        sock.close()
    said = Config(bed).disk("mem:1MiB", nbd=["unix:" + path], vhost_user=device)
    said.text = 'http = "%s"\n' % listen + said.text
    said = said.check()
    assert "warning: metrics will not be served: another server is at " + listen in said, said


@test(forebay_only=True)
def sockets_of_systemd_are_not_in_the_way_of_a_check(bed):
    path = bed.path("busy.sock")
    unix, tcp = test_sockets.listening(path), socket.create_server(("127.0.0.1", 0))
    listen = "127.0.0.1:%d" % tcp.getsockname()[1]
    config = Config(bed).disk("mem:1MiB", nbd=["unix:" + path, listen])
    prefix, how = test_sockets.passed([unix, tcp])
    config.check(prefix=prefix, **how)
    # It has them, and nobody was passed them. A connection would start the service.
    os.symlink(sys.executable, bed.path("systemd"))
    fds = [unix.fileno(), tcp.fileno()]
    waits = bed.spawn([bed.path("systemd"), "-c", "print(flush=True); input()"], stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, pass_fds=fds)
    waits.stdout.readline()
    unix.setblocking(False)
    config.check()
    try:
        unix.accept()
        assert False, "somebody connected"
    except BlockingIOError:
        pass
    waits.kill()
    waits.wait()
    config.check("another process listens there")
