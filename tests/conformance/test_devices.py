"""A pool of several flash devices: which one a disk has, and what becomes of it when devices come and go."""
import json
import os
import random
import time

from bed import MIB, eventually, pattern, test
from test_reload import Load, Served, client, disk, images
from test_settings import restart, told

BACK = 'mode = "write-back"\nwrite-log = "4MiB"\n'


def pool(bed, *devices):
    for each in devices:
        device(bed, each)
    return '[[pool]]\nname = "fast"\ndevices = [%s]\n' % ", ".join('"%s"' % bed.path(each) for each in devices)


def device(bed, name):
    """A file that has its size, as a block device has."""
    with open(bed.path(name), "ab") as file:
        file.truncate(80 * MIB)


def flash(mib):
    return 'flash = "fast:%dMiB"\n' % mib


def devices(bed, served, *others):
    """By device, as far as one is in use: the names of the disks on it. The `others` are of no pool of several."""
    said = bed.run([bed.program, "pool", "list", "--json", "--control", served.control])
    found = [json.loads(line) for line in said.splitlines()]
    assert all(each["device_of"] == "fast" for each in found if os.path.basename(each["path"]) not in others), found
    return {os.path.basename(each["path"]): sorted(disk["name"] for disk in each["disks"]) for each in found}


def tell(bed, served, *words, code=0):
    said = bed.run([bed.program, "pool", *words, "--control", served.control], code=None)
    assert code in (None, said.returncode), said
    return said.stdout + said.stderr


def write(handle, version, blocks=range(0, MIB, 4096)):
    for at in blocks:
        handle.pwrite(pattern(at, 4096, version), at)


def check(handle, version, blocks=range(0, MIB, 4096)):
    for at in blocks:
        assert bytes(handle.pread(4096, at)) == pattern(at, 4096, version), at


