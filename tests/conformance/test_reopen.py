"""A disk that is opened again with other settings, beneath its clients: they wait for a moment, and nothing else."""
import json
import os
import random
import socket
import subprocess
import time
import types

import iscsi
import nbdraw
import test_vhost
from bed import MIB, eventually, need_program, pattern, test
from test_reload import Load, Served, client, disk
from test_reservations import RESERVE, attach, check, initiator
from test_resize import lengthen
from test_settings import restart, settings, told
from test_soak import SIZE, Verifier


def begin(bed, name, more):
    """A disk, and a client with several requests in flight, who knows what each block holds."""
    bed.image(name + ".raw", SIZE)
    served = Served(bed, disk(bed, name, more))
    # Nothing excuses an error here.
    calm = types.SimpleNamespace(bed=bed, life=0, is_down=lambda: False)
    return served, Verifier(calm, name)


def change(bed, served, verifier, **wanted):
    """Changes settings of a disk at work, which goes on."""
    words = [word for key, value in wanted.items() for word in ("--" + key.replace("_", "-"), value)]
    before = verifier.reads
    eventually(lambda: verifier.reads > before + 100 or verifier.error, "requests are answered")
    assert told(bed, served, "set", verifier.name, *words) == {verifier.name: ("opened-again", None)}, wanted
    assert verifier.error is None, (wanted, verifier.error)
    now = settings(bed, served, verifier.name)
    for key, value in wanted.items():
        shown = now[key.replace("_", "-")]
        assert shown["value"] == value and shown["requested"] is None, (key, shown)
    before = verifier.reads
    eventually(lambda: verifier.reads > before + 100 or verifier.error, "requests are answered")


def finish(bed, served, verifier):
    """All that was acknowledged is there, for clients and on primary storage."""
    verifier.stop = True
    verifier.thread.join(60)
    assert not verifier.thread.is_alive() and verifier.error is None, verifier.error
    assert verifier.sessions == 1, "the client never had to come back"
    handle = client(bed, verifier.name)
    verifier.check(lambda at, length: bytes(handle.pread(length, at)))
    handle.shutdown()
    bed.run([bed.program, "disk", "flush", verifier.name, "--control", served.control])
    assert served.server.stop() == 0
    with open(bed.path(verifier.name + ".raw"), "rb") as image:
        verifier.check(lambda at, length: os.pread(image.fileno(), length, at))


def pauses(served):
    """How long clients waited each time, in ms."""
    told = [line for line in served.events().splitlines() if "its clients waited for" in line]
    return [int(line.split("waited for ")[1].split()[0]) for line in told]


@test(forebay_only=True)
def a_write_back_disk_is_opened_again_under_load(bed):
    pool = bed.path("pool")
    # Room for the largest share: a pool does not grow at work.
    served, verifier = begin(bed, "a", 'flash = "%s:48MiB"\nmode = "write-back"\nwrite-log = "8MiB"\n' % pool)
    change(bed, served, verifier, block_size="4KiB")
    change(bed, served, verifier, block_size="16KiB")
    change(bed, served, verifier, flash=pool + ":32MiB")
    change(bed, served, verifier, write_log="4MiB")
    change(bed, served, verifier, recorder="0")
    change(bed, served, verifier, grid_offset="4096")
    for order in ("window", "throughput", "strict"):
        change(bed, served, verifier, destage_order=order)
    change(bed, served, verifier, ram="0")
    change(bed, served, verifier, ram="4MiB", block_size="8KiB")
    waited = pauses(served)
    print("clients waited for %s ms" % waited)
    assert len(waited) == 11
    # What was changed is there after a kill, too.
    verifier.stop = True
    verifier.thread.join(60)
    restart(served, by_kill=True)
    assert settings(bed, served)["block-size"]["value"] == "8KiB"
    finish(bed, served, verifier)


