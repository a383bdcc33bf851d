"""Disks of one iSCSI target are detached one by one: initiators have the others meanwhile and afterwards."""
import os
import subprocess
from types import SimpleNamespace

from bed import MIB, eventually, free_port, need_program, pattern, test
from iscsi import LOGOUT, TARGET, Initiator, portal
from test_refused import attach, disk
from test_reload import Served, disk as reload_disk

ABSENT = (5, 0x25)       # LOGICAL UNIT NOT SUPPORTED
POWER_ON = (6, 0x29)
CHANGED = (6, 0x3f)      # REPORTED LUNS DATA HAS CHANGED
FORBIDDEN, NOT_FOUND = 0x0202, 0x0203


def two_units(bed):
    """`slow` takes long to be destaged; `fast` is in memory."""
    image = bed.image("slow.raw", 16 << 20)
    config = 'control = "%s"\n' % bed.path("serve.control")
    config += '[[disk]]\nname = "slow"\nbackend = "model:san?iops=10&latency=100ms&inner=file:%s"\nram = "2MiB"\n' % image
    config += 'mode = "write-back"\nflash = "%s:16MiB"\nwrite-log = "4MiB"\n\n' % bed.path("pool")
    config += '[[disk]]\nname = "fast"\nbackend = "mem:16MiB"\nram = "2MiB"\n\n'
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("both.sock")
    config += '[[iscsi]]\ntarget = "%s"\nlisten = ["127.0.0.1:0"]\ndisks = ["slow", "fast"]\n' % TARGET
    daemon = bed.serve(config, ["unix:" + bed.path("both.sock")])
    eventually(lambda: "slow  16 MiB  write-back" in disk(bed, "list"), "it is in write-back")
    h = attach(daemon, "slow")
    for n in range(400):
        h.pwrite(pattern(n * 16384, 4096, 1), n * 16384)
    h.shutdown()
    return daemon


def logged_in(daemon, isid):
    one = Initiator(daemon, isid=isid)
    status = one.login()
    assert status == 0, "login: %04x" % status
    return one


def units(one):
    """What REPORT LUNS tells."""
    one.command([0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64], read=64, lun=1)
    header, data = one.receive()
    assert header[0] == 0x25 and header[3] == 0, header.hex()
    return [data[at + 1] for at in range(8, len(data), 8)]


def sense(one, lun):
    """Key and code of what TEST UNIT READY says; `None`: it is ready."""
    if one.status([0] * 6, lun=lun) == 0:
        return None
    data = one.sense[2:]
    return data[2] & 15, data[12]


def without_clients(bed, daemon, name):
    eventually(lambda: disk(bed, "detach", name, code=None).returncode == 0, "it is detached", 60)


