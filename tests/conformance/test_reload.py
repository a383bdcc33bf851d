"""A configuration file that is read again while its disks are in use."""
import json
import os
import shutil
import signal
import socket as sockets
import threading

import nbd
from bed import MIB, eventually, free_port, pattern, test

GRID = 'grid-offset = "0"\n'


class Served:
    """`forebay serve`, whose file changes."""

    def __init__(self, bed, *disks, more=""):
        self.bed, self.control = bed, bed.path("serve.control")
        self.server = bed.serve(self.text(disks, more), ["unix:" + bed.path("a.sock")])

    def text(self, disks, more, reactor="auto"):
        return 'control = "%s"\nshards = 2\nreactor = "%s"\n' % (self.control, reactor) + "".join(disks) + more

    def write(self, *disks, more="", reactor="auto"):
        with open(self.bed.path("forebay.toml"), "w") as f:
            f.write('state-dir = "%s"\nhttp = "off"\n' % self.bed.path("state") + self.text(disks, more, reactor))

    def reload(self, *options, code=0):
        """What changed, by disk: its kind, and why not."""
        command = [self.bed.program, "reload", "--json", "--control", self.control, *options]
        said = json.loads(self.bed.run(command, code=None).stdout if code else self.bed.run(command))
        return {change["disk"]: (change["kind"], change["error"]) for change in said["changes"]}

    def events(self):
        return self.bed.run([self.bed.program, "events", "--control", self.control])

    def stats(self, disk):
        return json.loads(self.bed.run([self.bed.program, "stats", disk, "--json", "--control", self.control]))

    def disks(self):
        lines = self.bed.run([self.bed.program, "disk", "list", "--json", "--control", self.control]).splitlines()
        return sorted(json.loads(line)["name"] for line in lines)


def disk(bed, name, more="", socket=None, backend=None):
    backend = backend or "file:" + bed.path(name + ".raw")
    return '[[disk]]\nname = "%s"\nbackend = "%s"\nram = "8MiB"\nnbd = ["unix:%s"]\n%s%s' % (
        name, backend, bed.path((socket or name) + ".sock"), GRID, more)


def client(bed, name, socket=None):
    handle = nbd.NBD()
    handle.connect_uri("nbd+unix:///%s?socket=%s" % (name, bed.path((socket or name) + ".sock")))
    return handle


class Load:
    """Writes and reads that must not fail, on one disk, until it is stopped."""

    def __init__(self, handle):
        self.handle, self.rounds, self.error, self.ends = handle, 0, None, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ends:
                offset = self.rounds % 64 * 4096
                self.handle.pwrite(pattern(offset, 4096, self.rounds), offset)
                assert bytes(self.handle.pread(4096, offset)) == pattern(offset, 4096, self.rounds)
                self.rounds += 1
        except (nbd.Error, AssertionError) as error:
            self.error = error

    def stop(self):
        self.ends = True
        self.thread.join()
        assert self.error is None and self.rounds > 0, (self.error, self.rounds)


def images(bed, *names):
    for name in names:
        bed.image(name + ".raw", 4 * MIB)


@test(forebay_only=True)
def disks_come_and_go_by_reload_while_another_is_in_use(bed):
    images(bed, "a", "b", "c")
    back = 'mode = "write-back"\nflash = "%s:64MiB"\n' % bed.path("pool")
    a, b, c = disk(bed, "a"), disk(bed, "b", back), disk(bed, "c")
    served = Served(bed, a)
    load = Load(client(bed, "a"))
    # A dry run tells, and changes nothing.
    served.write(a, b, c)
    added = {"b": ("added", None), "c": ("added", None)}
    assert served.reload("--dry-run") == added and served.disks() == ["a"]
    assert served.reload() == added and served.disks() == ["a", "b", "c"]
    assert served.reload() == {}
    b_client = client(bed, "b")
    b_client.pwrite(pattern(0, 4096, 7), 0)
    # One that has a client stays, and says so.
    served.write(a, c)
    changes = served.reload(code=1)
    assert changes["b"][0] == "removed" and "clients are attached: 1" in changes["b"][1], changes
    assert bytes(b_client.pread(4096, 0)) == pattern(0, 4096, 7)
    b_client.shutdown()
    eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")
    assert served.reload() == {"b": ("removed", None)}
    eventually(lambda: not os.path.exists(bed.path("b.sock")), "nobody listens for it any more")
    assert served.disks() == ["a", "c"] and served.reload() == {}
    # Primary storage has what was dirty.
    with open(bed.path("b.raw"), "rb") as f:
        assert f.read(4096) == pattern(0, 4096, 7)
    # And back again, in the same pool.
    served.write(a, b, c)
    assert served.reload() == {"b": ("added", None)}
    again = client(bed, "b")
    assert bytes(again.pread(4096, 0)) == pattern(0, 4096, 7)
    again.pwrite(pattern(0, 4096, 8), 0)
    assert bytes(again.pread(4096, 0)) == pattern(0, 4096, 8)
    load.stop()
    again.shutdown()
    assert served.server.stop() == 0
    assert not os.path.exists(bed.path("a.sock")) and not os.path.exists(bed.path("b.sock"))