@test(forebay_only=True)
def disks_spread_over_the_devices_and_are_found_again_where_they_are(bed):
    images(bed, "a", "b", "c")
    disks = [disk(bed, "a", flash(48) + BACK), disk(bed, "b", flash(16) + BACK), disk(bed, "c", flash(16))]
    served = Served(bed, *disks, more=pool(bed, "x", "y"))
    assert devices(bed, served) == {"x": ["a"], "y": ["b", "c"]}
    handles = {name: client(bed, name) for name in "abc"}
    for version, name in enumerate("abc", 1):
        write(handles[name], version)
    # Neither a kill, nor another order of devices, nor one more moves anybody.
    served.write(*disks, more=pool(bed, "new", "y", "x"))
    restart(served, by_kill=True)
    assert devices(bed, served) == {"x": ["a"], "y": ["b", "c"]}
    for version, name in enumerate("abc", 1):
        check(client(bed, name), version)
    # Who comes finds the one where most is left.
    bed.image("d.raw", 4 * MIB)
    assert told(bed, served, "add", "d", "file:" + bed.path("d.raw"), "--flash", "fast:16MiB", "--ram", "4MiB",
                "--nbd", "unix:" + bed.path("d.sock")) == {"d": ("added", None)}
    assert devices(bed, served)["new"] == ["d"]
    assert told(bed, served, "set", "d", "--mode", "write-around") == {"d": ("changed", None)}
    assert served.reload("--dry-run") == {}
    # One alone moves by name, and its pool has it again.
    assert told(bed, served, "set", "d", "--flash", bed.path("y") + ":16MiB") == {"d": ("opened-again", None)}
    told(bed, served, "set", "d", "--flash", "fast:16MiB")
    assert devices(bed, served) == {"x": ["a"], "y": ["b", "c", "d"]}
    said = bed.run([bed.program, "disk", "set", "d", "--flash", "fats:16MiB", "--control", served.control], code=None)
    assert said.returncode == 1 and "there is no pool 'fats'; pools: fast" in said.stderr, said
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_device_is_replaced_with_the_guests_at_work(bed):
    images(bed, "a", "b", "c")
    disks = [disk(bed, name, flash(16) + BACK) for name in "abc"]
    served = Served(bed, *disks, more=pool(bed, "old", "other"))
    assert devices(bed, served) == {"old": ["a", "c"], "other": ["b"]}
    handles = {name: client(bed, name) for name in "bc"}
    for version, name in enumerate("bc", 1):
        write(handles[name], version)
    load = Load(client(bed, "a"))
    assert "there is nothing there" in tell(bed, served, "add-device", "fast", bed.path("new"), code=1)
    assert "carries" in tell(bed, served, "add-device", "fast", bed.image("somebodys", MIB), code=1)
    device(bed, "new")
    assert "joins the pool 'fast'" in tell(bed, served, "add-device", "fast", bed.path("new"), "--dry-run")
    assert "has the device %s already" % bed.path("old") in tell(bed, served, "add-device", "fast", bed.path("old"), code=1)
    assert "there is no pool 'slow'" in tell(bed, served, "add-device", "slow", bed.path("new"), code=1)
    assert "joins the pool 'fast'" in tell(bed, served, "add-device", "fast", bed.path("new"))
    assert "leave --to out" in tell(bed, served, "drain", bed.path("old"), "--to", bed.path("other"), code=1)
    # What waits for a restart has nothing to do with it.
    served.write(disks[0] + "physical-block = '512B'\n", *disks[1:], more=pool(bed, "old", "other"))
    assert served.reload()["a"] == ("at-next-start", None)
    assert "would change" in tell(bed, served, "drain", bed.path("old"), "--dry-run")
    assert devices(bed, served) == {"old": ["a", "c"], "other": ["b"]}
    said = tell(bed, served, "drain", bed.path("old"))
    assert said.count("opened again") == 2 and "leaves the pool 'fast'" in said, said
    now = devices(bed, served)
    assert now == {"new": ["a"], "other": ["b", "c"]}, now
    load.stop()
    # Nobody has it any more.
    bed.run([bed.program, "pool", "check", bed.path("old")])
    os.unlink(bed.path("old"))
    for version, name in enumerate("bc", 1):
        write(handles[name], version, [2 * MIB])
    restart(served, by_kill=True)
    assert devices(bed, served) == now
    for version, name in enumerate("bc", 1):
        check(client(bed, name), version, [*range(0, MIB, 4096), 2 * MIB])
    # The file says it, when it is told to, and a device without a disk leaves as well.
    bed.run([bed.program, "config", "save", "--control", served.control])
    with open(bed.path("forebay.toml")) as file:
        assert 'devices = ["%s", "%s"]' % (bed.path("other"), bed.path("new")) in file.read()
    device(bed, "spare")
    tell(bed, served, "add-device", "fast", bed.path("spare"))
    assert "leaves the pool" in tell(bed, served, "drain-device", bed.path("spare"))
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_device_with_writes_that_can_go_nowhere_stays(bed):
    images(bed, "a", "b")
    slow = disk(bed, "a", flash(16) + BACK).replace("file:", "model:san?latency=400ms&iops=20&inner=file:")
    served = Served(bed, slow, disk(bed, "b", flash(16) + BACK), more=pool(bed, "x", "y"))
    assert devices(bed, served) == {"x": ["a"], "y": ["b"]}
    handle = client(bed, "a")
    # More than is destaged in ten seconds.
    write(handle, 1, range(0, 3 * MIB, 8192))
    said = tell(bed, served, "drain", bed.path("x"), code=1)
    assert "its write log is not destaged within 10 s" in said and "a disk stays on it" in said, said
    assert devices(bed, served)["x"] == ["a"]
    check(handle, 1, range(0, 3 * MIB, 8192))
    restart(served, by_kill=True)
    assert devices(bed, served)["x"] == ["a"]
    check(client(bed, "a"), 1, range(0, 3 * MIB, 8192))
    served.server.kill()


