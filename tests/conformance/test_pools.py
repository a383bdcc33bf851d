"""What is on flash, told while nobody uses it and by the daemon that does."""
import json
import os

import nbd
from bed import MIB, eventually, pattern, test
from test_refusals import refused
from test_reload import Served, client, disk, images
from test_write_back import attach, log_of, opened, write_blocks


def control(bed):
    return ["--control", bed.path("disk.control")]


@test(forebay_only=True)
def a_pool_in_use_is_told_by_its_daemon_in_the_same_shape(bed):
    _, disk, h = opened(bed, uri="model:san?latency=200ms&inner=file:")
    write_blocks(h, range(100))
    h.flush()
    show = [bed.program, "pool", "show", bed.path("pool")]
    online = json.loads(bed.run([*show, "--json", *control(bed)]))
    assert (online["used_by"], online["faults"]) == ("disk", []), online
    db = online["disks"][0]
    assert (db["session"], db["mode"], db["faults"]) == ("running", "write-back", []), db
    assert 0 < db["dirty_bytes"] <= 100 * 4096 and db["log_segments"] > 0 and db["generation"] > 0, db
    said = bed.run([*show, *control(bed)])
    assert "used by daemon disk" in said and "health           good" in said, said
    # Whoever does not say where the daemon is hears of it, and a check has to wait.
    refused(bed, ["pool", "show", bed.path("pool")], "process %d" % disk.process.pid, "--control PATH", code=1)
    refused(bed, ["pool", "check", bed.path("pool")], "stop its daemon", "pool show", code=1)
    refused(bed, ["pool", "show", bed.path("disk.raw"), *control(bed)], "does not use", code=1)
    disk.kill()
    refused(bed, ["pool", "show", bed.path("pool"), *control(bed)], "nobody listens", code=1)
    offline = json.loads(bed.run([*show, "--json"]))
    assert offline.keys() == online.keys() and offline["disks"][0].keys() == db.keys(), (offline, online)
    assert offline["used_by"] is None and offline["disks"][0]["session"] == "running-or-crashed", offline
    assert offline["segments"] == online["segments"] and 0 < offline["disks"][0]["dirty_bytes"] <= 100 * 4096
    bed.run([bed.program, "pool", "check", bed.path("pool")])
    disk.start()
    assert disk.stop() == 0


@test(forebay_only=True)
def what_is_no_pool_is_named_and_not_spoken_of_as_overwritten(bed):
    image = bed.image("disk.raw", MIB)
    for command in ("show", "check"):
        result = bed.run([bed.program, "pool", command, image], code=None)
        assert result.returncode == 1 and "is no pool" in result.stderr, result.stderr
        assert "overwritten" not in result.stderr, result.stderr


@test(forebay_only=True)
def a_clean_pool_that_was_cut_in_half_starts_cold(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, ram="1MiB", flash=bed.path("pool") + ":16MiB")
    h = attach(disk)
    for _ in range(2):
        for at in range(0, 16 * MIB, MIB):
            h.pread(MIB, at)
    h.shutdown()
    assert disk.stop() == 0
    os.truncate(bed.path("pool"), 8 * MIB)
    disk.start()
    assert "was cut short" in disk.log() and "has its size again" in disk.log(), disk.log()
    h = attach(disk)
    for at in range(0, 16 * MIB, MIB):
        assert bytes(h.pread(MIB, at)) == pattern(at, MIB)
    h.shutdown()
    assert disk.stop() == 0
    disk.start()
    assert disk.log().count("was cut short") == 1, disk.log()
    assert disk.stop() == 0


