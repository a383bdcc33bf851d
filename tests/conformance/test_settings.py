"""Disks that are added, changed and removed while others are in use, and what a restart makes of that."""
import json
import os
import random
import time

import nbd
from bed import MIB, eventually, free_port, pattern, test
from test_online_changes import Control
from test_reload import Load, Served, client, disk, images


def told(bed, served, *words, code=0):
    """What a command about a disk changed: by disk its kind, and why not."""
    command = [bed.program, "disk", *words, "--json", "--control", served.control]
    said = bed.run(command, code=None)
    assert said.returncode == code, said
    return {change["disk"]: (change["kind"], change["error"]) for change in json.loads(said.stdout)["changes"]}


def refused(bed, served, *words):
    said = bed.run([bed.program, "disk", *words, "--control", served.control], code=None)
    assert said.returncode == 1, said
    return said.stderr


def settings(bed, served, name="a"):
    command = [bed.program, "disk", "show", name, "--origin", "--json", "--control", served.control]
    return {setting["key"]: setting for setting in json.loads(bed.run(command))}


def kept(bed):
    """The text of what was changed online; none: nothing was."""
    try:
        with open(bed.path("state/forebay.changes.toml")) as f:
            return f.read()
    except FileNotFoundError:
        return None


def restart(served, by_kill=False):
    if by_kill:
        served.server.kill()
    else:
        assert served.server.stop() == 0
    served.server.start()


