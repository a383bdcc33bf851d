"""A reservation of a SCSI initiator holds on every way to the disk, and outlives what it was asked to outlive."""
import errno
import struct
import threading

import iscsi
import nbd
from bed import MIB, eventually, test
from iscsi import Initiator, url
from test_vhost import client as vhost_client

GOOD, CONFLICT = 0x00, 0x18
RESERVE, RELEASE = [0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]
BUSY, CHECK = 0x08, 0x02
REGISTER, TAKE, GIVE = 6, 1, 2  # REGISTER AND IGNORE, RESERVE, RELEASE
APTPL = 1
PAIR, TABLE = 4096, 256 * 4096  # a page of the pool's tables, and where they begin
# Type: whether others may read.
TYPES = {1: True, 3: False, 5: True, 6: False, 7: True, 8: False}


def initiator(disk, isid=1):
    one = Initiator(disk, isid=isid)
    assert one.login(ImmediateData="Yes") == 0
    one.ready()
    return one


def attach(disk):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    return h


def refused(call):
    """Whether a request is refused as a reservation refuses it."""
    try:
        call()
        return False
    except nbd.Error as error:
        assert error.errnum == errno.EPERM, error
        return True


def check(h, may_read, may_write):
    assert refused(lambda: h.pread(4096, 0)) != may_read
    assert refused(lambda: h.cache(4096, 0)) != may_read
    assert refused(lambda: h.pwrite(b"N" * 4096, 65536)) != may_write
    assert refused(lambda: h.zero(4096, 65536)) != may_write
    assert refused(lambda: h.trim(4096, 65536)) != may_write
    h.flush()


@test(forebay_only=True)
def nbd_clients_are_refused_what_an_initiator_has_reserved(bed):
    disk = iscsi.start(bed)
    h, one = attach(disk), initiator(disk)
    check(h, True, True)
    assert one.status(RESERVE) == GOOD
    check(h, False, False)
    check(attach(disk), False, False)  # who comes later, too
    bed.run(["iscsi-inq", url(disk)])  # INQUIRY is nobody's business
    assert one.write(0, b"I" * 4096) == GOOD and one.read(0, 8) == b"I" * 4096
    assert one.status(RELEASE) == GOOD
    check(h, True, True)
    assert one.persistent(REGISTER, new_key=7) == GOOD
    check(h, True, True)
    for kind, may_read in TYPES.items():
        assert one.persistent(TAKE, kind=kind, key=7) == GOOD, kind
        check(h, may_read, False)
        assert one.write(0, b"J" * 4096) == GOOD, kind
        assert one.persistent(GIVE, kind=kind, key=7) == GOOD, kind
        check(h, True, True)


@test(forebay_only=True)
def a_reservation_ends_for_nbd_clients_when_it_ends(bed):
    disk = iscsi.start(bed)
    h, one, other = attach(disk), initiator(disk), initiator(disk, isid=2)
    assert one.status(RESERVE) == GOOD
    check(h, False, False)
    one.close()
    eventually(lambda: not refused(lambda: h.pread(512, 0)), "RESERVE ends with its session")
    one = initiator(disk)
    assert one.status(RESERVE) == GOOD
    other.send(iscsi.TASK, 0x85, tag=77)  # LOGICAL UNIT RESET
    assert other.receive()[0][0] == 0x22
    check(h, True, True)
    # A persistent one does not end with its session, nor with a reset; with a preemption.
    one.ready()
    assert one.persistent(REGISTER, new_key=1) == GOOD
    assert one.persistent(TAKE, kind=3, key=1) == GOOD
    one.close()
    other.send(iscsi.TASK, 0x85, tag=78)
    assert other.receive()[0][0] == 0x22
    other.ready()
    check(h, False, False)
    assert other.persistent(REGISTER, new_key=2) == GOOD
    assert other.persistent(4, kind=1, key=2, new_key=1) == GOOD
    check(h, True, False)
    assert other.persistent(3, key=2) == GOOD
    check(h, True, True)


