"""iSCSI: initiators that ask for much and do not read it, and what others notice of that."""
import struct
import time

import iscsi
from bed import MIB, eventually, pattern, test
from iscsi import Initiator

SIZE = 16 * MIB
# What a session may have in flight (docs/operating/hypervisors/iscsi-features.md), and what its buffers take beside.
SESSION_MAX = 16 * MIB + 3 * MIB


def resident(disk):
    with open("/proc/%d/status" % disk.process.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


def ask(one, count):
    """Asks for `count` MiB, each with a command of its own, and reads nothing of it: {tag: offset}."""
    asked = {}
    for n in range(count):
        offset = n * MIB % SIZE
        cdb = struct.pack(">BBIBHB", 0x28, 0, offset // 512, 0, MIB // 512, 0)
        asked[one.command(cdb, read=MIB)] = offset
    return asked


def take(one, asked, expected):
    """Reads all that was asked for; every byte is right, none is missing, none comes twice."""
    found = {tag: 0 for tag in asked}
    while asked:
        header, data = one.receive()
        assert header[0] == 0x25, header.hex()
        tag, offset = struct.unpack_from(">I", header, 16)[0], struct.unpack_from(">I", header, 40)[0]
        at = asked[tag] + offset
        assert offset == found[tag] and data == expected[at:at + len(data)], (tag, offset)
        found[tag] += len(data)
        if header[1] & 1:
            assert header[3] == 0 and found[tag] == MIB, header.hex()
            del asked[tag]


@test(forebay_only=True, timeout=240)
def initiators_that_do_not_read_hold_up_nobody_and_take_bounded_memory(bed):
    expected = pattern(0, SIZE)
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", SIZE))
    good = Initiator(disk)
    assert good.login() == 0
    good.ready()
    for offset in range(0, SIZE, MIB):
        assert good.read(offset // 512, 2048) == expected[offset:offset + MIB]
    before = resident(disk)
    slow = [Initiator(disk, isid=n) for n in range(2, 6)]
    never = Initiator(disk, isid=9)
    asked = []
    for one in slow + [never]:
        assert one.login() == 0
        one.ready()
        asked.append(ask(one, 64))
    # Others go on, with what was asked for stuck in front of four times as much as a session may have.
    most = 0
    for n in range(200):
        offset = n * 4096 % SIZE
        assert good.read(offset // 512, 8) == expected[offset:offset + 4096], offset
        most = max(most, resident(disk) - before)
    print("%d MiB for %d sessions" % (most // MIB, len(asked)))
    # The disk's request buffers take memory when they are used first.
    buffers = disk.stats()["buffer_bytes"]
    assert most < len(asked) * SESSION_MAX + buffers, most
    # Who reads after all gets what he asked for.
    for one, theirs in zip(slow, asked):
        take(one, theirs, expected)
        one.close()
    # Who never does is closed after a while; nothing of him is left.
    eventually(lambda: disk.stats()["connections"] == 1, "only the good one is left", seconds=90)
    assert good.read(0, 8) == expected[:4096]
    never.close()


@test(forebay_only=True)
def an_initiator_that_stops_in_the_middle_of_its_data_holds_up_nobody(bed):
    disk = iscsi.start(bed, "mem:16MiB")
    good, slow = Initiator(disk), Initiator(disk, isid=2)
    assert good.login() == slow.login(ImmediateData="Yes", InitialR2T="No", FirstBurstLength="65536") == 0
    good.ready()
    slow.ready()
    data = pattern(0, 65536)
    write = struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 128, 0)
    # Half of a PDU, then nothing.
    sent = slow.socket
    header = bytearray(48)
    header[0], header[1] = iscsi.COMMAND, 0xa1
    header[5:8] = len(data).to_bytes(3, "big")
    struct.pack_into(">II", header, 16, slow.tag + 1, len(data))
    struct.pack_into(">I", header, 24, slow.cmd_sn)
    header[32:48] = write + bytes(6)
    sent.sendall(header + data[:30000])
    for n in range(100):
        assert good.write(256 + 8 * n, data[:4096]) == 0
        assert good.read(256 + 8 * n, 8) == data[:4096]
    assert good.read(0, 128) == bytes(65536), "nothing is written before all has come"
    sent.sendall(data[30000:])
    answer, _ = slow.receive()
    assert answer[0] == 0x21 and answer[3] == 0, answer.hex()
    assert good.read(0, 128) == data


@test(forebay_only=True)
def a_reset_frees_what_an_initiator_holds_that_says_nothing_more(bed):
    disk = iscsi.start(bed, "mem:16MiB")
    silent, good, other = (Initiator(disk, isid=isid) for isid in (1, 2, 3))
    for one in silent, good, other:
        assert one.login() == 0
        one.ready()
    # An ORDERED write whose data never come: all that come later wait for it.
    write = struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 8, 0)
    silent.send(iscsi.COMMAND, 0xa2, fields={20: 4096, 32: write + bytes(6)})
    assert silent.receive()[0][0] == 0x31, "the data are asked for"
    begun = time.monotonic()
    read = good.command(struct.pack(">BBIBHB", 0x28, 0, 0, 0, 8, 0), read=4096)
    good.socket.settimeout(0.5)
    try:
        raise AssertionError("the read passed an ORDERED task: %r" % (good.receive(),))
    except TimeoutError:
        pass
    good.socket.settimeout(30)
    # CLEAR TASK SET by one who is neither of them ends both; a later read waits for nobody.
    other.send(iscsi.TASK, 0x80 | 4, fields={20: 0xffffffff})
    assert other.receive()[0][2] == 0
    header, _ = good.receive()
    assert header[3] == 0x40 and struct.unpack_from(">I", header, 16)[0] == read, header.hex()
    good.ready()
    assert good.read(0, 8) == bytes(4096)
    assert time.monotonic() - begun < 20, "it waited until the silent one had to leave"


@test(forebay_only=True)
def silent_initiators_keep_no_other_out(bed):
    disk = iscsi.start(bed)
    silent = [Initiator(disk) for _ in range(300)]
    for isid in range(2, 12):
        begun = time.monotonic()
        good = Initiator(disk, isid=isid)
        assert good.login() == 0
        good.ready()
        assert time.monotonic() - begun < 5, "it waited until the silent ones had to leave"
        good.close()
    for one in silent:
        one.close()