@test(forebay_only=True)
def deferred_flushes_are_a_risk_only_until_an_end_in_order(bed):
    _, disk, h = opened(bed, extra=["--flush-semantics", "deferred", "--max-dirty-age", "1s",
                                    "--accept-data-loss"])
    h.pwrite(pattern(0, 4096, 1), 0)
    show = [bed.program, "pool", "show", bed.path("pool")]
    assert "loses flushed writes" in bed.run([*show, *control(bed)])
    h.shutdown()
    assert disk.stop() == 0
    said = bed.run(show)
    assert "nothing is lost" in said and "may have lost" not in said, said
    disk.start()
    disk.kill()
    assert "may have lost" in bed.run(show)
    disk.start()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_start_that_fails_leaves_no_pool_behind(bed):
    pool = bed.path("mistyped")
    at = ["--nbd", "unix:" + bed.path("s"), "--ram", "16MiB", "--control", bed.path("c")]
    refused(bed, ["run", "file:" + bed.path("nothing"), *at, "--flash", pool + ":64MiB"], "nothing", code=1)
    assert not os.path.exists(pool), "it was made for a disk that never came"
    secret = bed.path("secret")
    with open(secret, "w") as f:
        f.write("too short\n")
    os.chmod(secret, 0o600)
    chap = ["--iscsi", "127.0.0.1:0", "--chap-user", "u", "--chap-secret-file"]
    refused(bed, ["run", "mem:16MiB", *at, "--flash", pool + ":64MiB", *chap, secret], secret, "12", code=2)
    refused(bed, ["run", "mem:16MiB", *at, *chap, bed.path("none")], bed.path("none"), code=2)
    assert not os.path.exists(pool)


@test(forebay_only=True, timeout=300)
def a_daemon_that_is_killed_every_few_seconds_gets_on_with_destaging(bed):
    # 50 flush epochs a second in strict order: by its room alone the log would have primary storage flushed after twenty seconds.
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("model:san?latency=20ms&inner=file:" + image, ram="2MiB", mode="write-back",
                    flash=bed.path("pool") + ":96MiB",
                    extra=["--write-log", "64MiB", "--destage-order", "strict"])
    h = attach(disk)
    # Some are overwritten in a later epoch.
    for n in range(400):
        h.pwrite(pattern(n % 300 * 8192, 4096, n + 1), n % 300 * 8192, nbd.CMD_FLAG_FUA)
    dirty = [log_of(disk)["dirty_bytes"]]
    while dirty[-1] and len(dirty) < 12:
        at = log_of(disk)["destaged_sequence"]
        # It lives for so long, as it shows by what it does: 120 epochs.
        eventually(lambda: log_of(disk)["is_clean"] or log_of(disk)["destaged_sequence"] >= at + 120,
                   "it destages", seconds=30)
        disk.restart()
        dirty.append(log_of(disk)["dirty_bytes"])
    print("dirty at each start:", dirty)
    assert all(after < before for before, after in zip(dirty, dirty[1:])), dirty
    assert dirty[-1] == 0, dirty
    h = attach(disk)
    for n in range(400):
        if n + 300 >= 400:
            assert bytes(h.pread(4096, n % 300 * 8192)) == pattern(n % 300 * 8192, 4096, n + 1), n
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def flash_that_is_mounted_after_the_start_is_found_and_the_pool_made_meanwhile_goes(bed):
    images(bed, "a", "b")
    mount, away, hidden = bed.path("nvme"), bed.path("away"), bed.path("hidden")
    os.mkdir(mount)
    a, b = disk(bed, "a"), disk(bed, "b", 'mode = "write-back"\nflash = "%s/pool:16MiB"\n' % mount)
    served = Served(bed, a, b)
    at = ["--control", served.control]
    bed.run([bed.program, "disk", "pause", "b", *at])
    h = client(bed, "b")
    h.pwrite(pattern(0, MIB, 3), 0)
    h.flush()
    served.server.kill()
    del h
    # As if its file system were not mounted.
    os.rename(mount, away)
    os.mkdir(mount)
    served.server.start()
    said = bed.run([bed.program, "disk", "open", "b", *at], code=None)
    assert said.returncode == 1 and "belongs to the disk 'b' of another pool" in said.stderr, said
    assert os.listdir(mount) == ["pool"]
    assert served.server.stop() == 0
    assert os.listdir(mount) == [], "no disk came to use it"
    served.server.start()
    os.rename(mount, hidden)
    os.rename(away, mount)
    bed.run([bed.program, "disk", "open", "b", *at])
    assert os.listdir(hidden) == [] and os.listdir(mount) == ["pool"]
    h = client(bed, "b")
    assert bytes(h.pread(MIB, 0)) == pattern(0, MIB, 3)
    h.shutdown()
    assert served.server.stop() == 0
