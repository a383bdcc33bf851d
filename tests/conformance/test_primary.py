"""Primary storage that is an NBD export: of nbdkit, of qemu-nbd, killed and restarted under load."""
import os
import threading

from bed import MIB, eventually, free_port, need_program, pattern, test
import nbd
from test_crash import Recorder


def nbdkit(bed, *arguments, name="primary"):
    listen = bed.path(name + ".sock")
    return bed.other(name, ["nbdkit", "-f", "-U", listen, *arguments], "unix:" + listen)


def qemu_nbd(bed, image, form="raw", name="primary"):
    need_program("qemu-nbd")
    listen = bed.path(name + ".sock")
    command = ["qemu-nbd", "-t", "-f", form, "-e", "8", "-k", listen, "--discard=unmap", image]
    return bed.other(name, command, "unix:" + listen)


def verify(bed, disk, size="48m"):
    need_program("fio")
    bed.run(["fio", "--name=verify", "--ioengine=nbd", "--uri=" + disk.uri, "--rw=randrw", "--bs=4k",
             "--iodepth=32", "--size=" + size, "--verify=crc32c", "--verify_fatal=1",
             "--verify_backlog=512", "--output-format=terse"])


@test(forebay_only=True)
def fio_verifies_over_nbdkit(bed):
    primary = nbdkit(bed, "memory", "64M")
    verify(bed, bed.disk(primary.uri, ram="8MiB"))


@test(forebay_only=True)
def fio_verifies_over_nbdkit_on_tcp(bed):
    port = free_port()
    primary = bed.other("primary", ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(port), "memory", "64M"],
                        "127.0.0.1:%d" % port)
    verify(bed, bed.disk("nbd://127.0.0.1:%d/" % port, ram="8MiB"))
    assert primary.process.poll() is None


@test(forebay_only=True)
def fio_verifies_over_qcow2_behind_qemu_nbd(bed):
    need_program("qemu-nbd")
    image = bed.path("disk.qcow2")
    bed.run(["qemu-img", "create", "-f", "qcow2", image, "64M"])
    primary = qemu_nbd(bed, image, "qcow2")
    disk = bed.disk(primary.uri, ram="8MiB", flash=bed.path("flash") + ":32MiB")
    verify(bed, disk)
    bed.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", disk.uri, primary.uri])


@test(forebay_only=True)
def holes_of_primary_storage_show_through(bed):
    image = bed.image("disk.raw", 8 * MIB, "holes")
    with open(image, "r+b") as f:
        f.seek(2 * MIB)
        f.write(pattern(2 * MIB, MIB))
    disk = bed.disk(nbdkit(bed, "file", image).uri)
    out = bed.run(["nbdinfo", "--map", "--totals", disk.uri])
    assert "%d" % MIB in out and "hole" in out, out


@test(forebay_only=True)
def requests_larger_than_primary_storage_takes_are_split(bed):
    primary = nbdkit(bed, "--filter=blocksize-policy", "memory", "64M", "blocksize-maximum=256K",
                     "blocksize-error-policy=error")
    disk = bed.disk(primary.uri, ram="16MiB")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    data = bed.random.randbytes(8 * MIB)
    h.pwrite(data, 512)
    assert bytes(h.pread(8 * MIB, 512)) == data


@test(forebay_only=True)
def an_error_of_primary_storage_is_an_error_of_that_request(bed):
    trigger = bed.path("fail")
    primary = nbdkit(bed, "--filter=error", "memory", "64M", "error-pread=EIO", "error-pread-rate=100%",
                     "error-file=" + trigger)
    disk = bed.disk(primary.uri)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pread(4096, 0)
    open(trigger, "w").close()
    try:
        h.pread(4096, MIB)
        raise AssertionError("an error was expected")
    except nbd.Error as error:
        assert error.errnum == 5
    assert bytes(h.pread(4096, 0)) == bytes(4096), "what is cached is served"
    os.unlink(trigger)
    assert bytes(h.pread(4096, MIB)) == bytes(4096)


def restart_under_load(bed, make, image):
    primary = make()
    disk = bed.disk(primary.uri, ram="2MiB")
    recorder = Recorder(disk, bed.random, 4 * MIB // 4096)
    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    for _ in range(3):
        goal = recorder.version + 1500
        eventually(lambda: recorder.version > goal, "1500 more writes")
        primary.restart()
    goal = recorder.version + 1500
    eventually(lambda: recorder.version > goal, "writes go on after the restart")
    recorder.stop = True
    thread.join(40)
    assert not thread.is_alive(), "the last requests were not answered"
    assert recorder.sessions == 1, "the client lost its connection"
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    recorder.check(lambda at, length: bytes(h.pread(length, at)))
    with open(image, "rb") as f:
        def read(at, length):
            f.seek(at)
            return f.read(length)
        recorder.check(read)


@test(forebay_only=True)
def nbdkit_killed_and_restarted_under_load_loses_nothing(bed):
    image = bed.image("disk.raw", 4 * MIB)
    restart_under_load(bed, lambda: nbdkit(bed, "file", image), image)


@test(forebay_only=True)
def qemu_nbd_killed_and_restarted_under_load_loses_nothing(bed):
    image = bed.image("disk.raw", 4 * MIB)
    restart_under_load(bed, lambda: qemu_nbd(bed, image), image)


@test(forebay_only=True)
def a_flush_after_a_lost_session_fails_once(bed):
    image = bed.image("disk.raw", 4 * MIB)
    primary = nbdkit(bed, "file", image)
    disk = bed.disk(primary.uri)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, 4096, 1), 0)
    primary.restart()
    # The new session is up once a read that no cache has comes back.
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096)
    try:
        h.flush()
        raise AssertionError("the write was on a session that is gone; the flush must not promise it")
    except nbd.Error as error:
        assert error.errnum == 5, error
    h.pwrite(pattern(0, 4096, 2), 0)
    h.flush()
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 2)
