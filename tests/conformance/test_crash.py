"""kill -9 under load, with clients that reconnect and know what was acknowledged."""
import os
import threading

from bed import MIB, eventually, pattern, test
import nbd

SECTORS = 8  # of a 4 KiB block


class Recorder:
    """Writes random blocks, many in flight, and remembers of each which versions it may hold.

    A block has at most one write in flight. Each sector holds the acknowledged version, or, when the
    server died in between, one that was sent later.
    """

    def __init__(self, server, random, blocks):
        self.server, self.random, self.blocks = server, random, blocks
        self.acknowledged = {}  # block -> version
        self.sent = {}          # block -> versions sent since
        self.version = 0
        self.sessions = 0
        self.stop = False

    def run(self):
        while not self.stop:
            h = nbd.NBD()
            try:
                h.connect_uri(self.server.uri)
                self.sessions += 1
                self.write(h)
            except nbd.Error:
                pass  # the server is gone: again, until it is back

    def write(self, h):
        busy = set()
        while not self.stop:
            while len(busy) < 32:
                block = self.random.randrange(self.blocks)
                if block not in busy:
                    self.send(h, busy, block)
            h.poll(100)
            if h.aio_is_dead() or h.aio_is_closed():
                return
        while h.aio_in_flight():
            h.poll(-1)

    def send(self, h, busy, block):
        self.version += 1
        version = self.version
        busy.add(block)
        self.sent.setdefault(block, []).append(version)
        data = nbd.Buffer.from_bytearray(bytearray(pattern(block * 4096, 4096, version)))

        def done(error):
            busy.discard(block)
            if error.value == 0:
                self.acknowledged[block] = version
                self.sent[block] = [v for v in self.sent[block] if v > version]
            else:
                self.failed(error.value)
            return 1

        h.aio_pwrite(data, block * 4096, done)

    def failed(self, error):
        """A request failed: the server is going."""

    def check(self, read):
        """`read(offset, length)` returns what is there now."""
        for block in sorted(set(self.acknowledged) | set(self.sent)):
            self.check_block(block, read(block * 4096, 4096))

    def check_block(self, block, data):
        """A block holds a version that it may hold, sector by sector. The versions that were found."""
        allowed = set(self.sent.get(block, [])) | {self.acknowledged.get(block, 0)}
        found = set()
        for at in range(0, 4096, 512):
            sector = data[at:at + 512]
            version = int.from_bytes(sector[8:16], "little")
            assert version in allowed, "block %d sector %d holds version %d, allowed %s" % (
                block, at // 512, version, sorted(allowed))
            assert sector == pattern(block * 4096 + at, 512, version), "torn sector"
            found.add(version)
        return found


def write_over_kills(bed, disk, times=4):
    """Kills and restarts the server under load. Gives the recorder of what must be there."""
    recorder = Recorder(disk, bed.random, 4 * MIB // 4096)
    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    for round_ in range(times):
        goal = recorder.version + 2000
        eventually(lambda: recorder.version > goal, "2000 more writes")
        disk.restart()
        eventually(lambda: recorder.sessions > round_ + 1, "the client reconnects")
    goal = recorder.version + 500
    eventually(lambda: recorder.version > goal, "500 more writes")
    recorder.stop = True
    thread.join(30)
    assert not thread.is_alive(), "the client's last requests were not answered"
    assert len(recorder.acknowledged) > 500
    return recorder


def crash_repeatedly(bed, disk, image, times=4):
    recorder = write_over_kills(bed, disk, times)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    recorder.check(lambda at, length: bytes(h.pread(length, at)))
    h.flush()
    h.shutdown()
    disk.stop()
    with open(image, "rb") as f:
        def read(at, length):
            f.seek(at)
            return f.read(length)
        recorder.check(read)


@test
def nothing_acknowledged_is_lost_by_kills_under_load_in_write_through(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = bed.disk("file:" + image, ram="2MiB", flash=bed.path("flash") + ":8MiB",
                    extra=["--flash-admission", "always"])
    crash_repeatedly(bed, disk, image)


@test(forebay_only=True)
def nothing_acknowledged_is_lost_by_kills_under_load_in_write_around(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = bed.disk("file:" + image, ram="2MiB", mode="write-around")
    crash_repeatedly(bed, disk, image, times=2)


@test(forebay_only=True)
def flash_of_a_killed_server_serves_no_old_bytes_after_the_restart(bed):
    image = bed.image("disk.raw", 8 * MIB)
    flash = bed.path("flash") + ":16MiB"
    disk = bed.disk("file:" + image, ram="0", flash=flash, extra=["--bypass-sequential", "off"])
    bed.run(["nbdcopy", disk.uri, bed.path("first.raw")])
    disk.kill()
    with open(image, "r+b") as f:
        f.write(pattern(0, 8 * MIB, 9))
    disk.start()
    bed.run(["nbdcopy", disk.uri, bed.path("second.raw")])
    bed.run(["cmp", image, bed.path("second.raw")])


@test(forebay_only=True)
def sigterm_answers_what_is_in_flight(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("model:san?latency=500ms&inner=file:" + image)
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.connect_uri(disk.uri)
    errors = []
    for i in range(32):
        data = nbd.Buffer.from_bytearray(bytearray(pattern(i * 4096, 4096, 5)))
        h.aio_pwrite(data, i * 4096, lambda error: (errors.append(error.value), 1)[1])
    # The server has sent what it has to say to a request behind the writes: they have arrived.
    try:
        h.pread(512, 8 * MIB)
    except nbd.Error:
        pass
    assert not errors, "half a second has passed too soon"
    ended = []
    thread = threading.Thread(target=lambda: ended.append(disk.stop()))
    thread.start()
    while h.aio_in_flight():
        h.poll(-1)
    thread.join(60)
    assert ended == [0], ended
    assert errors == [0] * 32, errors
    with open(image, "rb") as f:
        assert f.read(32 * 4096) == pattern(0, 32 * 4096, 5)


@test(forebay_only=True)
def sigterm_removes_the_sockets(bed):
    disk = bed.disk("mem:16MiB")
    assert os.path.exists(disk.socket) and os.path.exists(bed.path("disk.control"))
    assert disk.stop() == 0
    assert not os.path.exists(disk.socket), "NBD socket left behind"
    assert not os.path.exists(bed.path("disk.control")), "control socket left behind"