@test(forebay_only=True)
def nothing_of_others_arrives_while_a_reservation_is_held(bed):
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB, "holes"), mode="write-back",
                       flash=bed.path("flash") + ":64MiB", extra=["--write-log", "32MiB"])
    one = initiator(disk)
    ends, written = threading.Event(), [0, 0]

    def write(h, at):
        version = 0
        while not ends.is_set():
            version += 1
            if not refused(lambda: h.pwrite(version.to_bytes(8, "little") * 512, at)):
                written[0] += 1
            else:
                written[1] += 1

    places = [0, 0, MIB, 2 * MIB]  # two of them overlap
    threads = [threading.Thread(target=write, args=(attach(disk), at)) for at in places]
    for thread in threads:
        thread.start()
    try:
        for turn in range(100):
            before = list(written)
            eventually(lambda: written[0] > before[0] + 8, "writes arrive")
            assert one.status(RESERVE) == GOOD
            held = {at: one.read(at // 512, 8) for at in places}
            refusals = written[1]
            eventually(lambda: written[1] > refusals + 8, "writes are refused")
            for at in places:
                assert one.read(at // 512, 8) == held[at], (turn, at)
            assert one.status(RELEASE) == GOOD
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    print("%d writes, %d refused" % tuple(written))


@test(forebay_only=True)
def an_initiators_write_whose_data_come_late_meets_a_reservation_that_came_meanwhile(bed):
    disk = iscsi.start(bed)
    one, other = initiator(disk, isid=2), initiator(disk)

    def begin(cdb, size):
        """A write that waits for its data."""
        tag = one.command(cdb, write=size)
        header, _ = one.receive()
        assert header[0] == 0x31, header.hex()
        return tag, header[20:24]

    def go_on(begun, data):
        tag, transfer_tag = begun
        one.send(iscsi.DATA_OUT, 0x80, tag=tag, fields={20: transfer_tag, 40: 0}, data=data)
        header, _ = one.receive()
        assert header[0] == 0x21, header.hex()
        return header[3]

    commands = ((struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 16, 0), b"A" * 8192, False),
                (struct.pack(">BBIBHB", 0x41, 0, 0, 0, 16, 0), b"B" * 512, False),
                (struct.pack(">BBQ3xBBx", 0x89, 0, 0, 1, 0), bytes(512) + b"C" * 512, False),
                (struct.pack(">BBQIBB", 0x8b, 0, 0, 1, 0, 0), b"O" * 512, False),
                (struct.pack(">BBIBHB", 0x2f, 2, 0, 0, 1, 0), bytes(512), True))
    assert other.persistent(REGISTER, new_key=7) == GOOD
    for kind in TYPES:
        for cdb, data, reads in commands:
            begun = begin(cdb, len(data))
            assert other.persistent(TAKE, kind=kind, key=7) == GOOD
            assert other.write(0, bytes(8192)) == GOOD
            status = go_on(begun, data)
            assert status == (GOOD if reads and TYPES[kind] else CONFLICT), (kind, cdb.hex(), status)
            assert other.read(0, 16) == bytes(8192), (kind, cdb.hex())
            assert other.persistent(GIVE, kind=kind, key=7) == GOOD
    assert go_on(begin(*commands[0][:1], 8192), b"A" * 8192) == GOOD
    assert other.read(0, 16) == b"A" * 8192


@test(forebay_only=True)
def an_initiators_work_that_had_begun_before_a_reservation_is_done_and_says_so(bed):
    slow = "model:san?iops=1000&latency=300ms&inner=file:" + bed.image("disk.raw", 4 * MIB)
    disk = iscsi.start(bed, slow, mode="write-through")
    one, other = initiator(disk, isid=2), initiator(disk)
    assert other.persistent(REGISTER, new_key=7) == GOOD
    compare_and_write = struct.pack(">BBQ3xBBx", 0x89, 0, 0, 1, 0)
    commands = ((struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 1, 0), b"A" * 512),
                (compare_and_write, b"A" * 512 + b"B" * 512))
    for cdb, data in commands:
        one.command(cdb, write=len(data), data=data)
        eventually(lambda: disk.stats()["requests_in_flight"] > 0, "the engine has it", 10)
        assert other.persistent(TAKE, kind=1, key=7) == GOOD
        header, _ = one.receive()
        assert header[0] == 0x21 and header[3] == GOOD, header.hex()
        assert other.persistent(GIVE, kind=1, key=7) == GOOD
    assert other.read(0, 1) == b"B" * 512


@test(forebay_only=True)
def virtual_machines_are_refused_what_an_initiator_has_reserved(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = iscsi.start(bed, "file:" + image,
                       extra=["--vhost-user", bed.path("disk.vhost"), "--queues", "2"])
    vhost_client(bed, "--check", "--queues", "2", "--wait", "block")
    one = initiator(disk)
    for kind in (1, 3):
        assert one.persistent(REGISTER, new_key=7) == GOOD
        assert one.persistent(TAKE, kind=kind, key=7) == GOOD
        said = vhost_client(bed, "--check", code=None)
        assert said.returncode != 0, "it was not refused"
        assert one.persistent(GIVE, kind=kind, key=7) == GOOD
    vhost_client(bed, "--check", "--queues", "2", "--wait", "block")


def in_keys(one, action=0):
    """PERSISTENT RESERVE IN: keys, or key and type of the reservation."""
    assert one.status(struct.pack(">BBIBHB", 0x5e, action, 0, 0, 255, 0), read=255) == GOOD
    length = int.from_bytes(one.sense[4:8], "big")
    body = one.sense[8:8 + length]
    if action == 0:
        return [int.from_bytes(body[at:at + 8], "big") for at in range(0, length, 8)]
    return (int.from_bytes(body[:8], "big"), body[13]) if body else None


def capabilities(one):
    """PTPL_C and PTPL_A of REPORT CAPABILITIES."""
    assert one.status(struct.pack(">BBIBHB", 0x5e, 2, 0, 0, 8, 0), read=8) == GOOD
    return bool(one.sense[2] & 1), bool(one.sense[3] & 1)


def flash(bed):
    return {"flash": bed.path("flash") + ":64MiB"}


@test(forebay_only=True)
def reservations_outlive_a_kill_and_a_stop_where_that_was_asked_for(bed):
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB), **flash(bed))
    one = initiator(disk)
    assert capabilities(one) == (True, False)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == GOOD
    assert capabilities(one) == (True, True)
    for kind, may_read in TYPES.items():
        assert one.persistent(TAKE, kind=kind, key=7) == GOOD
        disk.restart() if kind % 2 else (disk.stop(), disk.start())
        check(attach(disk), may_read, False)  # before any initiator has come
        other, one = initiator(disk, isid=2), initiator(disk)
        assert other.write(0, b"O" * 512) == CONFLICT
        assert one.write(0, b"I" * 512) == GOOD
        assert in_keys(other) == [7] and in_keys(other, 1)[1] == kind
        assert one.persistent(GIVE, kind=kind, key=7) == GOOD
        check(attach(disk), True, True)
    # The last registration says that they need not.
    assert one.persistent(REGISTER, new_key=8) == GOOD
    assert one.persistent(TAKE, kind=3, key=8) == GOOD
    disk.restart()
    check(attach(disk), True, True)
    assert in_keys(initiator(disk)) == []


