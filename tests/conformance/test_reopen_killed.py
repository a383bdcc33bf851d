"""A host that dies while a disk leaves its pool: a start finds the disk where its log is."""
import os
import random
import time

from bed import MIB, eventually, pattern, test
from test_reload import Served, client, disk
from test_settings import kept, restart, settings, told

SIZE = 16 * MIB
# More writes than a slow backend gets in a test.
WRITES = range(0, 400 * 16384, 16384)


def back(bed, pool, mib=64):
    return 'mode = "write-back"\nflash = "%s:%dMiB"\n' % (bed.path(pool), mib)


def slow(bed, name, pool):
    bed.image(name + ".raw", SIZE)
    backend = "model:san?iops=10&latency=100ms&inner=file:" + bed.path(name + ".raw")
    return disk(bed, name, back(bed, pool), backend=backend)


def write(handle, version):
    for at in WRITES:
        handle.pwrite(pattern(at, 4096, version), at)
    handle.flush()


def check(handle, version):
    for at in WRITES:
        assert bytes(handle.pread(4096, at)) == pattern(at, 4096, version), (at, version)


def killed_while_it_moves(bed, served, flash):
    """A kill while the log of the first disk is emptied."""
    moving = bed.spawn([bed.program, "disk", "set", "a", "--flash", flash, "--control", served.control])
    eventually(lambda: served.stats("a")["mode"] == "write-through", "its log is being emptied")
    served.server.kill()
    moving.wait()
    served.server.start()
    assert "NOT SERVED" not in served.server.said and kept(bed) is None, served.server.said


@test(forebay_only=True)
def a_kill_while_a_log_is_emptied_leaves_the_disk_in_its_pool(bed):
    served = Served(bed, slow(bed, "a", "pool"), slow(bed, "b", "other"))
    for version, name in enumerate("ab", 1):
        write(client(bed, name), version)
    # Beside another disk there is no room, which is found before anything begins.
    why = told(bed, served, "set", "a", "--flash", bed.path("other:64MiB"), code=1)["a"][1]
    assert "has no room" in why and served.stats("a")["mode"] == "write-back", why
    # An empty pool, and the same one, larger.
    for flash in ("empty:64MiB", "pool:128MiB"):
        killed_while_it_moves(bed, served, bed.path(flash))
        assert settings(bed, served)["flash"]["value"] == bed.path("pool:64MiB")
        for version, name in enumerate("ab", 1):
            check(client(bed, name), version)
    served.server.kill()


@test(forebay_only=True)
def a_kill_at_any_moment_while_a_disk_moves_loses_nothing(bed):
    bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a", back(bed, "x")))
    chance = random.Random(7)
    for version in range(1, 17):
        write(client(bed, "a"), version)
        wanted = bed.path(("y", "x")[version % 2] + (":64MiB", ":48MiB")[version // 2 % 2])
        moving = bed.spawn([bed.program, "disk", "set", "a", "--flash", wanted, "--control", served.control])
        time.sleep(chance.uniform(0, 0.3))
        served.server.kill()
        done = moving.wait() == 0
        served.server.start()
        assert "NOT SERVED" not in served.server.said, (version, served.server.said)
        assert not done or settings(bed, served)["flash"]["value"] == wanted, (version, wanted)
        check(client(bed, "a"), version)
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_whose_move_fails_or_cannot_be_kept_is_found_where_it_was(bed):
    bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a", back(bed, "pool")))
    handle = client(bed, "a")
    write(handle, 1)
    # The state folder takes nothing.
    os.mkdir(bed.path("state/forebay.changes.toml.new"))
    move = ["set", "a", "--flash", bed.path("other:64MiB")]
    for words in (move, ["set", "a", "--block-size", "16KiB"]):
        kind, why = told(bed, served, *words, code=1)["a"]
        assert kind == "opened-again" and "cannot be kept over a restart" in why and "goes on as it was" in why, why
    os.rmdir(bed.path("state/forebay.changes.toml.new"))
    # It has ended when it is found that there is no such place.
    missing = told(bed, served, "set", "a", "--flash", bed.path("missing/pool:64MiB"), code=1)
    assert "goes on as it was" in missing["a"][1] and kept(bed) is None, missing
    now = settings(bed, served)
    assert all(setting["requested"] is None for setting in now.values()), now
    assert (now["flash"]["value"], now["block-size"]["value"]) == (bed.path("pool:64MiB"), "8KiB"), now
    assert "opened again:" not in served.events()
    write(handle, 2)
    restart(served, by_kill=True)
    handle = client(bed, "a")
    check(handle, 2)
    assert told(bed, served, *move) == {"a": ("opened-again", None)}
    write(handle, 3)
    restart(served, by_kill=True)
    assert settings(bed, served)["flash"]["value"] == bed.path("other:64MiB")
    check(client(bed, "a"), 3)
    assert served.server.stop() == 0