@test(forebay_only=True)
def what_is_to_go_where_there_is_no_room_stays_with_all_that_is_cached(bed):
    images(bed, "a", "b", "c")
    more = pool(bed, "x", "y")
    os.truncate(bed.path("x"), 200 * MIB)
    apart = disk(bed, "c", 'flash = "%s:16MiB"\n' % bed.path("z"))
    served = Served(bed, disk(bed, "a", flash(60) + BACK), disk(bed, "b", flash(60) + BACK), apart, more=more)
    assert devices(bed, served, "z") == {"x": ["a", "b"], "z": ["c"]}
    for version, name in enumerate("ab", 1):
        handle = client(bed, name)
        write(handle, version)
        check(handle, version)
        handle.shutdown()
        bed.run([bed.program, "disk", "flush", name, "--control", served.control])

    def uuid(name):
        found = json.loads(bed.run([bed.program, "pool", "show", bed.path("x"), "--json", "--control", served.control]))
        return next(each["uuid"] for each in found["disks"] if each["name"] == name)
    before = {name: (uuid(name), served.stats(name)["opened_ms"]) for name in "ab"}
    # A pool that is open, for one disk: what is said before is what is found then.
    to_z = ["set", "a", "--flash", bed.path("z") + ":60MiB"]
    for option in (["--dry-run"], []):
        why = told(bed, served, *to_z, *option, code=1)["a"][1]
        assert "has no room for its share" in why and "goes on as it was" in why, why
    # One that is not, for two of which each has room there alone.
    said = tell(bed, served, "drain", bed.path("x"), "--dry-run", code=1)
    assert said.count("has no room for its share") == 1 and "a disk stays on it" in said, said
    assert before == {name: (uuid(name), served.stats(name)["opened_ms"]) for name in "ab"}
    said = tell(bed, served, "drain", bed.path("x"), code=1)
    assert said.count("has no room for its share") == 1 and "a disk stays on it" in said, said
    assert devices(bed, served, "z") == {"x": ["b"], "y": ["a"], "z": ["c"]}
    assert before["b"] == (uuid("b"), served.stats("b")["opened_ms"])
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_whose_device_is_missing_is_refused_and_comes_back_with_it(bed):
    images(bed, "a", "b")
    slow = disk(bed, "a", flash(16) + BACK).replace("file:", "model:san?latency=400ms&iops=20&inner=file:")
    served = Served(bed, slow, disk(bed, "b", flash(16)), more=pool(bed, "x", "y"))
    write(client(bed, "a"), 1)
    served.server.kill()
    os.rename(bed.path("x"), bed.path("away"))
    os.mkdir(bed.path("x"))
    served.server.start()
    assert "cannot be looked at" in served.events()
    shown = lambda: bed.run([bed.program, "disk", "list", "--control", served.control])
    assert "a  NOT SERVED" in shown() and "cannot be looked at" in shown(), shown()
    said = bed.run([bed.program, "disk", "show", "a", "--control", served.control], code=None)
    assert "and may be on that one" in said.stdout + said.stderr, said
    # It cannot be drained, neither while it is away nor when it is back and has what nobody serves.
    assert "cannot be looked at, and may have writes" in tell(bed, served, "drain", bed.path("x"), code=1)
    os.rename(bed.path("a.raw"), bed.path("image"))
    os.rmdir(bed.path("x"))
    os.rename(bed.path("away"), bed.path("x"))
    eventually(lambda: "a.raw" in shown(), "its flash was found, and it has no image", seconds=20)
    assert "has writes of the disk 'a'" in tell(bed, served, "drain", bed.path("x"), code=1)
    assert "a  NOT SERVED" in shown()
    os.rename(bed.path("image"), bed.path("a.raw"))
    eventually(lambda: devices(bed, served).get("x") == ["a"], "it is served where its writes are", seconds=20)
    check(client(bed, "a"), 1)
    # The file cannot take a device away from a disk; by another path it is the same one.
    os.symlink(bed.path("x"), bed.path("link"))
    served.write(slow, disk(bed, "b", flash(16)), more=pool(bed, "link", "y"))
    assert served.reload() == {}
    served.write(slow, disk(bed, "b", flash(16)), more=pool(bed, "y"))
    said = bed.run([bed.program, "reload", "--control", served.control], code=None)
    assert said.returncode == 1 and "first 'forebay pool drain %s'" % bed.path("x") in said.stderr, said
    assert devices(bed, served)["x"] == ["a"]
    check(client(bed, "a"), 1)
    served.server.kill()