@test(forebay_only=True)
def a_disk_gets_flash_and_a_write_log_and_gives_them_back_under_load(bed):
    served, verifier = begin(bed, "a", "")
    bed.image("b.raw", SIZE)
    pool, other = bed.path("pool"), bed.path("other")
    show = [bed.program, "pool", "show", other, "--json", "--control", served.control]
    disks_of_other = lambda: [each["name"] for each in json.loads(bed.run(show))["disks"]]
    change(bed, served, verifier, flash=pool + ":24MiB")
    change(bed, served, verifier, mode="write-back", write_log="6MiB")
    assert served.stats("a")["mode_actual"] == "write-back"
    # A pool that is too small for what its one disk wants is made anew.
    change(bed, served, verifier, flash=pool + ":48MiB")
    # To another pool, as when a device is to be replaced: its log is emptied before.
    change(bed, served, verifier, flash=other + ":24MiB")
    assert served.stats("a")["mode_actual"] == "write-back"
    # Nobody has the old one any more: its device can be pulled out.
    assert json.loads(bed.run([bed.program, "pool", "check", pool, "--json"])) is not None
    os.unlink(pool)
    assert disks_of_other() == ["a"]
    assert told(bed, served, "reset", "a") == {"a": ("opened-again", None)}
    assert served.stats("a")["mode_actual"] == "write-through"
    bed.run([bed.program, "pool", "check", other])
    finish(bed, served, verifier)


@test(forebay_only=True)
def a_disk_that_cannot_be_opened_so_goes_on_as_it_was(bed):
    pool = bed.path("pool")
    served, verifier = begin(bed, "a", 'flash = "%s:24MiB"\nmode = "write-back"\nwrite-log = "8MiB"\n' % pool)
    with open(bed.path("data"), "wb") as f:
        f.write(pattern(0, 32 * MIB))
    for flash, why in ((bed.path("missing/pool") + ":24MiB", "does not exist"), (bed.path("data") + ":24MiB", "data")):
        changes = told(bed, served, "set", "a", "--flash", flash, code=1)
        assert why in changes["a"][1] and "goes on as it was" in changes["a"][1], changes
        shown = settings(bed, served)["flash"]
        assert (shown["value"], shown["requested"]) == (pool + ":24MiB", None), shown
        before = verifier.reads
        eventually(lambda: verifier.reads > before + 100 or verifier.error, "requests are answered")
    mode = [bed.program, "disk", "set", "a", "--mode", "write-through", "--wait", "--flash", bed.path("missing/pool") + ":24MiB"]
    said = bed.run([*mode, "--control", served.control], code=None)
    assert said.returncode == 1 and "does not exist" in said.stdout and "meanwhile" not in said.stderr, said
    assert settings(bed, served)["mode"]["value"] == "write-back"
    # While destaging is held for a snapshot, or the log is not emptied in time, nothing is begun.
    bed.run([bed.program, "disk", "pause", "a", "--control", served.control])
    change(bed, served, verifier, recorder="0")
    assert served.stats("a")["log"]["is_paused"], "it is paused as before"
    changes = told(bed, served, "set", "a", "--flash", bed.path("other") + ":24MiB", code=1)
    stats = served.stats("a")
    assert "destaging is paused" in changes["a"][1] and stats["log"]["is_paused"], (changes, stats)
    assert stats["mode_actual"] == "write-back", stats
    bed.run([bed.program, "disk", "resume", "a", "--control", served.control])
    bed.run([bed.program, "disk", "set", "a", "--max-destage-rate", "4KiB", "--control", served.control])
    eventually(lambda: served.stats("a")["log"]["dirty_bytes"] > MIB, "there is something to destage")
    changes = told(bed, served, "set", "a", "--flash", bed.path("other") + ":24MiB", code=1)
    assert "not destaged within 10 s" in changes["a"][1], changes
    bed.run([bed.program, "disk", "set", "a", "--max-destage-rate", "64MiB", "--control", served.control])
    bed.run([bed.program, "disk", "quiesce", "a", "--for", "1m", "--control", served.control])
    for setting in (("--recorder", "1MiB"), ("--flash", bed.path("other") + ":24MiB")):
        changes = told(bed, served, "set", "a", *setting, code=1)
        assert "held by 'disk quiesce'" in changes["a"][1], changes
    bed.run([bed.program, "disk", "quiesce", "a", "--end", "--control", served.control])
    finish(bed, served, verifier)


