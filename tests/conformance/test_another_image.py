"""An NBD server that comes back with another image: a disk must not go on there."""
import contextlib
import shutil
import socket
import threading

from bed import MIB, eventually, pattern, test
import nbd
from test_primary import nbdkit, qemu_nbd


def is_clean(disk):
    log = disk.stats().get("log")
    return log is None or log["dirty_bytes"] == 0


def goes_on_with_its_own_image_alone(bed, server, flags):
    own = bed.image("own.raw", 4 * MIB)
    other = bed.path("other.raw")
    with open(other, "wb") as f:
        f.write(pattern(0, 4 * MIB, 9))
    served, spare = bed.path("served.raw"), bed.path("spare.raw")
    shutil.copy(own, served)
    primary = server(bed, served)
    disk = bed.disk(primary.uri, ram="2MiB", **flags)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(MIB, 8192, 1), MIB)
    h.flush()
    eventually(lambda: is_clean(disk), "the write is on primary storage")
    # The next server at the same address serves what is at the same path by then.
    shutil.copy(served, spare)
    shutil.copy(other, served)
    primary.restart()
    late = h.aio_pwrite(nbd.Buffer.from_bytearray(pattern(2 * MIB, 4096, 2)), 2 * MIB)
    eventually(lambda: "with something else in its bytes" in (disk.stats()["primary_trouble"] or ""), "the disk tells of it", 30)
    with open(served, "rb") as f:
        assert f.read() == bytes(pattern(0, 4 * MIB, 9)), "the other image was written to"
    shutil.copy(spare, served)
    primary.restart()
    eventually(lambda: h.aio_command_completed(late) or h.poll(100) and False, "the write goes on", 30)
    h.flush()
    eventually(lambda: is_clean(disk), "the write is on primary storage")
    with open(served, "rb") as f:
        f.seek(2 * MIB)
        assert f.read(4096) == bytes(pattern(2 * MIB, 4096, 2))


@test(forebay_only=True)
def a_server_that_comes_back_with_another_image_is_not_written_to(bed):
    goes_on_with_its_own_image_alone(bed, lambda bed, image: nbdkit(bed, "file", image), {})


@test(forebay_only=True)
def a_log_is_not_destaged_to_another_image(bed):
    goes_on_with_its_own_image_alone(bed, qemu_nbd, {"mode": "write-back", "flash": bed.path("flash") + ":64MiB"})


@test(forebay_only=True)
def a_change_that_was_accepted_is_no_other_image_later(bed):
    image = bed.image("own.raw", 4 * MIB)
    primary = nbdkit(bed, "file", image)
    disk = bed.disk(primary.uri, ram="2MiB")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096)
    with open(image, "r+b") as f:
        f.write(pattern(0, 4096, 3))
    bed.run([bed.program, "disk", "drop-cache", disk.name, "--control", bed.path(disk.name + ".control")])
    primary.restart()
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 3)
    assert "primary_trouble" not in disk.stats()


class Between:
    """A way to a server that can be cut: where a client asks for several pages at once."""

    def __init__(self, bed, server):
        self.path, self.cuts, self.server = bed.path("between.sock"), 0, server
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, target):
        read = b"\x25\x60\x95\x13" + bytes(4)
        try:
            while data := source.recv(65536):
                if self.cuts and data.count(read) > 4:
                    self.cuts -= 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@test(forebay_only=True)
def a_connection_that_breaks_while_a_disk_is_opened_leaves_the_next_start_what_it_found(bed):
    image = bed.image("own.raw", 4 * MIB)
    between = Between(bed, nbdkit(bed, "file", image).socket)
    disk = bed.disk("nbd+unix:///?socket=" + between.path, mode="write-back", flash=bed.path("flash") + ":64MiB")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    bed.run([bed.program, "disk", "pause", disk.name, "--control", bed.path(disk.name + ".control")])
    h.pwrite(pattern(MIB, 8192, 1), MIB)
    h.flush()
    h.shutdown()
    assert disk.stop() == 0
    between.cuts = 1
    try:
        disk.start()
    except AssertionError as error:
        assert "the connection to primary storage was lost meanwhile" in disk.log(), error
    assert between.cuts == 0, "nothing was cut"
    disk.start()
    assert "wait for 10s" not in disk.log(), "changes wait, as after a crash: " + disk.log()
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(8192, MIB)) == pattern(MIB, 8192, 1)
    bed.run([bed.program, "disk", "resume", disk.name, "--control", bed.path(disk.name + ".control")])
    eventually(lambda: is_clean(disk), "the write is on primary storage")
    with open(image, "rb") as f:
        f.seek(MIB)
        assert f.read(8192) == bytes(pattern(MIB, 8192, 1))