@test(forebay_only=True)
def a_setting_that_is_changed_at_work_is_kept_over_a_restart_and_taken_back(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"), disk(bed, "b"))
    load = Load(client(bed, "b"))
    mode = ["set", "a", "--mode", "write-around"]
    assert told(bed, served, *mode, "--dry-run") == {"a": ("changed", None)}
    assert kept(bed) is None and settings(bed, served)["mode"]["origin"] == "default"
    assert told(bed, served, *mode) == {"a": ("changed", None)} and told(bed, served, *mode) == {}
    assert 'mode = "write-around"' in kept(bed)
    control = Control(served.control)
    control.request("GET", "/v1/disks")
    modes = {of["name"]: of["mode"] for of in json.loads(control.getresponse().read())}
    assert modes == {"a": "write-around", "b": "write-through"}, "as they are by now"
    control.close()
    load.stop()
    restart(served)
    assert served.stats("a")["mode"] == "write-around" and served.stats("b")["mode"] == "write-through"
    restart(served, by_kill=True)
    origins = settings(bed, served)
    shown = origins["mode"]
    assert (shown["value"], shown["origin"], shown["requested"]) == ("write-around", "online", None), shown
    assert (origins["ram-limit"]["value"], origins["flash-limit"]["value"]) == ("as ram", "as the flash cache")
    assert told(bed, served, "reset", "a", "mode") == {"a": ("changed", None)}
    assert served.stats("a")["mode"] == "write-through" and kept(bed) is None
    assert "nothing of that was changed" in refused(bed, served, "reset", "a")
    assert served.server.stop() == 0


@test(forebay_only=True)
def what_a_disk_cannot_take_over_at_work_waits_for_a_restart(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a", 'physical-block = "4KiB"\n'))
    load = Load(client(bed, "a"))
    block = ["set", "a", "--physical-block", "512B"]
    assert told(bed, served, *block) == {"a": ("at-next-start", None)}
    shown = settings(bed, served)["physical-block"]
    assert (shown["value"], shown["requested"], shown["replaces"]) == ("4KiB", "512", "4KiB"), shown
    said = bed.run([bed.program, "disk", "show", "a", "--origin", "--control", served.control])
    assert "after a restart: 512; the file says 4KiB" in said, said
    # What cannot work changes nothing.
    assert "power of two" in refused(bed, served, "set", "a", "--block-size", "5KiB")
    assert "at least one setting" in refused(bed, served, "set", "a")
    assert "no disk 'x'" in refused(bed, served, "set", "x", "--mode", "monitor")
    assert settings(bed, served)["physical-block"]["requested"] == "512"
    load.stop()
    restart(served)
    shown = settings(bed, served)["physical-block"]
    assert (shown["value"], shown["requested"], shown["origin"]) == ("512", None, "online"), shown
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_mode_that_is_in_force_later_is_told_of_and_not_waited_for(bed):
    images(bed, "a", "b")
    target = '[[iscsi]]\nlisten = ["127.0.0.1:%d"]\ntarget = "iqn.2026-01.org.example:t"\ndisks = ["a"]\n' % free_port()
    served = Served(bed, disk(bed, "a"), disk(bed, "b"), more=target)
    # A logical unit gets other flash at a start alone, and the mode that is for it.
    mode = ["set", "a", "--mode", "write-back", "--flash", bed.path("pool") + ":64MiB"]
    assert told(bed, served, *mode) == {"a": ("at-next-start", None)}
    assert told(bed, served, *mode, "--wait", code=1) == {"a": ("at-next-start", None)}
    assert "is in mode write-back after a restart, and not before" in refused(bed, served, *mode, "--wait")
    assert settings(bed, served)["mode"]["requested"] == "write-back"
    assert served.server.stop() == 0
    os.rename(bed.path("b.raw"), bed.path("gone.raw"))
    served.server.start()
    assert served.stats("a")["mode"] == "write-back"
    mode = ["set", "b", "--mode", "write-around"]
    assert told(bed, served, *mode) == {"b": ("changed", None)} and told(bed, served, *mode) == {}
    assert "disk 'b' is not served" in refused(bed, served, *mode, "--wait")
    shown = settings(bed, served, "b")["mode"]
    assert (shown["value"], shown["origin"]) == ("write-around", "online"), shown
    os.rename(bed.path("gone.raw"), bed.path("b.raw"))
    bed.run([bed.program, "disk", "open", "b", "--control", served.control])
    assert served.stats("b")["mode"] == "write-around"
    assert served.server.stop() == 0


@test(forebay_only=True)
def disks_are_added_and_removed_while_another_is_in_use_and_a_restart_knows_it(bed):
    images(bed, "a", "b", "c")
    served = Served(bed, disk(bed, "a"), disk(bed, "c"))
    load = Load(client(bed, "a"))
    new = ["add", "b", "file:" + bed.path("b.raw"), "--ram", "8MiB", "--nbd", "unix:" + bed.path("b.sock"),
           "--mode", "write-back", "--flash", bed.path("pool") + ":64MiB"]
    assert told(bed, served, *new, "--dry-run") == {"b": ("added", None)} and served.disks() == ["a", "c"]
    assert told(bed, served, *new) == {"b": ("added", None)}
    b = client(bed, "b")
    b.pwrite(pattern(0, 4096, 7), 0)
    assert "such a disk already" in refused(bed, served, *new)
    assert "clients" in refused(bed, served, "remove", "b")
    b.shutdown()
    # A file that is read again changes nothing of it.
    assert served.reload() == {}
    bed.run([bed.program, "disk", "remove", "c", "--control", served.control])
    eventually(lambda: not os.path.exists(bed.path("c.sock")), "nobody listens for it any more")
    assert served.reload() == {} and served.disks() == ["a", "b"]
    load.stop()
    restart(served, by_kill=True)
    assert served.disks() == ["a", "b"]
    b = client(bed, "b")
    assert bytes(b.pread(4096, 0)) == pattern(0, 4096, 7)
    b.shutdown()
    # Back to the file.
    assert "disk remove b" in refused(bed, served, "reset", "b")
    eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")
    bed.run([bed.program, "disk", "remove", "b", "--control", served.control])
    with open(bed.path("b.raw"), "rb") as f:
        assert f.read(4096) == pattern(0, 4096, 7)
    assert "disk reset c" in refused(bed, served, "add", "c", "mem:1MiB")
    assert told(bed, served, "reset", "c") == {"c": ("added", None)}
    assert bytes(client(bed, "c").pread(4096, 0)) == pattern(0, 4096) and kept(bed) is None
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_detached_disk_is_changed_removed_and_opened_as_one_that_is_served(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"))
    new = ["add", "b", "file:" + bed.path("b.raw"), "--ram", "4MiB", "--nbd", "unix:" + bed.path("b.sock")]
    assert told(bed, served, *new) == {"b": ("added", None)}
    for name in "ab":
        bed.run([bed.program, "disk", "detach", name, "--control", served.control])
    assert served.disks() == []
    # Whoever asks for it hears what became of it.
    opens = "'forebay disk open b --control %s' has it served again" % served.control
    assert "disk 'b' was detached: " + opens in refused(bed, served, "pause", "b")
    assert "which was detached: 'forebay disk open b'" in refused(bed, served, *new)
    assert "disk remove b" in refused(bed, served, "reset", "b")
    for name in "ab":
        assert told(bed, served, "set", name, "--ram", "2MiB") == {name: ("changed", None)}
        assert settings(bed, served, name)["ram"]["value"] == "2MiB"
    # A mode is told of, though it is in force nowhere yet.
    mode = ["set", "a", "--mode", "write-around"]
    assert told(bed, served, *mode) == {"a": ("changed", None)}
    bed.run([bed.program, "disk", "open", "a", "--control", served.control])
    assert served.stats("a")["mode"] == "write-around"
    bed.run([bed.program, "disk", "detach", "a", "--control", served.control])
    for name in "ab":
        said = bed.run([bed.program, "disk", "remove", name, "--control", served.control])
        assert "disk '%s', which was not served, was removed" % name in said, said
        assert "no disk '%s' is running" % name in refused(bed, served, "set", name, "--ram", "1MiB")
    restart(served)
    assert served.disks() == []
    assert told(bed, served, "reset", "a") == {"a": ("added", None)}
    assert served.stats("a")["mode"] == "write-through"
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_that_came_back_keeps_its_log_at_the_end_of_the_daemon(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"))
    new = ["add", "b", "file:" + bed.path("b.raw"), "--nbd", "unix:" + bed.path("b.sock"), "--ram", "8MiB",
           "--mode", "write-back", "--flash", bed.path("pool") + ":64MiB"]
    # What was noted of its former lives is not noted of this one.
    for _ in range(2):
        assert told(bed, served, *new) == {"b": ("added", None)}
        bed.run([bed.program, "disk", "remove", "b", "--control", served.control])
    assert told(bed, served, *new) == {"b": ("added", None)}
    bed.run([bed.program, "disk", "pause", "b", "--control", served.control])
    b = client(bed, "b")
    for at in range(0, MIB, 4096):
        b.pwrite(pattern(at, 4096, 9), at)
    b.shutdown()
    restart(served)
    b = client(bed, "b")
    assert all(bytes(b.pread(4096, at)) == pattern(at, 4096, 9) for at in range(0, MIB, 4096))
    assert served.server.stop() == 0


@test(forebay_only=True)
def what_cannot_be_done_or_kept_is_not_asked_for_any_more(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a"))
    missing = ["add", "b", "file:" + bed.path("b.raw"), "--nbd", "unix:" + bed.path("b.sock")]
    assert "b.raw" in told(bed, served, *missing, code=1)["b"][1]
    assert served.disks() == ["a"] and kept(bed) is None and served.reload() == {}
    # The state folder takes nothing.
    os.mkdir(bed.path("state/forebay.changes.toml.new"))
    assert "cannot be kept over a restart" in refused(bed, served, "set", "a", "--mode", "write-around")
    assert served.stats("a")["mode"] == "write-through" and settings(bed, served)["mode"]["origin"] == "default"
    assert served.server.stop() == 0
    # A file of changes that means nothing is named.
    with open(bed.path("state/forebay.changes.toml"), "w") as f:
        f.write("bogus = 1\n")
    said = bed.run([bed.program, "serve", "--config", bed.path("forebay.toml"), "--check"], code=None)
    assert said.returncode == 2 and "forebay.changes.toml" in said.stderr, said


@test(forebay_only=True)
def a_saved_file_says_what_was_changed_and_keeps_its_comments(bed):
    images(bed, "a", "b", "c")
    served = Served(bed, "# The database.\n" + disk(bed, "a", 'policy = "lru"    # as measured\n'), disk(bed, "c"))
    os.chmod(bed.path("forebay.toml"), 0o640)
    bed.run([bed.program, "disk", "set", "a", "--mode", "write-around", "--control", served.control])
    told(bed, served, "add", "b", "file:" + bed.path("b.raw"), "--nbd", "unix:" + bed.path("b.sock"))
    bed.run([bed.program, "disk", "remove", "c", "--control", served.control])
    config = [bed.program, "config"]
    changes = bed.run([*config, "changes", "--control", served.control])
    assert 'mode = "write-around"' in changes and 'removed = ["c"]' in changes, changes
    with open(bed.path("forebay.toml")) as f:
        before = f.read()
    would = bed.run([*config, "save", "--dry-run", "--control", served.control])
    with open(bed.path("forebay.toml")) as f:
        assert f.read() == before
    bed.run([*config, "save", "--control", served.control])
    with open(bed.path("forebay.toml")) as f:
        after = f.read()
    assert after == would and "# The database.\n" in after and 'policy = "lru"    # as measured\n' in after, after
    assert os.stat(bed.path("forebay.toml")).st_mode & 0o777 == 0o640 and kept(bed) is None
    assert "nothing was changed" in bed.run([*config, "changes", "--control", served.control])
    nothing = json.loads(bed.run([*config, "save", "--json", "--control", served.control]))
    assert nothing["changes"] == [], nothing
    assert served.reload() == {} and settings(bed, served)["mode"]["origin"] == "file"
    restart(served)
    assert served.disks() == ["a", "b"] and served.stats("a")["mode"] == "write-around"
    assert served.server.stop() == 0


@test(forebay_only=True)
def an_address_that_cannot_be_had_is_taken_back_and_keeps_no_other_disk_from_a_start(bed):
    images(bed, "a", "b")
    a, b, b_elsewhere = disk(bed, "a"), disk(bed, "b"), disk(bed, "b", socket="taken")
    served = Served(bed, a, b)
    taken = bed.path("taken.sock")
    os.mkdir(taken)
    load = Load(client(bed, "b"))
    both = ["--iops-limit", "50000", "--ram", "16MiB"]
    changed = told(bed, served, "set", "b", "--nbd", "unix:" + taken, *both, code=1)
    assert changed[None][0] == "listeners" and "disk 'b'" in changed[None][1] and taken in changed[None][1], changed
    now = settings(bed, served, "b")
    assert (now["iops-limit"]["value"], now["ram"]["value"]) == ("none", "8MiB"), now
    assert "ram 8MiB" in served.events(), served.events()
    # So does what it was opened again for.
    changed = told(bed, served, "set", "b", "--nbd", "unix:" + taken, "--block-size", "64KiB", *both, code=1)
    assert changed["b"][0] == "opened-again" and taken in changed[None][1], changed
    assert settings(bed, served, "b") == now and kept(bed) is None
    assert kept(bed) is None and settings(bed, served, "b")["nbd"]["origin"] == "file"
    assert "not everywhere" not in served.events()
    client(bed, "b").pread(4096, 0)
    # Nobody closes a place before it is known that there is another one: it is the same socket.
    inode = os.stat(bed.path("b.sock")).st_ino
    port, own = free_port(), "unix:" + bed.path("b.sock")
    for addresses, code in [(["127.0.0.1:%d" % port, own], 0), ([own, "0.0.0.0:%d" % port], 1), ([own], 0)]:
        words = [word for address in addresses for word in ("--nbd", address)]
        changed = told(bed, served, "set", "b", *words, code=code)
        assert changed[None][0] == "listeners" and (changed[None][1] is None) == (code == 0), changed
    assert os.stat(bed.path("b.sock")).st_ino == inode
    # The file says the last ones.
    assert served.reload() == {} and kept(bed) is None
    # It is no other for a disk that is not everywhere as it is.
    served.write(a, b.replace("nbd = [", 'nbd = ["unix:%s", ' % taken))
    changed = served.reload(code=1)
    assert changed[None][0] == "listeners" and taken in changed[None][1], changed
    os.mkdir(taken + "-too")
    changed = told(bed, served, "set", "b", "--nbd", "unix:" + taken + "-too", code=1)
    assert taken + "-too" in changed[None][1] and kept(bed) is None, changed
    client(bed, "b").pread(4096, 0)
    # What a file says stays said, and is tried again.
    served.write(a, b_elsewhere)
    changed = served.reload(code=1)
    assert changed[None][0] == "listeners" and taken in changed[None][1], changed
    assert not os.path.exists(bed.path("b.sock")) and "not everywhere" in served.events()
    listed = bed.run([bed.program, "disk", "list", "--control", served.control]).splitlines()
    assert ["NOT FOUND EVERYWHERE" in line for line in listed] == [False, True], listed
    load.stop()
    restart(served)
    assert served.disks() == ["a", "b"]
    client(bed, "a").pread(4096, 0)
    os.rmdir(taken)
    eventually(lambda: "served everywhere now" in served.events(), "the address is tried again", 20)
    client(bed, "b", "taken").pread(4096, 0)
    assert "EVERYWHERE" not in bed.run([bed.program, "disk", "list", "--control", served.control])
    assert served.server.stop() == 0


@test(forebay_only=True)
def the_first_disk_of_a_listener_leaves_its_place_to_the_next(bed):
    images(bed, "a", "b")
    text = '[[disk]]\nname = "%s"\nbackend = "file:%s"\nram = "8MiB"\n'
    disks = [text % (name, bed.path(name + ".raw")) for name in "ab"]
    served = Served(bed, *disks, more='[[nbd]]\nlisten = "unix:%s"\n' % bed.path("a.sock"))
    client(bed, "b", "a").pwrite(pattern(0, 4096, 2), 0)
    bed.run([bed.program, "disk", "remove", "a", "--control", served.control])

    def is_default():
        try:
            return bytes(client(bed, "", "a").pread(4096, 0)) == pattern(0, 4096, 2)
        except nbd.Error:
            return False
    eventually(is_default, "who names no disk finds the one that is left")
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_sidecar_that_cannot_be_replaced_keeps_no_other_disk_from_a_start(bed):
    images(bed, "a", "b")
    back = 'mode = "write-back"\nflash = "%s:64MiB"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", back), disk(bed, "b"))
    client(bed, "a").pwrite(pattern(0, 4096, 1), 0)
    bed.run([bed.program, "disk", "flush", "a", "--control", served.control])
    assert served.server.stop() == 0
    # Where the next one would be written there is a folder.
    os.mkdir(bed.path("a.raw.forebay.new"))
    served.server.start()
    client(bed, "b").pread(4096, 0)
    assert "a.raw.forebay cannot be written" in served.events(), served.events()
    os.rmdir(bed.path("a.raw.forebay.new"))
    bed.run([bed.program, "disk", "open", "a", "--control", served.control])
    assert bytes(client(bed, "a").pread(4096, 0)) == pattern(0, 4096, 1)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_of_run_changes_as_long_as_it_runs(bed):
    one = bed.disk("mem:16MiB")
    control = ["--control", bed.path("disk.control")]
    assert "write-around" in bed.run([bed.program, "disk", "set", "disk", "--mode", "write-around", *control])
    said = bed.run([bed.program, "disk", "set", "disk", "--block-size", "16KiB", *control], code=None)
    assert said.returncode == 1 and "--block-size" in said.stderr, said
    said = bed.run([bed.program, "disk", "add", "b", "mem:1MiB", *control], code=None)
    assert said.returncode == 1 and "'forebay serve' serves several" in said.stderr, said
    shown = json.loads(bed.run([bed.program, "disk", "show", "disk", "--origin", "--json", *control]))
    origins = {setting["key"]: setting["origin"] for setting in shown}
    assert (origins["mode"], origins["backend"], origins["policy"]) == ("online", "command-line", "default"), origins
    assert one.stop() == 0


@test(forebay_only=True)
def a_kill_while_settings_change_leaves_one_that_was_asked_for(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a"))
    chance = random.Random(7)
    modes = ["write-around", "pass-through", "monitor", "write-through"]
    asked = "write-through"
    for turn in range(12):
        wanted = modes[turn % len(modes)]
        process = bed.spawn([bed.program, "disk", "set", "a", "--mode", wanted, "--control", served.control])
        time.sleep(chance.uniform(0, 0.03))
        served.server.kill()
        done = process.wait() == 0
        served.server.start()
        mode = served.stats("a")["mode"]
        assert mode == wanted or not done and mode == asked, (turn, wanted, mode, done, asked)
        asked = mode
    assert served.server.stop() == 0


@test(forebay_only=True)
def policy_admission_and_limits_change_at_work_and_what_is_cached_stays(bed):
    bed.image("a.raw", 16 * MIB)
    more = 'flash = "%s:64MiB"\nmode = "write-back"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", more).replace('ram = "8MiB"', 'ram = "32MiB"'))
    handle = client(bed, "a")

    def has_memory():
        ram = served.stats("a")["ram"]
        return ram["slots_ready"] == ram["slots"]
    eventually(has_memory, "the cache has its memory")
    for offset in range(0, 16 * MIB, MIB):
        assert bytes(handle.pread(MIB, offset)) == pattern(offset, MIB)
    missed = served.stats("a")["counters"]["backend_reads"]
    load = Load(handle)
    changes = [["--policy", "lru"], ["--policy", "fifo", "--flash-admission", "history"], ["--policy", "auto"],
               ["--bypass-sequential", "64MiB", "--flash-dwpd", "3"], ["--max-destage-rate", "1MiB"],
               ["--backend-timeout", "2s", "--on-timeout", "wait"]]
    for change in changes * 3:
        before = load.rounds
        told(bed, served, "set", "a", *change)
        eventually(lambda: load.rounds > before + 20, "the client goes on")
    load.stop()
    shown = settings(bed, served)
    is_now = {key: shown[key]["value"] for key in ("policy", "flash-admission", "max-destage-rate", "on-timeout")}
    assert is_now == {"policy": "auto", "flash-admission": "history", "max-destage-rate": "1MiB",
                      "on-timeout": "wait"}, is_now
    assert all(setting["requested"] is None for setting in shown.values()), shown
    for offset in range(MIB, 16 * MIB, MIB):
        assert bytes(handle.pread(MIB, offset)) == pattern(offset, MIB)
    assert served.stats("a")["counters"]["backend_reads"] == missed, "what was cached is cached"
    assert "its settings were changed at work" in served.events()
    handle.shutdown()
    assert served.server.stop() == 0


@test(forebay_only=True)
def changes_stay_with_the_daemon_that_made_them(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"))
    told(bed, served, "set", "a", "--policy", "fifo")
    # The folder of a daemon that runs is the one of its start.
    with open(bed.path("forebay.toml")) as f:
        text = f.read()
    with open(bed.path("forebay.toml"), "w") as f:
        f.write(text.replace(bed.path("state"), bed.path("elsewhere")))
    served.reload()
    assert settings(bed, served)["policy"]["value"] == "fifo" and 'policy = "fifo"' in kept(bed)
    # Another one of the same name would write over them.
    os.mkdir(bed.path("other"))
    with open(bed.path("other/forebay.toml"), "w") as f:
        f.write(text.replace("serve.control", "other.control").replace("a.raw", "b.raw").replace("a.sock", "b.sock"))
    other = bed.run([bed.program, "serve", "--config", bed.path("other/forebay.toml")], code=None, timeout=60)
    assert other.returncode == 1 and "another daemon of the same name" in other.stderr, other
    # What the file says at a start is no change any more.
    served.write(disk(bed, "a", 'policy = "fifo"\n'))
    restart(served)
    assert kept(bed) is None
    served.write(disk(bed, "a"))
    restart(served)
    assert settings(bed, served)["policy"]["origin"] == "default"
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_that_the_file_calls_otherwise_is_served_by_its_new_name(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a"), disk(bed, "b"))
    served.write(disk(bed, "a"), disk(bed, "new", backend="file:" + bed.path("b.raw")))
    served.reload(code=1)
    eventually(lambda: served.disks() == ["a", "new"], "the disk has its new name")
    assert bytes(client(bed, "new").pread(4096, 0)) == pattern(0, 4096)
    assert served.server.stop() == 0