@test(forebay_only=True)
def clients_wait_while_a_disk_can_be_opened_neither_so_nor_as_it_was(bed):
    served, verifier = begin(bed, "a", 'flash = "%s:24MiB"\nmode = "write-back"\n' % bed.path("pool"))
    eventually(lambda: verifier.reads > 500 or verifier.error, "requests are answered")
    for _ in range(20):
        os.rename(bed.path("a.raw"), bed.path("away"))
        changes = told(bed, served, "set", "a", "--block-size", "4KiB", code=1)
        if "its clients wait" in changes["a"][1]:
            break
        # Whoever watches primary storage, once a second, has seen it before: nothing is begun.
        assert "to be put right first" in changes["a"][1], changes
        os.rename(bed.path("away"), bed.path("a.raw"))
        eventually(lambda: served.stats("a")["storage_changed"] is None, "it is back")
    assert "its clients wait" in changes["a"][1], changes
    assert "tried again every second" in served.stats("a")["primary_trouble"]
    assert "opened again" in told(bed, served, "set", "a", "--mode", "write-through", code=1)["a"][1]
    waiting = verifier.settle()
    command = [bed.program, "disk", "detach", "a", "--control", served.control]
    assert "cannot be opened again" in bed.run(command, code=None).stderr
    assert verifier.settle() == waiting and verifier.error is None
    os.rename(bed.path("away"), bed.path("a.raw"))
    eventually(lambda: verifier.reads > waiting + 100 or verifier.error, "requests are answered")
    assert "the disk is open again, and its clients go on" in served.events()
    change(bed, served, verifier, block_size="4KiB")
    # The same at the end of the daemon: it ends, and the next one has everything.
    verifier.stop = True
    verifier.thread.join(60)
    os.rename(bed.path("a.raw"), bed.path("away"))
    told(bed, served, "set", "a", "--block-size", "8KiB", code=1)
    served.server.stop()
    os.rename(bed.path("away"), bed.path("a.raw"))
    served.server.start()
    finish(bed, served, verifier)


@test(forebay_only=True)
def a_flush_and_a_drop_of_the_cache_wait_for_a_disk_that_is_opened_again(bed):
    slow = "fault:rule=delay,op=flush,time=300ms&inner=file:" + bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a", 'flash = "%s:24MiB"\n' % bed.path("pool"), backend=slow))
    handle = client(bed, "a")
    handle.pwrite(pattern(4096, 4096, 7), 4096)
    ask = lambda *words: bed.spawn([bed.program, "disk", *words, "--control", served.control])
    setting = ask("set", "a", "--block-size", "4KiB")
    asked = []
    # Some of them are under way when the disk ends, and some come while there is none.
    while setting.poll() is None:
        asked += [ask("flush", "a"), ask("drop-cache", "a")]
        time.sleep(0.05)
    assert setting.returncode == 0 and [each.wait(60) for each in asked] == [0] * len(asked)
    assert bytes(handle.pread(4096, 4096)) == pattern(4096, 4096, 7)
    handle.shutdown()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_write_that_is_half_sent_is_waited_for_ten_seconds(bed):
    bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a"))
    data, other = pattern(4096, 8192, 3), client(bed, "a")
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(bed.path("a.sock"))
        nbdraw.go(one, "a")
        one.sendall(nbdraw.request(nbdraw.WRITE, 4096, len(data)) + data[:5000])
        changes = told(bed, served, "set", "a", "--block-size", "4KiB", code=1)
        assert "requests of its clients did not finish" in changes["a"][1], changes
        assert bytes(other.pread(4096, 0)) == pattern(0, 4096)
        one.sendall(data[5000:])
        assert nbdraw.simple_reply(one)[0] == 0
        assert told(bed, served, "set", "a", "--block-size", "4KiB") == {"a": ("opened-again", None)}
        assert bytes(other.pread(8192, 4096)) == data
    other.shutdown()
    assert served.server.stop() == 0


def change_an_image_while_its_disk_ends(bed, served, change):
    """Of a disk with dirty data, which is opened again and waits for a client until the image is changed: what is told of it."""
    handle = client(bed, "a")
    bed.run([bed.program, "disk", "pause", "a", "--control", served.control])
    for at in range(MIB, 2 * MIB, 4096):
        handle.pwrite(pattern(at, 4096, 7), at)
    handle.shutdown()
    load, data = Load(client(bed, "a")), pattern(2 * MIB, 8192, 8)
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(bed.path("a.sock"))
        nbdraw.go(one, "a")
        one.sendall(nbdraw.request(nbdraw.WRITE, 2 * MIB, len(data)) + data[:5000])
        setting = bed.spawn([bed.program, "disk", "set", "a", "--block-size", "4KiB", "--json", "--control", served.control],
                            stdout=subprocess.PIPE, text=True)

        def waits():
            before = load.rounds
            time.sleep(0.3)
            return load.rounds == before
        eventually(waits, "clients wait")
        change()
        one.sendall(data[5000:])
        said = json.loads(setting.communicate(timeout=60)[0])["changes"][0]
    return load, said


