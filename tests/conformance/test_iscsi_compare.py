"""iSCSI: COMPARE AND WRITE between sessions, and against clients of other protocols."""
import struct
import threading

import iscsi
import nbd
from bed import MIB, eventually, test


def stamped(tag, number):
    """A block that says who wrote it, and which of its writes it was."""
    return struct.pack(">8sQ", tag, number) * 32


def compare_and_write(initiator, block, expected, new):
    """COMPARE AND WRITE of one block: whether it was swapped."""
    cdb = struct.pack(">BBQ3xBBx", 0x89, 0, block, 1, 0)
    status = initiator.status(cdb, write=1024, data=expected + new)
    # A MISCOMPARE, and nothing else.
    assert status == 0 or status == 2 and initiator.sense[4] & 15 == 0xe, (status, initiator.sense.hex())
    return status == 0


@test(forebay_only=True)
def compare_and_write_is_atomic_between_sessions_and_against_nbd(bed):
    disk = iscsi.start(bed)
    wins, block = [], 4096

    def swap_until(stop, tag, swaps, isid):
        """Each of its swaps takes the number that it has read one further."""
        initiator = iscsi.Initiator(disk, isid=isid)
        initiator.login()
        initiator.ready()
        done = 0
        while not stop.is_set():
            seen = initiator.read(block, 1)
            if tag is None or seen[:8] == tag:
                number = struct.unpack_from(">Q", seen, 8)[0]
                done += compare_and_write(initiator, block, seen, stamped(swaps, number + 1))
        wins.append(done)
        initiator.close()

    def race(work, tag, swaps):
        wins.clear()
        stop = threading.Event()
        threads = [threading.Thread(target=swap_until, args=(stop, tag, swaps, 10 + n), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        work()
        stop.set()
        for thread in threads:
            thread.join(30)
        assert len(wins) == 3, "a session has ended early"

    h = nbd.NBD()
    h.connect_uri(disk.uri)
    # A counter: no two sessions swap the same number.
    h.pwrite(stamped(b"counter ", 0), block * 512)
    def count():
        return struct.unpack_from(">Q", h.pread(512, block * 512), 8)[0]

    race(lambda: eventually(lambda: count() > 500, "500 swaps"), None, b"counter ")
    assert count() == sum(wins), wins

    def write_and_look():
        for number in range(0, 4000, 2):
            h.pwrite(stamped(b"written ", number), block * 512)
            seen = h.pread(512, block * 512)
            assert seen in (stamped(b"written ", number), stamped(b"swapped ", number + 1)), (number, seen[:16])

    # What a client of NBD writes is swapped as it is, or not at all: never is an older one brought back.
    race(write_and_look, b"written ", b"swapped ")
    assert sum(wins) > 0, "they never met"
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_heartbeat_is_swapped_beside_a_write_that_has_all_room_of_its_session(bed):
    disk = iscsi.start(bed)
    initiator = iscsi.Initiator(disk)
    initiator.login()
    initiator.ready()
    # The data of this one do not come, and it may have more than a session has for all.
    count = 20 * MIB // 512
    initiator.command(struct.pack(">BBQIBB", 0x8a, 0, 8192, count, 0, 0), write=20 * MIB)
    blocks = [bytes([number]) * 512 for number in range(9)]
    for expected, new in zip(blocks, blocks[1:]):
        assert compare_and_write(initiator, 0, expected, new)
    # Their room has an end: many at once wait for each other, and hold up nobody else.
    many, data = 40, bytes(2 * 127 * 512)
    cdb = struct.pack(">BBQ3xBBx", 0x89, 0, 64, 127, 0)
    tags = {initiator.command(cdb, write=len(data)) for _ in range(many)}
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(512, 0)) == blocks[8]
    h.shutdown()
    while tags:
        header, _ = initiator.receive()
        tag = struct.unpack_from(">I", header, 16)[0]
        if header[0] == 0x31 and tag in tags:
            asked, length = struct.unpack_from(">II", header, 40)
            fields = {20: header[20:24], 40: asked}
            initiator.send(iscsi.DATA_OUT, tag=tag, fields=fields, data=data[asked:asked + length])
        elif header[0] == 0x21:
            assert header[3] == 0, header.hex()
            tags.remove(tag)
    initiator.close()
    assert disk.stop() == 0
