"""Clients that misbehave harm only themselves.

Each test has an honest client on a connection of its own that reads and writes before, during and after.
"""
import resource
import socket
import struct
import time

from bed import MIB, eventually, free_port, pattern, test
import nbd
import nbdraw


class Honest:
    def __init__(self, bed, disk):
        self.bed, self.h, self.version = bed, nbd.NBD(), 0
        self.h.connect_uri(disk.uri)

    def works(self, times=20):
        for _ in range(times):
            self.version += 1
            at = self.bed.random.randrange(4 * MIB // 4096) * 4096
            self.h.pwrite(pattern(at, 4096, self.version), at)
            assert bytes(self.h.pread(4096, at)) == pattern(at, 4096, self.version)


def open_disk(bed, **options):
    disk = bed.disk("file:" + bed.image("disk.raw", 8 * MIB), **options)
    return disk, Honest(bed, disk)


@test
def a_client_that_vanishes_in_the_middle_of_a_request_harms_nobody(bed):
    disk, honest = open_disk(bed)
    for cut in (1, 4, 16, 27, 28, 29, 5000):
        for _ in range(5):
            bad = disk.connect()
            nbdraw.go(bad)
            message = nbdraw.request(nbdraw.WRITE, 5 * MIB, 65536) + bytes(65536)
            bad.sendall(message[:cut])
            bad.close()
        honest.works()
    # Nothing of a write that did not arrive whole was written.
    assert bytes(honest.h.pread(65536, 5 * MIB)) == pattern(5 * MIB, 65536)


@test(forebay_only=True)
def a_client_that_vanishes_with_replies_outstanding_harms_nobody(bed):
    disk, honest = open_disk(bed)
    for _ in range(10):
        bad = disk.connect()
        nbdraw.go(bad)
        bad.sendall(b"".join(nbdraw.request(nbdraw.READ, i * 65536, 65536, i) for i in range(64)))
        bad.close()
        honest.works(5)


@test
def a_client_that_stalls_half_way_through_a_header_stalls_nobody(bed):
    disk, honest = open_disk(bed)
    stalled = []
    for cut in (0, 1, 10, 17):
        bad = disk.connect()
        nbdraw.receive(bad, 18)
        bad.sendall((struct.pack(">I", 3) + nbdraw.option(nbdraw.OPT_GO, b""))[:cut])
        stalled.append(bad)
    for cut in (1, 20, 27, 1000):
        bad = disk.connect()
        nbdraw.go(bad)
        bad.sendall((nbdraw.request(nbdraw.WRITE, 5 * MIB, 65536) + bytes(65536))[:cut])
        stalled.append(bad)
    honest.works(100)
    for bad in stalled:
        bad.close()
    honest.works()


@test
def garbage_closes_the_connection_that_sent_it_and_no_other(bed):
    disk, honest = open_disk(bed)
    bad = disk.connect()
    bad.sendall(bed.random.randbytes(4096))
    bad.shutdown(socket.SHUT_WR)
    drain(bad)
    bad = disk.connect()
    nbdraw.go(bad)
    bad.sendall(nbdraw.request(nbdraw.READ, 0, 4096, magic=0xDEADBEEF))
    assert nbdraw.is_closed(bad), "a request with bad magic was answered"
    honest.works()


@test
def an_unknown_command_is_refused_and_the_session_goes_on(bed):
    disk, honest = open_disk(bed)
    bad = disk.connect()
    nbdraw.go(bad)
    bad.sendall(nbdraw.request(99, 0, 4096, cookie=7))
    assert nbdraw.simple_reply(bad)[:2] == (nbdraw.EINVAL, 7)
    bad.sendall(nbdraw.request(nbdraw.READ, 0, 512, cookie=8))
    assert nbdraw.simple_reply(bad, 512) == (0, 8, bytes(honest.h.pread(512, 0)))


@test
def a_claim_of_4_gib_costs_neither_memory_nor_others(bed):
    disk, honest = open_disk(bed)
    before = memory_of(disk)
    for kind in (nbdraw.READ, nbdraw.WRITE, nbdraw.CACHE):
        bad = disk.connect()
        nbdraw.go(bad)
        bad.sendall(nbdraw.request(kind, 0, 0xFFFFFFFF, cookie=3))
        if kind != nbdraw.WRITE:
            error = nbdraw.simple_reply(bad)[0]
            assert error in (22, 75), error
        honest.works()
        bad.close()
    for code in (nbdraw.OPT_GO, 3, 10, 77):
        bad = disk.connect()
        nbdraw.greet(bad)
        bad.sendall(nbdraw.option(code, b"", length=0xFFFFFFFF))
        bad.close()
        honest.works(5)
    assert memory_of(disk) - before < 96 * MIB, "memory grew by %d" % (memory_of(disk) - before)


@test
def options_in_pieces_of_one_byte_are_understood(bed):
    disk, honest = open_disk(bed)
    slow = disk.connect()
    nbdraw.greet(slow)
    for byte in nbdraw.option(nbdraw.OPT_GO, struct.pack(">IH", 0, 0)):
        slow.sendall(bytes([byte]))
    kinds = [nbdraw.option_reply(slow)[0]]
    while kinds[-1] == nbdraw.REP_INFO:
        kinds.append(nbdraw.option_reply(slow)[0])
    assert kinds[-1] == nbdraw.REP_ACK
    for byte in nbdraw.request(nbdraw.READ, 512, 512, cookie=5):
        slow.sendall(bytes([byte]))
    assert nbdraw.simple_reply(slow, 512)[:2] == (0, 5)
    honest.works()


@test
def a_disconnect_behind_requests_lets_them_be_answered(bed):
    disk, _ = open_disk(bed)
    one = disk.connect()
    nbdraw.go(one)
    one.sendall(b"".join(nbdraw.request(nbdraw.WRITE, i * 4096, 4096, i) + pattern(i * 4096, 4096, 4)
                         for i in range(20)) + nbdraw.request(nbdraw.DISC, 0, 0))
    cookies = sorted(nbdraw.simple_reply(one)[1] for _ in range(20))
    assert cookies == list(range(20)) and nbdraw.is_closed(one)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(20 * 4096, 0)) == pattern(0, 20 * 4096, 4)