def check_image_changes(bed, served, load):
    """Clients have all that was acknowledged, and primary storage gets it."""
    load.stop()
    handle = client(bed, "a")
    for at in range(MIB, 2 * MIB, 4096):
        assert bytes(handle.pread(4096, at)) == pattern(at, 4096, 7), at
    assert bytes(handle.pread(8192, 2 * MIB)) == pattern(2 * MIB, 8192, 8)
    handle.shutdown()
    bed.run([bed.program, "disk", "resume", "a", "--control", served.control])
    bed.run([bed.program, "disk", "flush", "a", "--control", served.control])
    assert served.server.stop() == 0


BACK = 'mode = "write-back"\nwrite-log = "8MiB"\nbackend-exclusive = true\n'


@test(forebay_only=True)
def an_image_that_becomes_longer_while_its_disk_is_opened_again_holds_up_nobody(bed):
    bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a", 'flash = "%s:24MiB"\n' % bed.path("pool") + BACK))
    load, said = change_an_image_while_its_disk_ends(bed, served, lambda: lengthen(bed.path("a.raw"), SIZE + MIB))
    assert said["error"] is None, said
    eventually(lambda: client_size(bed) == SIZE + MIB, "clients see it")
    check_image_changes(bed, served, load)


def client_size(bed):
    handle = client(bed, "a")
    size = handle.get_size()
    handle.shutdown()
    return size


@test(forebay_only=True)
def an_image_that_is_cut_while_its_disk_is_opened_again_can_be_decided_about(bed):
    image = bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a", 'flash = "%s:24MiB"\n' % bed.path("pool") + BACK))
    load, said = change_an_image_while_its_disk_ends(bed, served, lambda: os.truncate(image, SIZE - MIB))
    assert "its clients wait" in said["error"], said
    os.truncate(image, SIZE)
    rounds = load.rounds
    command = [bed.program, "disk", "open", "a", "--control", served.control]
    assert "its clients wait" in bed.run(command, code=None).stderr
    bed.run([bed.program, "disk", "resolve", "a", "--pool", bed.path("pool"), "--use-log", "--control", served.control])
    eventually(lambda: load.rounds > rounds + 50 or load.error, "clients go on")
    assert not load.error
    check_image_changes(bed, served, load)


@test(forebay_only=True)
def a_hypervisors_device_is_served_on_while_its_disk_is_opened_again(bed):
    bed.image("a.raw", 64 * MIB, "holes")
    more = 'vhost-user = "%s"\nqueues = 2\nflash = "%s:32MiB"\n' % (bed.path("disk.vhost"), bed.path("pool"))
    served = Served(bed, disk(bed, "a", more))
    load = bed.spawn([test_vhost.CLIENT, "vhost", "--socket", bed.path("disk.vhost"), "--queues", "2", "--depth", "8",
                      "--wait", "block", "--seconds", "4", "--warm-up", "0", "--write", "--overwrite"])
    writes = lambda: served.stats("a")["counters"]["writes"]
    eventually(lambda: writes() > 0, "the guest writes")
    for size in ("4KiB", "16KiB", "8KiB") * 3:
        assert told(bed, served, "set", "a", "--block-size", size)["a"] == ("opened-again", None)
        # On a busy machine its time is over before all sizes were had.
        eventually(lambda: writes() > 0 or load.poll() is not None, "the guest writes")
        if load.poll() is not None:
            break
    assert load.wait(60) == 0
    test_vhost.client(bed, "--check", "--queues", "2", "--wait", "block")
    assert served.server.stop() == 0


@test(forebay_only=True)
def an_initiators_unit_is_served_on_with_its_reservation(bed):
    for program in ("fio", "qemu-storage-daemon", "iscsi-ls"):
        need_program(program)
    image, pool, front = bed.image("disk.raw", SIZE, "holes"), bed.path("pool"), bed.path("front.sock")
    one = iscsi.start(bed, "file:" + image, flash=pool + ":32MiB", mode="write-back")
    bed.spawn(["qemu-storage-daemon", "--blockdev", "driver=iscsi,node-name=disk,transport=tcp,portal=%s,target=%s,lun=0"
               % (iscsi.portal(one), iscsi.TARGET), "--nbd-server", "addr.type=unix,addr.path=" + front,
               "--export", "type=nbd,id=out,node-name=disk,writable=on"])
    eventually(lambda: os.path.exists(front), "the client listens")
    load = bed.spawn(["fio", "--name=verify", "--ioengine=nbd", "--uri=nbd+unix:///disk?socket=" + front,
                      "--rw=randrw", "--bsrange=4k-64k", "--iodepth=8", "--size=8m", "--verify=crc32c",
                      "--verify_fatal=1", "--verify_backlog=64", "--time_based", "--runtime=1000000",
                      "--output-format=terse"])
    command = lambda *words: bed.run([bed.program, "disk", *words, "--control", bed.path("disk.control")])
    for size in ("4KiB", "16KiB", "8KiB"):
        before = one.stats()["counters"]["writes"]
        eventually(lambda: one.stats()["counters"]["writes"] > before, "the initiator writes")
        assert "opened again" in command("set", "disk", "--block-size", size)
        assert load.poll() is None, "fio saw an error"
    load.terminate()
    assert load.wait(60) in (0, 128), load.returncode
    # Its pool has its name and its reservations: another one waits for a restart, and a command line cannot change.
    for option, value in [("--flash", bed.path("other") + ":32MiB"), ("--nbd", "unix:" + bed.path("other.sock"))]:
        said = bed.run([bed.program, "disk", "set", "disk", option, value, "--control", bed.path("disk.control")], code=None)
        assert said.returncode == 1 and "only a start changes " + option in said.stderr, said
    assert one.stop() == 0


