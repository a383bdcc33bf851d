"""Commands about a disk that is not as the configuration file asks for by now: they change what they name alone."""
import signal

from bed import MIB, eventually, free_port, pattern, test
from test_devices import BACK, device, devices, flash, pool, tell
from test_reload import Served, client, disk, images
from test_settings import kept, refused, restart, settings, told


def back(bed, pool):
    return 'mode = "write-back"\nflash = "%s:64MiB"\n' % bed.path(pool)


@test(forebay_only=True)
def a_disk_that_the_file_does_not_list_any_more_takes_no_settings(bed):
    images(bed, "a", "b")
    a, b = disk(bed, "a", back(bed, "pool")), disk(bed, "b")
    served = Served(bed, a, b)
    handle = client(bed, "a")
    handle.pwrite(pattern(0, 4096, 1), 0)
    served.write(b)
    assert "clients are attached" in served.reload(code=1)["a"][1]

    def takes_none():
        for words in (["--iops-limit", "1000"], ["--block-size", "16KiB"], ["--ram", "4MiB", "--dry-run"]):
            assert "does not list it any more" in refused(bed, served, "set", "a", *words)
        assert "nothing of that was changed" in refused(bed, served, "reset", "a")
        assert served.disks() == ["a", "b"] and kept(bed) is None
    takes_none()
    handle.shutdown()
    eventually(lambda: served.stats("a")["connections"] == 0, "its client has left")
    takes_none()
    assert bytes(client(bed, "a").pread(4096, 0)) == pattern(0, 4096, 1)
    assert "cannot be taken back" not in served.events()
    # Listed again, it does.
    served.write(a, b)
    assert served.reload() == {}
    assert told(bed, served, "set", "a", "--iops-limit", "1000") == {"a": ("changed", None)}
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_command_leaves_what_the_file_asks_for_and_could_not_be_made(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a", back(bed, "pool")))
    pause = lambda word: bed.run([bed.program, "disk", word, "a", "--control", served.control])
    pause("pause")
    handle = client(bed, "a")
    handle.pwrite(pattern(0, MIB, 1), 0)
    served.write(disk(bed, "a", back(bed, "pool2")))
    kind, why = served.reload(code=1)["a"]
    assert kind == "opened-again" and "destaging is paused" in why, why
    # Neither with the log in the way, nor later.
    limit = ["set", "a", "--iops-limit"]
    assert told(bed, served, *limit, "1000") == {"a": ("changed", None)}
    pause("resume")
    assert told(bed, served, *limit, "2000") == {"a": ("changed", None)}
    assert told(bed, served, "set", "a", "--block-size", "16KiB") == {"a": ("opened-again", None)}
    now = settings(bed, served)
    assert now["flash"]["value"] == bed.path("pool") + ":64MiB" and now["block-size"]["value"] == "16KiB", now
    assert now["flash"]["requested"] == bed.path("pool2") + ":64MiB", now
    assert "cannot be taken back" not in served.events()
    # Who names it, or reads the file again, has it made.
    assert told(bed, served, "set", "a", "--flash", bed.path("pool2") + ":64MiB") == {"a": ("opened-again", None)}
    now = settings(bed, served)
    assert all(setting["requested"] is None for setting in now.values()), now
    assert served.reload() == {}
    assert bytes(handle.pread(MIB, 0)) == pattern(0, MIB, 1)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_device_with_a_disk_that_the_file_does_not_list_any_more_is_not_drained(bed):
    images(bed, "a", "b", "c")
    disks = [disk(bed, name, flash(16) + BACK) for name in "abc"]
    served = Served(bed, *disks, more=pool(bed, "x", "y"))
    before = {"x": ["a", "c"], "y": ["b"]}
    assert devices(bed, served) == before
    handle = client(bed, "c")
    handle.pwrite(pattern(0, 4096, 1), 0)
    served.write(*disks[:2], more=pool(bed, "x", "y"))
    assert "clients are attached" in served.reload(code=1)["c"][1]
    said = tell(bed, served, "drain", bed.path("x"), code=1)
    assert "disk 'c' is on" in said and "does not list it any more" in said, said
    assert devices(bed, served) == before
    handle.shutdown()
    eventually(lambda: served.stats("c")["connections"] == 0, "its client has left")
    bed.run([bed.program, "disk", "remove", "c", "--control", served.control])
    assert "leaves the pool 'fast'" in tell(bed, served, "drain", bed.path("x"))
    assert devices(bed, served) == {"y": ["a", "b"]}
    assert served.server.stop() == 0


@test(forebay_only=True)
def what_a_sighup_could_not_bring_about_is_told(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a", back(bed, "pool")), disk(bed, "b"))
    bed.run([bed.program, "disk", "pause", "a", "--control", served.control])
    handle = client(bed, "a")
    handle.pwrite(pattern(0, 4096, 1), 0)
    small = 'block-size = "4KiB"\nmetadata-limit = "16KiB"\n'
    served.write(disk(bed, "a", back(bed, "other")), disk(bed, "b", small))
    served.server.process.send_signal(signal.SIGHUP)
    told_of = ["a  reload: flash becomes %s:64MiB: not done: destaging is paused" % bed.path("other"),
               "b  reload: block-size becomes 4KiB, metadata-limit becomes 16KiB: not done: "]
    eventually(lambda: all(text in served.events() for text in told_of), "it is told")
    errors = [line for line in served.events().splitlines() if "not done" in line]
    assert len(errors) == 2 and all(" error " in line for line in errors), errors
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_setting_that_cannot_be_had_keeps_no_other_from_being_in_force(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a"))
    text = disk(bed, "a", 'iops-limit = 1000\nmode = "write-around"\n').replace('ram = "8MiB"', 'ram = "512GiB"')
    served.write(text)
    for turn in range(2):
        kind, why = served.reload(code=1)["a"]
        assert kind == "changed" and "512 GiB: it can have more from the next start on" in why, why
        # The second one finds nothing else that is otherwise.
        assert ("the rest is in force" in why) == (turn == 0), why
        now = {key: it["value"] for key, it in settings(bed, served).items()}
        assert (now["iops-limit"], now["mode"], now["ram"]) == ("1000", "write-around", "8MiB"), now
    assert "its settings were changed at work: iops-limit 1000" in served.events()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_command_that_cannot_be_had_in_part_does_not_say_that_the_rest_is_in_force(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a"))
    kind, why = told(bed, served, "set", "a", "--ram", "512GiB", "--iops-limit", "1000", code=1)["a"]
    assert kind == "changed" and "512 GiB: it can have more from the next start on" in why, why
    assert "in force" not in why, why
    now = {key: it["value"] for key, it in settings(bed, served).items()}
    assert (now["iops-limit"], now["ram"]) == ("none", "8MiB") and kept(bed) is None, now
    assert served.server.stop() == 0


def add(bed, name):
    return ["add", name, "file:" + bed.path(name + ".raw"), "--ram", "4MiB", "--nbd", "unix:" + bed.path(name + ".sock")]


@test(forebay_only=True)
def a_disk_that_the_file_names_elsewhere_is_not_removed(bed):
    images(bed, "a", "b")
    a, port = disk(bed, "a"), free_port()
    served = Served(bed, a)
    assert told(bed, served, *add(bed, "b")) == {"b": ("added", None)}
    by_nbd = '[[nbd]]\nlisten = "127.0.0.1:%d"\ndisks = ["a", "b"]\n' % port
    by_iscsi = '[[iscsi]]\nlisten = ["127.0.0.1:%d"]\ntarget = "iqn.2026-01.x:t"\ndisks = ["b"]\n' % port
    for text, name in [(by_nbd, "[[nbd]] 127.0.0.1:%d names the disk 'b'" % port), (by_iscsi, "[[iscsi]] iqn.2026-01.x:t: ")]:
        served.write(a, more=text)
        served.reload()
        why = refused(bed, served, "remove", "b", "--force")
        assert name in why and "'forebay reload'" in why, why
        assert served.disks() == ["a", "b"] and "backend" in kept(bed)
    restart(served)
    assert served.disks() == ["a", "b"]
    assert bytes(client(bed, "b").pread(4096, 0)) == pattern(0, 4096)
    served.write(a)
    served.reload()
    eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")
    bed.run([bed.program, "disk", "remove", "b", "--control", served.control])
    assert served.disks() == ["a"] and kept(bed) is None
    restart(served)
    assert served.server.stop() == 0


@test(forebay_only=True)
def the_last_disk_is_not_removed_from_a_listener_that_has_all(bed):
    images(bed, "a", "b")
    all_disks = '[[nbd]]\nlisten = "127.0.0.1:%d"\n' % free_port()
    served = Served(bed, disk(bed, "a"), more=all_disks)
    assert told(bed, served, *add(bed, "b")) == {"b": ("added", None)}
    served.write(more=all_disks)
    assert served.reload() == {"a": ("removed", None)}
    assert "serves no disk" in refused(bed, served, "remove", "b")
    restart(served)
    assert served.disks() == ["b"]
    assert served.server.stop() == 0


@test(forebay_only=True)
def what_waits_for_a_disk_of_the_file_is_not_of_one_that_is_added(bed):
    images(bed, "a", "b")
    a, b = disk(bed, "a"), disk(bed, "b")
    served = Served(bed, a, b)
    for turn in range(2):
        assert told(bed, served, "set", "b", "--ram", "2MiB", "--iops-limit", "1000") == {"b": ("changed", None)}
        served.write(a)
        assert served.reload() == {"b": ("removed", None)} and "iops-limit" in kept(bed)
        if turn == 0:
            assert told(bed, served, "reset", "b", "iops-limit") == {} and "iops-limit" not in kept(bed)
            assert told(bed, served, "reset", "b") == {} and kept(bed) is None
            assert "nothing of that was changed" in refused(bed, served, "reset", "b")
            served.write(a, b)
            assert served.reload() == {"b": ("added", None)}
    assert told(bed, served, *add(bed, "b")) == {"b": ("added", None)}
    now = {key: it["value"] for key, it in settings(bed, served, "b").items()}
    assert (now["ram"], now["iops-limit"]) == ("4MiB", "none") and "iops-limit" not in kept(bed), now
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_device_that_comes_or_goes_leaves_what_the_file_asks_for_and_could_not_be_made(bed):
    images(bed, "a", "b")
    fast, b = pool(bed, "x", "y"), disk(bed, "b", flash(16) + BACK)
    served = Served(bed, disk(bed, "a", back(bed, "pool")), b, more=fast)
    pause = lambda word: bed.run([bed.program, "disk", word, "a", "--control", served.control])
    pause("pause")
    handle = client(bed, "a")
    handle.pwrite(pattern(0, MIB, 1), 0)
    served.write(disk(bed, "a", back(bed, "pool2")), b, more=fast)
    assert "destaging is paused" in served.reload(code=1)["a"][1]
    pause("resume")
    device(bed, "new")
    for words in (["add-device", "fast", bed.path("new")], ["drain", bed.path("x")]):
        said = tell(bed, served, *words)
        assert "disk 'a'" not in said and "s the pool 'fast'" in said, said
        flash_of_a = settings(bed, served)["flash"]
        assert flash_of_a["value"] == bed.path("pool") + ":64MiB", flash_of_a
        assert flash_of_a["requested"] == bed.path("pool2") + ":64MiB", flash_of_a
    now = devices(bed, served, "pool")
    assert now["pool"] == ["a"] and "x" not in now and "b" in now.get("y", []) + now.get("new", []), now
    assert served.reload() == {"a": ("opened-again", None)}
    assert bytes(handle.pread(MIB, 0)) == pattern(0, MIB, 1)
    assert served.server.stop() == 0