@test(forebay_only=True, timeout=300)
def ten_thousand_connections_harm_only_themselves(bed):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk, honest = open_disk(bed)
    before = memory_of(disk)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 12_000), hard))
    crowd = []
    for i in range(10_000):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)  # a full backlog is an answer too
        try:
            one.connect(disk.socket)
        except (BlockingIOError, ConnectionError):
            pass
        crowd.append(one)
        if i % 1000 == 0:
            honest.works(5)
    honest.works(100)
    assert memory_of(disk) - before < 128 * MIB
    for one in crowd:
        one.close()

    def again():
        try:
            return Honest(bed, disk)
        except nbd.Error:
            return None

    eventually(again, "a new client gets in after the crowd has left").works()


@test(forebay_only=True)
def silent_connections_keep_no_client_out(bed):
    for name, listen in [("unix", None), ("tcp", "127.0.0.1:%d" % free_port())]:
        disk = bed.disk("mem:16MiB", name=name, nbd=listen)
        silent = [disk.connect() for _ in range(140)]
        for _ in range(20):
            begun = time.monotonic()
            h = nbd.NBD()
            h.connect_uri(disk.uri)
            h.pread(4096, 0)
            assert time.monotonic() - begun < 5, "it waited until the silent ones had to leave"
            h.shutdown()
        for one in silent:
            one.close()


@test(forebay_only=True)
def a_client_that_does_not_read_pins_no_slot(bed):
    disk, honest = open_disk(bed, ram="4MiB", block_size="64KiB",
                             extra=["--bypass-sequential", "off", "--grid-offset", "0"])
    slow = disk.connect()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    nbdraw.go(slow)
    honest.h.pread(2 * MIB, 0)  # now in RAM
    # Replies of 2 MiB that nobody takes, all of them RAM hits.
    slow.sendall(b"".join(nbdraw.request(nbdraw.READ, i * 65536, 65536, i) for i in range(32)))
    # The whole cache must turn over several times, and writes to the very same blocks go through.
    for _ in range(4):
        for at in range(0, 8 * MIB, 256 << 10):
            honest.h.pread(256 << 10, at)
    for i in range(32):
        honest.h.pwrite(pattern(i * 65536, 65536, 6), i * 65536)
        assert bytes(honest.h.pread(65536, i * 65536)) == pattern(i * 65536, 65536, 6)
    # What the slow one gets in the end is whole: each sector old or new.
    for _ in range(32):
        error, cookie, data = nbdraw.simple_reply(slow, 65536)
        assert error == 0
        for at in range(0, 65536, 512):
            where = cookie * 65536 + at
            assert data[at:at + 512] in (pattern(where, 512), pattern(where, 512, 6)), where


def memory_of(disk):
    with open("/proc/%d/status" % disk.process.pid) as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def drain(stream):
    try:
        while stream.recv(65536):
            pass
    except ConnectionError:
        pass