@test(forebay_only=True)
def a_target_has_its_other_units_while_and_after_a_disk_of_it_is_detached(bed):
    need_program("iscsi-ls")
    daemon = two_units(bed)
    both = ["iscsi-ls", "-s", "iscsi://%s/" % portal(daemon)]
    detaching = bed.spawn([bed.program, "disk", "detach", "slow", "--control", bed.path("serve.control")],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: "(DETACHING)" in disk(bed, "list"), "the detach begins")
    listed = bed.run(both)
    assert "Lun:1" in listed and "Lun:0" not in listed, listed
    first = logged_in(daemon, 1)
    first.ready(lun=1)
    assert units(first) == [1] and sense(first, 0) == ABSENT
    # It is cancelled: who logs in finds both, who was there is told.
    disk(bed, "resume", "slow")
    assert detaching.wait(30) == 1
    second = logged_in(daemon, 2)
    # The first one is told when the second one is on the shard: its answers say so.
    for one in [second, first]:
        seen = []
        eventually(lambda: seen.append(sense(one, 1)) or seen[-1] is None, "the other is ready")
        one.ready(lun=0)
        assert units(one) == [0, 1]
        assert (CHANGED in seen) == (one is first), seen
    # Nobody takes the disk away from the one who never asked for it since.
    second.close()
    eventually(lambda: "clients are attached: 1" in disk(bed, "detach", "slow", code=None).stderr, "one is left")
    first.close()
    without_clients(bed, daemon, "fast")
    listed = bed.run(both)
    assert "Lun:0" in listed and "Lun:1" not in listed, listed
    third = logged_in(daemon, 3)
    third.ready(lun=0)
    assert third.read(0, 8) == pattern(0, 4096, 1)
    third.close()
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_disk_that_is_added_has_the_number_that_is_unused_for_longest(bed):
    # A target that has had 256 disks, of which one is left.
    gone = [9, 4] + [lun for lun in range(1, 256) if lun not in (9, 4)]
    os.makedirs(bed.path("state"))
    with open(bed.path("state/units.changes.toml"), "w") as f:
        f.write("".join('[[unit]]\ntarget = "%s"\ndisk = "gone-%d"\nlun = %d\n' % (TARGET, lun, lun) for lun in gone))
    config = 'name = "units"\ncontrol = "%s"\n' % bed.path("serve.control")
    config += '[[disk]]\nname = "first"\nbackend = "mem:16MiB"\nram = "2MiB"\nnbd = ["unix:%s"]\n' % bed.path("first.sock")
    config += '[[iscsi]]\ntarget = "%s"\nlisten = ["127.0.0.1:0"]\n' % TARGET
    daemon = bed.serve(config, ["unix:" + bed.path("first.sock")])
    stays = logged_in(daemon, 1)
    # The last two come back under the numbers that they had.
    for name, lun in [("one", 9), ("two", 4), ("one", 9), ("two", 4)]:
        disk(bed, "add", name, "mem:16MiB", "--ram", "2MiB")
        stays.ready(lun=0)
        assert units(stays) == [0, lun], units(stays)
        found = list(iter(lambda: sense(stays, lun), None))
        # Without an identity of its own nobody knows whether it is the same.
        assert found in ([POWER_ON], [CHANGED, POWER_ON], [POWER_ON, CHANGED]), found
        assert "clients are attached: 1" in disk(bed, "remove", name, code=None).stderr
        stays.close()
        eventually(lambda: disk(bed, "remove", name, code=None).returncode == 0, "it is removed")
        stays = logged_in(daemon, 1)
        stays.ready(lun=0)
        assert units(stays) == [0] and sense(stays, lun) == ABSENT
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_unit_whose_disk_is_not_served_yet_is_busy_and_not_gone(bed):
    bed.image("one.raw", 16 * 1024 * 1024, "random")
    missing = bed.path("late.raw")
    config = 'name = "units"\ncontrol = "%s"\n' % bed.path("serve.control")
    for name in ("one", "late", "alone"):
        config += '[[disk]]\nname = "%s"\nbackend = "file:%s"\nram = "2MiB"\n' % (name, bed.path(name + ".raw"))
        config += 'nbd = ["unix:%s"]\n' % bed.path(name + ".sock")
    where = "127.0.0.1:%d" % free_port()
    config += '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\ndisks = ["one", "late"]\n' % (TARGET, where)
    config += '[[iscsi]]\ntarget = "%s-2"\nlisten = ["%s"]\ndisks = ["alone"]\n' % (TARGET, where)
    daemon = bed.serve(config, ["unix:" + bed.path("one.sock")])
    one = logged_in(daemon, 1)
    one.ready(lun=0)
    busy, test_unit_ready, inquiry = 0x08, [0] * 6, [0x12, 0, 0, 0, 96, 0]
    assert one.status(test_unit_ready, lun=1) == busy and one.status(inquiry, read=96, lun=1) == busy
    assert sense(one, 2) == ABSENT
    assert Initiator(daemon, target=TARGET + "-2").login() == 0x0301, "the initiator is to try again"
    with open(missing, "wb") as f:
        f.truncate(16 * 1024 * 1024)
    disk(bed, "open", "late")
    eventually(lambda: one.status(test_unit_ready, lun=1) == 0, "it is there")
    one.close()
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_target_that_was_removed_comes_back_as_its_new_table_says(bed):
    for name in "ab":
        bed.image(name + ".raw", MIB)
    portals = ["127.0.0.1:%d" % free_port() for _ in range(2)]
    first, second = [SimpleNamespace(said="iscsi://%s/" % place) for place in portals]

    def target(place, more=""):
        return '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\nluns = { 0 = "b" }\n%s' % (TARGET, place, more)
    a, b = [reload_disk(bed, name) for name in "ab"]
    served = Served(bed, a, b, more=target(portals[0]))
    one = logged_in(first, 1)
    one.ready()
    one.send(LOGOUT)
    assert one.receive()[0][0] == 0x26
    eventually(lambda: served.stats("b")["connections"] == 0, "it has left")
    served.write(a)
    assert served.reload()["b"] == ("removed", None)
    eventually(lambda: served.reload() == {}, "it is detached, and forgotten")
    known = "iqn.2026-01.org.example:known"
    served.write(a, b, more=target(portals[1], 'initiators = ["%s"]\n' % known))
    assert served.reload()["b"] == ("added", None)
    assert Initiator(first, name=known).login() == NOT_FOUND
    assert Initiator(second).login() == FORBIDDEN
    assert Initiator(second, name=known).login() == 0
    assert served.server.stop() == 0