@test(forebay_only=True)
def a_reservation_is_in_force_before_and_after(bed):
    one = iscsi.start(bed, "file:" + bed.image("disk.raw", SIZE), flash=bed.path("pool") + ":32MiB")
    h, holder = attach(one), initiator(one)
    assert holder.status(RESERVE) == 0
    for size in ("4KiB", "8KiB"):
        check(h, False, False)
        bed.run([bed.program, "disk", "set", "disk", "--block-size", size, "--control", bed.path("disk.control")])
    check(h, False, False)
    check(attach(one), False, False)
    assert one.stop() == 0


@test(forebay_only=True)
def all_disks_of_a_pool_move_to_another_device(bed):
    old, new = bed.path("old"), bed.path("new")
    names, handles = "abc", {}
    for name in names:
        bed.image(name + ".raw", 4 * MIB)
    flash = 'flash = "%s:16MiB"\n' % old
    back = flash + 'mode = "write-back"\nwrite-log = "4MiB"\n'
    served = Served(bed, disk(bed, "a", back), disk(bed, "b", back), disk(bed, "c", flash))
    for version, name in enumerate(names, 1):
        handles[name] = client(bed, name)
        for at in range(0, MIB, 4096):
            handles[name].pwrite(pattern(at, 4096, version), at)
    pools = lambda: json.loads(bed.run([bed.program, "pool", "list", "--json", "--control", served.control]))
    move = [bed.program, "pool", "drain", old, "--to", new, "--control", served.control]
    said = bed.run(move, code=None)
    assert said.returncode == 1 and "as large as the first disk wants" in said.stderr, said
    # A pool with room, which a disk leaves behind.
    bed.image("d.raw", 4 * MIB)
    assert told(bed, served, "add", "d", "file:" + bed.path("d.raw"), "--flash", new + ":64MiB", "--ram", "4MiB",
                "--mode", "write-back", "--nbd", "unix:" + bed.path("d.sock")) == {"d": ("added", None)}
    bed.run([bed.program, "disk", "remove", "d", "--control", served.control])
    assert "this would change" in bed.run([*move, "--dry-run"]) and pools()["path"] == old
    assert bed.run(move).count("opened again") == 3
    assert pools()["path"] == new and sorted(each["name"] for each in pools()["disks"]) == ["a", "b", "c"]
    listed = bed.run([bed.program, "pool", "list", "--control", served.control])
    assert new in listed and old not in listed and "good" in listed, listed
    # Nobody has the old one.
    bed.run([bed.program, "pool", "check", old])
    os.unlink(old)
    said = bed.run(move, code=None)
    assert said.returncode == 1 and "does not use" in said.stderr, said
    for version, name in enumerate(names, 1):
        handles[name].pwrite(pattern(2 * MIB, 4096, version), 2 * MIB)
    restart(served, by_kill=True)
    for version, name in enumerate(names, 1):
        handle = client(bed, name)
        for at in [*range(0, MIB, 4096), 2 * MIB]:
            assert bytes(handle.pread(4096, at)) == pattern(at, 4096, version), (name, at)
        handle.shutdown()
    assert served.server.stop() == 0


def ring(served, name):
    found = served.stats(name)["ring"]
    return found["blocks_found"], found["blocks_kept"]