@test(forebay_only=True)
def a_kill_anywhere_leaves_the_last_reservation_that_was_answered_or_the_one_under_way(bed):
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB), **flash(bed))
    one, key = initiator(disk), 1
    assert one.persistent(REGISTER, new_key=key, flags=APTPL) == GOOD
    answered = 0
    for turn in range(25):
        kills = threading.Timer(bed.random.uniform(0.0, 0.05), disk.kill)
        kills.start()
        try:
            while True:
                assert one.persistent(REGISTER, new_key=key + 1, flags=APTPL) == GOOD
                key += 1
                answered += 1
        except (EOFError, ConnectionError):
            pass
        kills.join()
        disk.start()
        one = initiator(disk)
        found = in_keys(one)
        assert found in ([key], [key + 1]), (turn, found, key)
        key = found[0]
    print("%d answered" % answered)
    assert answered > 25


@test(forebay_only=True)
def a_change_is_in_force_when_it_is_stored_even_if_no_initiator_is_left_by_then(bed):
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB), **flash(bed))
    h, one = attach(disk), initiator(disk)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == GOOD
    for _ in range(8):
        for action, may_write in ((TAKE, False), (GIVE, True)):
            data = struct.pack(">QQIBBH", 7, 0, 0, APTPL, 0, 0)
            one.command(struct.pack(">BBBHIB", 0x5f, action, 1, 0, len(data), 0), write=len(data), data=data)
            one.close()
            eventually(lambda: refused(lambda: h.pwrite(b"N" * 4096, 65536)) != may_write, "it is in force", 10)
            one = initiator(disk)


@test(forebay_only=True)
def a_disk_without_flash_promises_nothing(bed):
    disk = iscsi.start(bed)
    one = initiator(disk)
    assert capabilities(one) == (False, False)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == CHECK
    assert one.sense[2 + 2] & 15 == 5 and one.sense[2 + 12] == 0x26, one.sense.hex()
    assert one.persistent(REGISTER, new_key=7) == GOOD


