"""A reservation of a SCSI initiator holds on every way to the disk."""
import errno
import os
import threading

import iscsi
import nbd
from bed import MIB, eventually, test
from iscsi import Initiator, url
from test_vhost import client as vhost_client

GOOD, CONFLICT = 0x00, 0x18
RESERVE, RELEASE = [0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]
REGISTER, TAKE, GIVE = 6, 1, 2  # REGISTER AND IGNORE, RESERVE, RELEASE
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
def virtual_machines_are_refused_what_an_initiator_has_reserved(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = iscsi.start(bed, "file:" + image,
                       extra=["--vhost-user", bed.path("disk.vhost"), "--queues", "2"])
    vhost_client(bed, "--check", "--queues", "2", "--wait", "block")
    one = initiator(disk)
    for kind in (1, 3):
        assert one.persistent(REGISTER, new_key=7) == GOOD
        assert one.persistent(TAKE, kind=kind, key=7) == GOOD
        program = os.path.join(os.path.dirname(bed.program), "forebay-bench")
        said = bed.run([program, "vhost", "--socket", bed.path("disk.vhost"), "--check"], code=None)
        assert said.returncode != 0, "it was not refused"
        assert one.persistent(GIVE, kind=kind, key=7) == GOOD
    vhost_client(bed, "--check", "--queues", "2", "--wait", "block")