@test(forebay_only=True)
def all_disks_of_a_device_that_comes_late_are_served(bed):
    images(bed, "a", "b", "c")
    disks = [disk(bed, name, flash(16) + BACK) for name in "abc"]
    served = Served(bed, *disks, more=pool(bed, "x", "y"))
    assert devices(bed, served) == {"x": ["a", "c"], "y": ["b"]}
    assert served.server.stop() == 0
    os.rename(bed.path("x"), bed.path("away"))
    served.server.start()

    def at_work():
        lines = bed.run([bed.program, "disk", "list", "--json", "--control", served.control]).splitlines()
        return sorted(each["name"] for each in map(json.loads, lines) if "addresses" in each)
    assert at_work() == ["b"]
    os.rename(bed.path("away"), bed.path("x"))
    # Who asks for one of them opens that at once, and leaves the other one to Forebay.
    bed.run([bed.program, "disk", "open", "a", "--control", served.control])
    assert "a" in at_work()
    eventually(lambda: at_work() == ["a", "b", "c"], "it is served, too", seconds=20)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_device_that_has_old_writes_of_a_disk_at_work_is_not_added(bed):
    images(bed, "a")
    slow = disk(bed, "a", flash(16) + BACK).replace("file:", "model:san?latency=400ms&iops=20&inner=file:")
    served = Served(bed, slow, more=pool(bed, "x", "y"))
    handle = client(bed, "a")
    write(handle, 1)
    at = next(name for name, disks in devices(bed, served).items() if disks)
    served.server.kill()
    # It is dead for ever, and the disk begins anew.
    os.rename(bed.path(at), bed.path("old"))
    os.unlink(bed.path("a.raw.forebay"))
    served.write(slow, more=pool(bed, "y" if at == "x" else "x"))
    served.server.start()
    assert served.disks() == ["a"]
    said = tell(bed, served, "add-device", "fast", bed.path("old"), code=1)
    assert "has writes or reservations of the disk 'a'" in said, said
    os.unlink(bed.path("old"))
    device(bed, "old")
    assert "joins the pool" in tell(bed, served, "add-device", "fast", bed.path("old"))
    served.server.kill()


@test(forebay_only=True)
def a_kill_while_disks_leave_a_device_loses_nothing(bed):
    images(bed, "a", "b")
    disks = [disk(bed, "a", flash(16) + BACK), disk(bed, "b", flash(16))]
    served = Served(bed, *disks, more=pool(bed, "x", "y"))
    chance = random.Random(7)
    for version in range(1, 13):
        handle = client(bed, "a")
        write(handle, version)
        before = next(each for each, names in devices(bed, served).items() if "a" in names)
        drain = bed.spawn([bed.program, "pool", "drain", bed.path(before), "--control", served.control])
        is_whole = version % 4 == 0
        if is_whole:
            assert drain.wait(30) == 0
        else:
            time.sleep(chance.uniform(0, 0.2))
        served.server.kill()
        drain.wait(30)
        served.server.start()
        now = devices(bed, served)
        assert sorted(sum(now.values(), [])) == ["a", "b"], now
        check(client(bed, "a"), version)
        assert not is_whole or before not in now, now
        # A device that has left comes again.
        for each in "xy":
            tell(bed, served, "add-device", "fast", bed.path(each), code=None)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_that_was_refused_for_want_of_room_is_served_from_a_device_that_is_added(bed):
    images(bed, "a", "b")
    a, b = (disk(bed, name, flash(48) + BACK) for name in "ab")
    served = Served(bed, a, more=pool(bed, "x"))
    served.write(a, b, more=pool(bed, "x"))
    assert "no room" in served.reload(code=1)["b"][1]
    device(bed, "y")
    tell(bed, served, "add-device", "fast", bed.path("y"))
    eventually(lambda: served.disks() == ["a", "b"], "it is served")
    assert devices(bed, served) == {"x": ["a"], "y": ["b"]}
    assert served.server.stop() == 0