@test(forebay_only=True)
def flash_that_gets_another_size_stays_warm(bed):
    with open(bed.path("pool"), "wb") as file:
        file.truncate(96 * MIB)
    for name in "ab":
        bed.image(name + ".raw", 16 * MIB)
    flash = 'flash = "%s:12MiB"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", flash + 'block-size = "8KiB"\n'), disk(bed, "b", flash))
    resize = lambda size: told(bed, served, "set", "a", "--flash", "%s:%s" % (bed.path("pool"), size))
    handle = client(bed, "a")
    full = lambda: served.stats("a")["flash"]["slots_used"]

    def is_nearly_full():
        # A block that comes to flash while all its writes are under way is left out, and comes another time.
        for at in range(0, 16 * MIB, 65536):
            assert bytes(handle.pread(65536, at)) == pattern(at, 65536)
        return full() > 1400
    eventually(is_nearly_full, "flash is nearly full")
    said = bed.run([bed.program, "disk", "set", "a", "--flash", bed.path("pool") + ":24MiB", "--dry-run",
                    "--control", served.control])
    assert "flash keeps what its new size has room for" in said, said
    # What is behind it in the pool is of the other disk.
    before = full()
    assert resize("24MiB") == {"a": ("opened-again", None)}
    assert ring(served, "a") == (before, before), (ring(served, "a"), before)
    for at in range(0, 16 * MIB, 65536):
        assert bytes(handle.pread(65536, at)) == pattern(at, 65536)
    assert served.stats("a")["counters"]["read_hits_flash"] > 100
    assert resize("8MiB") == {"a": ("opened-again", None)}
    found, kept = ring(served, "a")
    assert kept <= 1024 and 800 < kept < found, (found, kept)
    for at in range(0, 16 * MIB, 65536):
        assert bytes(handle.pread(65536, at)) == pattern(at, 65536)
    # What is free again is another disk's, and a kill finds all of it.
    assert told(bed, served, "set", "b", "--flash", bed.path("pool") + ":30MiB") == {"b": ("opened-again", None)}
    other = client(bed, "b")
    for at in range(0, 16 * MIB, 65536):
        handle.pwrite(pattern(at, 65536, 1), at)
        other.pwrite(pattern(at, 65536, 2), at)
    for each, version in (handle, 1), (other, 2):
        for at in range(0, 16 * MIB, 65536):
            assert bytes(each.pread(65536, at)) == pattern(at, 65536, version)
    restart(served, by_kill=True)
    for name, version in ("a", 1), ("b", 2):
        handle = client(bed, name)
        for at in range(0, 16 * MIB, 65536):
            assert bytes(handle.pread(65536, at)) == pattern(at, 65536, version), (name, at)
    bed.run([bed.program, "pool", "show", bed.path("pool"), "--control", served.control])
    assert served.server.stop() == 0
    bed.run([bed.program, "pool", "check", bed.path("pool")])


@test(forebay_only=True)
def a_kill_while_flash_gets_another_size_leaves_nothing_old(bed):
    with open(bed.path("pool"), "wb") as file:
        file.truncate(96 * MIB)
    for name in "ab":
        bed.image(name + ".raw", SIZE)
    flash = 'flash = "%s:8MiB"\n' % bed.path("pool")
    back = 'mode = "write-back"\nwrite-log = "4MiB"\nflash = "%s:12MiB"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", flash), disk(bed, "b", back))
    chance = random.Random(11)
    for version in range(1, 11):
        name = chance.choice("ab")
        handles = {each: client(bed, each) for each in "ab"}
        for handle in handles.values():
            for at in range(0, 2 * MIB, 32768):
                handle.pwrite(pattern(at, 32768, version), at)
                handle.pread(65536, chance.randrange(0, SIZE - 65536, 4096))
        sizes = ["%s:%dMiB" % (bed.path("pool"), chance.randrange(6, 30)) for _ in range(2)]
        changing = [bed.spawn([bed.program, "disk", "set", name, "--flash", size, "--control", served.control])
                    for size in sizes[:1 + version % 2]]
        time.sleep(chance.uniform(0, 0.3))
        served.server.kill()
        for each in changing:
            each.wait(30)
        served.server.start()
        for each in "ab":
            handle = client(bed, each)
            for at in range(0, 2 * MIB, 32768):
                assert bytes(handle.pread(32768, at)) == pattern(at, 32768, version), (each, version, at)
            for at in range(2 * MIB, SIZE, 65536):
                assert bytes(handle.pread(65536, at)) == pattern(at, 65536), (each, version, at)
    assert served.server.stop() == 0
    bed.run([bed.program, "pool", "check", bed.path("pool")])