@test(forebay_only=True)
def reservations_that_rot_are_not_taken_for_none(bed):
    path = bed.path("flash")
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB), **flash(bed))
    one = initiator(disk)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == GOOD
    assert one.persistent(TAKE, kind=3, key=7) == GOOD

    def copies():
        with open(path, "rb") as f:
            f.seek(TABLE)
            table = f.read(4 * MIB)
        is_it = lambda page: page[:8] == b"FBMETAPG" and page[14] == 4 and page[32:36] == b"\x80\0\0\0"
        return [TABLE + at for at in range(0, len(table), PAIR) if is_it(table[at:at + PAIR])]

    def rot(at):
        with open(path, "r+b") as f:
            f.seek(at + 100)
            byte = f.read(1)
            f.seek(at + 100)
            f.write(bytes([byte[0] ^ 1]))

    def contents(at):
        with open(path, "rb") as f:
            f.seek(at + 64)
            return f.read(PAIR - 64)

    both = copies()
    assert len(both) == 2
    for at in both:
        disk.kill()
        rot(at)
        disk.start()
        check(attach(disk), False, False)
        eventually(lambda: len({contents(copy) for copy in both}) == 1, "the copy that rotted is written anew")
        disk.kill()
    for at in both:
        rot(at)
    said = bed.run(disk.command, code=None, timeout=30)
    assert said.returncode == 1 and "--discard-reservations" in said.stderr, said.stderr
    said = bed.run([bed.program, "pool", "check", path], code=None)
    assert "reservations of disk 'disk'" in said.stdout + said.stderr
    bed.run([bed.program, "disk", "resolve", "disk", "--pool", path, "--discard-reservations"])
    disk.start()
    check(attach(disk), True, True)
    assert in_keys(initiator(disk)) == []


@test(forebay_only=True)
def an_initiator_in_the_middle_of_its_login_does_not_hold_up_the_end(bed):
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB), **flash(bed))
    one, silent, slow = initiator(disk), Initiator(disk, isid=2), Initiator(disk, isid=3)
    slow.send(iscsi.LOGIN, 0x87, tag=0, data=b"InitiatorName=iqn.2026-01.org.example:raw\0", cut=60)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == GOOD
    assert disk.stop(timeout=20) == 0
    silent.close()
    disk.start()
    assert in_keys(initiator(disk)) == [7]


@test(forebay_only=True)
def reservations_hold_where_no_initiator_is_let_in_any_more(bed):
    disk = iscsi.start(bed, "file:" + bed.image("disk.raw", 16 * MIB), **flash(bed))
    one = initiator(disk)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == GOOD
    assert one.persistent(TAKE, kind=1, key=7) == GOOD
    disk.stop()
    at = disk.command.index("--iscsi")
    iscsi_options, disk.command[at:at + 2] = disk.command[at:at + 2], []
    disk.start()
    check(attach(disk), True, False)
    disk.stop()
    disk.command[at:at] = iscsi_options
    disk.start()
    one = initiator(disk)
    assert one.persistent(3, key=7) == GOOD
    check(attach(disk), True, True)


@test(forebay_only=True)
def reservations_outlive_another_spelling_and_are_not_dropped_for_another_image(bed):
    image, other = bed.image("disk.raw", 16 * MIB), bed.image("other.raw", 16 * MIB)
    disk = iscsi.start(bed, "file:" + image, **flash(bed))
    one = initiator(disk)
    assert one.persistent(REGISTER, new_key=7, flags=APTPL) == GOOD
    assert one.persistent(TAKE, kind=3, key=7) == GOOD
    assert disk.stop() == 0
    spelt = iscsi.start(bed, "file:%s?direct=off" % image, **flash(bed))
    check(attach(spelt), False, False)
    assert in_keys(initiator(spelt)) == [7]
    assert spelt.stop() == 0
    path = bed.path("flash")
    for backend, name in [("file:" + other, "disk"), ("file:" + image, "name")]:
        wrong = iscsi.start(bed, backend, name=name, wait=False, **flash(bed))
        bed.servers.remove(wrong)
        said = bed.run(wrong.command, code=None, timeout=30)
        assert said.returncode == 1 and "resolve disk --pool %s --discard-reservations" % path in said.stderr, said.stderr
    disk.start()
    check(attach(disk), False, False)
    assert disk.stop() == 0
    bed.run([bed.program, "disk", "resolve", "disk", "--pool", path, "--discard-reservations"])
    check(attach(iscsi.start(bed, "file:" + other, **flash(bed))), True, True)