@test(forebay_only=True)
def a_daemon_is_found_by_its_file_wherever_its_control_socket_is(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"))
    reload = [bed.program, "reload", "--json", "--config", bed.path("forebay.toml")]
    assert json.loads(bed.run(reload))["changes"] == []
    served.write(disk(bed, "a"), disk(bed, "b"))
    assert [it["disk"] for it in json.loads(bed.run(reload))["changes"]] == ["b"] and served.disks() == ["a", "b"]
    shutil.copy(bed.path("forebay.toml"), bed.path("other.toml"))
    other = bed.run([*reload[:-1], bed.path("other.toml")], code=None)
    assert other.returncode == 1 and "has the configuration file " + bed.path("forebay.toml") in other.stderr, other
    served.write(disk(bed, "a"), more="colour = 3\n")
    wrong = bed.run(reload, code=None)
    assert wrong.returncode == 2 and "colour" in wrong.stderr, wrong
    served.write(disk(bed, "a"), disk(bed, "b"))
    assert served.server.stop() == 0
    ended = bed.run(reload, code=None)
    assert ended.returncode == 1 and "nobody listens on the control socket " + served.control in ended.stderr, ended


@test(forebay_only=True)
def a_disk_that_is_listed_again_before_it_is_detached_stays(bed):
    images(bed, "a", "b")
    back = 'mode = "write-back"\nflash = "%s:64MiB"\n' % bed.path("pool")
    hangs = "fault:rule=hang,op=write,times=1&inner=file:" + bed.path("b.raw")
    a, b = disk(bed, "a"), disk(bed, "b", back, backend=hangs)
    served = Served(bed, a, b)
    writer = client(bed, "b")
    writer.pwrite(pattern(0, 4096, 7), 0)
    writer.shutdown()
    eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")
    served.write(a)
    assert served.reload() == {"b": ("removed", None)}
    eventually(lambda: "it is being detached" in served.events(), "its end has begun")
    served.write(a, b)
    assert served.reload() == {}
    assert "its detach was cancelled" in served.events()
    again = client(bed, "b")
    assert bytes(again.pread(4096, 0)) == pattern(0, 4096, 7)
    assert served.disks() == ["a", "b"] and served.reload() == {}
    served.server.kill()


@test(forebay_only=True)
def a_disk_that_a_command_detaches_is_forgotten_when_no_file_lists_it_any_more(bed):
    images(bed, "a", "b")
    back = 'mode = "write-back"\nflash = "%s:64MiB"\n' % bed.path("pool")
    slow = "model:san?iops=20&latency=50ms&inner=file:" + bed.path("b.raw")
    a, b = disk(bed, "a"), disk(bed, "b", back, backend=slow)
    served = Served(bed, a, b)
    detach = [bed.program, "disk", "detach", "b", "--control", served.control]
    # Listed again before it has ended, it stays; else it has gone.
    for version, is_listed_again in enumerate([True, False], 1):
        writer = client(bed, "b")
        for offset in range(0, MIB // 2, 16384):
            writer.pwrite(pattern(offset, 4096, version), offset)
        writer.shutdown()
        eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")
        detaching = bed.spawn(detach)
        eventually(lambda: served.stats("b")["is_detaching"], "its end has begun")
        served.write(a)
        assert served.reload() == {"b": ("removed", None)}
        if is_listed_again:
            served.write(a, b)
            assert served.reload() == {} and detaching.wait() == 1
            assert served.disks() == ["a", "b"]
    assert detaching.wait() == 0
    eventually(lambda: served.reload("--dry-run") == {}, "it is forgotten")
    assert served.disks() == ["a"]
    served.write(a, b)
    assert served.reload() == {"b": ("added", None)}
    again = client(bed, "b")
    assert all(bytes(again.pread(4096, at)) == pattern(at, 4096, 2) for at in range(0, MIB // 2, 16384))
    again.shutdown()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_file_that_cannot_be_served_changes_nothing_and_one_disk_that_cannot_keeps_no_other(bed):
    images(bed, "a", "c")
    a, b, c = disk(bed, "a"), disk(bed, "b"), disk(bed, "c")
    served = Served(bed, a)
    load = Load(client(bed, "a"))
    served.write(a, c, more="colour = 3\n")
    said = bed.run([bed.program, "reload", "--control", served.control], code=None)
    assert said.returncode == 1 and "colour" in said.stderr and served.disks() == ["a"], said
    assert "nothing changes until this is right" in served.events()
    # The image of b is not there.
    served.write(a, b, c)
    changes = served.reload(code=1)
    assert changes["c"] == ("added", None) and "b.raw" in changes["b"][1], changes
    assert bytes(client(bed, "c").pread(4096, 0)) == pattern(0, 4096)
    # When it is, the next reload serves it.
    images(bed, "b")
    assert served.reload() == {}
    assert bytes(client(bed, "b").pread(4096, 0)) == pattern(0, 4096)
    load.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_new_disk_whose_storage_hangs_holds_up_no_other(bed):
    images(bed, "a", "b", "c")
    a, b, c = disk(bed, "a"), disk(bed, "b"), disk(bed, "c")
    served = Served(bed, a)
    load = Load(client(bed, "a"))
    os.mkfifo(bed.path("b.raw.forebay"))  # nobody writes to it: whoever reads the sidecar waits
    served.write(a, b)
    (kind, error), = served.reload(code=1).values()
    assert kind == "added" and "does not answer" in error, error
    # Another one is opened meanwhile.
    served.write(a, b, c)
    assert served.reload()["c"] == ("added", None)
    assert served.disks() == ["a", "b", "c"] and bytes(client(bed, "c").pread(4096, 0)) == pattern(0, 4096)
    with open(bed.path("b.raw.forebay"), "w"):
        os.unlink(bed.path("b.raw.forebay"))
    eventually(lambda: os.path.exists(bed.path("b.sock")), "it is tried again", seconds=30)
    load.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_daemon_whose_last_disk_goes_waits_for_others(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"))
    served.write()
    assert served.reload() == {"a": ("removed", None)}
    eventually(lambda: not os.path.exists(bed.path("a.sock")), "nobody listens any more")
    assert served.reload() == {}
    served.write(disk(bed, "b"))
    assert served.reload() == {"b": ("added", None)}
    assert bytes(client(bed, "b").pread(4096, 0)) == pattern(0, 4096)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_pool_that_is_in_use_takes_no_disk_for_which_it_has_no_room(bed):
    images(bed, "a", "b", "c")

    def back(size):
        return 'mode = "write-back"\nflash = "%s:%s"\n' % (bed.path("pool"), size)
    a = disk(bed, "a", back("64MiB"))
    served = Served(bed, a)
    load = Load(client(bed, "a"))
    served.write(a, disk(bed, "b", back("64MiB")))
    changes = served.reload(code=1)
    assert "has no room for its share" in changes["b"][1] and served.disks() == ["a", "b"], changes
    # A pool of its own is another matter.
    c = disk(bed, "c", back("64MiB").replace("pool", "other-pool"))
    served.write(a, c)
    assert served.reload() == {"c": ("added", None), "b": ("removed", None)}
    assert bytes(client(bed, "c").pread(4096, 0)) == pattern(0, 4096)
    load.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def modes_and_addresses_change_by_reload_and_the_rest_waits_for_a_restart(bed):
    images(bed, "a")
    flash = 'flash = "%s:64MiB"\nwrite-log = "16MiB"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", flash + 'mode = "write-back"\n'))
    load = Load(client(bed, "a"))
    served.write(disk(bed, "a", flash + 'mode = "write-through"\n'))
    assert served.reload() == {"a": ("changed", None)} and served.reload() == {}

    eventually(lambda: served.stats("a")["mode"] == "write-through", "the mode is the one of the file")
    # Its clients go on, whoever comes now comes elsewhere.
    through = flash + 'mode = "write-through"\n'
    served.write(disk(bed, "a", through, socket="other"))
    assert served.reload() == {None: ("listeners", None)}
    eventually(lambda: not os.path.exists(bed.path("a.sock")), "the old socket goes")
    client(bed, "a", socket="other").pread(4096, 0)
    # What waits is told each time, and by SIGHUP as well.
    served.write(disk(bed, "a", through + 'physical-block = "512B"\n', socket="other"), reactor="epoll")
    waiting = {"a": ("at-next-start", None), None: ("at-next-start", None)}
    assert served.reload() == waiting and served.reload("--dry-run") == waiting
    served.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "what is said of physical-block is in force after a restart (2 times" in served.events(), "SIGHUP tells it")
    load.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_refused_disk_takes_over_what_the_file_says_of_its_storage(bed):
    images(bed, "a", "b", "c")
    wrong = "file:" + bed.path("wrong.raw")
    a = disk(bed, "a")
    served = Served(bed, a, disk(bed, "b", backend=wrong))

    def is_served(name):
        return os.path.exists(bed.path(name + ".sock"))
    assert is_served("a") and not is_served("b")
    # Nor does another one come that is not there.
    served.write(a, disk(bed, "b", backend=wrong + "-too"), disk(bed, "new", backend=wrong))
    changes = served.reload("--dry-run", code=1)
    assert [("No such file" in changes[name][1]) for name in ("b", "new")] == [True, True], changes
    served.write(a, disk(bed, "b", 'physical-block = "512B"\n'))
    assert served.reload("--dry-run") == {"b": ("changed", None)} and not is_served("b")
    assert served.reload() == {"b": ("changed", None)} and served.reload() == {}
    assert "what is said of backend, physical-block is in force at once" in served.events()
    assert bytes(client(bed, "b").pread(4096, 0)) == pattern(0, 4096)
    # That of one that is served waits.
    served.write(a, disk(bed, "b", backend=wrong))
    assert served.reload()["b"] == ("at-next-start", None) and is_served("b")
    # A pool may have no device that is there.
    c, pool = disk(bed, "c", 'flash = "fast:16MiB"\n'), '[[pool]]\nname = "fast"\ndevices = ["%s"]\n'
    served.write(a, c, more=pool % bed.path("none/flash"))
    changes = served.reload(code=1)
    assert "there is nothing there" in changes["c"][1] and not is_served("c"), changes
    with open(bed.path("flash"), "ab") as file:
        file.truncate(80 * MIB)
    served.write(a, c, more=pool % bed.path("flash"))
    served.reload()
    eventually(lambda: is_served("c"), "it is served from the device that is there")
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_of_run_has_no_file_to_read_again(bed):
    one = bed.disk("mem:1MiB")
    control = bed.path("disk.control")
    said = bed.run([bed.program, "reload", "--control", control], code=None)
    assert said.returncode == 1 and "started without a configuration file" in said.stderr, said
    assert one.stop() == 0


@test(forebay_only=True)
def logical_units_come_by_reload_to_a_target_in_use(bed):
    images(bed, "a", "b")
    portal = "127.0.0.1:%d" % free_port()

    def target(luns):
        return '[[iscsi]]\nlisten = ["%s"]\ntarget = "iqn.2026-01.test:t"\n[iscsi.luns]\n%s' % (portal, luns)
    a, b = disk(bed, "a"), disk(bed, "b")
    served = Served(bed, a, more=target('0 = "a"\n'))
    load = Load(client(bed, "a"))
    served.write(a, b, more=target('0 = "a"\n1 = "b"\n'))
    assert served.reload() == {"b": ("added", None)}
    listed = bed.run(["iscsi-ls", "-s", "iscsi://" + portal])
    assert "Lun:0" in listed.replace(" ", "") and "Lun:1" in listed.replace(" ", ""), listed
    copied = bed.run(["qemu-img", "convert", "-O", "raw", "iscsi://%s/iqn.2026-01.test:t/1" % portal, bed.path("copy")])
    with open(bed.path("copy"), "rb") as f:
        assert f.read() == pattern(0, 4 * MIB), copied
    # A target that the file does not list any more goes with the daemon, and each reload says so.
    served.write(a, b)
    for _ in range(2):
        assert served.reload() == {None: ("at-next-start", None)}
    load.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def an_address_never_leads_to_a_disk_that_is_elsewhere_by_now(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"))
    client(bed, "a").pread(4096, 0)
    # Another disk is to be there, and cannot be served.
    served.write(disk(bed, "a", socket="new"), disk(bed, "b", socket="a", backend="file:" + bed.path("missing")))
    served.reload(code=1)
    client(bed, "a", "new").pread(4096, 0)
    try:
        client(bed, "", "a")
        raise AssertionError("somebody is there")
    except nbd.Error as error:
        assert error.errno in ("ENOENT", "ECONNREFUSED"), error
    # One that comes to an address which the reload itself frees is there at once.
    port = free_port()
    at = lambda text, address: text.replace("unix:" + bed.path("b.sock"), address)
    served.write(at(disk(bed, "a", socket="b"), "127.0.0.1:%d" % port))
    served.reload()
    served.write(disk(bed, "a"), at(disk(bed, "b"), "0.0.0.0:%d" % port))
    assert served.reload() == {"b": ("added", None), None: ("listeners", None)}, served.events()
    handle = nbd.NBD()
    handle.set_export_name("b")
    handle.connect_tcp("127.0.0.1", str(port))
    handle.pread(4096, 0)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_target_never_shows_the_bytes_of_another_disk_when_its_own_goes_and_comes_back(bed):
    for name in ("a", "b", "c", "d"):
        bed.image(name + ".raw", 4 * MIB, "random")
    portal = "127.0.0.1:%d" % free_port()

    def target(lun, unit="b"):
        return '[[iscsi]]\nlisten = ["%s"]\ntarget = "iqn.2026-01.test:t"\n[iscsi.luns]\n%d = "%s"\n' % (portal, lun, unit)

    def bytes_of(name):
        with open(bed.path(name + ".raw"), "rb") as f:
            return f.read()

    def copy(lun):
        url = "iscsi://%s/iqn.2026-01.test:t/%d" % (portal, lun)
        bed.run(["qemu-img", "convert", "-O", "raw", url, bed.path("copy")])
        with open(bed.path("copy"), "rb") as f:
            return f.read()
    a, b, c = disk(bed, "a"), disk(bed, "b"), disk(bed, "c")
    served = Served(bed, a, b, more=target(0))
    assert copy(0) == bytes_of("b")
    eventually(lambda: served.stats("b")["connections"] == 0, "the initiator has left")
    # The disk goes, and another one takes its place on its shard.
    served.write(a, c)
    assert served.reload() == {"c": ("added", None), "b": ("removed", None)}
    eventually(lambda: not os.path.exists(bed.path("b.sock")), "it has gone")
    # It comes back under its number, then under another one, and at last another disk has its first number.
    for lun, unit, disks in [(0, "b", [a, c, b]), (1, "b", [a, c, b]), (0, "d", [a, c, disk(bed, "d")])]:
        served.write(*disks, more=target(lun, unit))
        assert served.reload()[unit] == ("added", None)
        assert copy(lun) == bytes_of(unit)
        eventually(lambda: served.stats(unit)["connections"] == 0, "the initiator has left")
        served.write(a, c)
        assert served.reload() == {unit: ("removed", None)}
        eventually(lambda: not os.path.exists(bed.path(unit + ".sock")), "it has gone again")
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_whose_hypervisor_has_stopped_its_rings_is_in_use(bed):
    images(bed, "a", "b")
    device = 'vhost-user = "%s"\n' % bed.path("b.vhost")
    served = Served(bed, disk(bed, "a"), disk(bed, "b", device))
    with sockets.socket(sockets.AF_UNIX) as hypervisor:
        hypervisor.connect(bed.path("b.vhost"))
        eventually(lambda: served.stats("b")["vhost_user"]["is_connected"], "it is connected")
        for word in ("detach", "remove"):
            ended = bed.run([bed.program, "disk", word, "b", "--control", served.control], code=None)
            assert ended.returncode == 1 and "a hypervisor is connected" in ended.stderr, ended
        served.write(disk(bed, "a"))
        assert "a hypervisor is connected" in served.reload(code=1)["b"][1]
        assert served.disks() == ["a", "b"]
    eventually(lambda: not served.stats("b")["vhost_user"]["is_connected"], "it has left")
    assert served.reload() == {"b": ("removed", None)}
    eventually(lambda: served.disks() == ["a"], "it is gone")
    # Who knows better says so.
    served.write(disk(bed, "a"), disk(bed, "b", device))
    served.reload()
    with sockets.socket(sockets.AF_UNIX) as hypervisor:
        hypervisor.connect(bed.path("b.vhost"))
        eventually(lambda: served.stats("b")["vhost_user"]["is_connected"], "it is connected")
        bed.run([bed.program, "disk", "detach", "b", "--force", "--control", served.control])
    assert served.server.stop() == 0
