"""Write-back over ends and restarts: no kill loses a write, and an end in order leaves little to do."""
import json
import subprocess

from bed import MIB, eventually, pattern, test
import nbd
from test_write_back import (DEFERRED, attach, destaged, disk_command, expect_blocks, log_of,
                             nbdkit_on, of_client, opened, read_file, write_back, write_blocks)


def kill_start(server, after):
    """Starts a server, and kills it so many seconds later."""
    process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after)
        raise AssertionError("it ended: %d" % process.returncode)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@test(forebay_only=True)
def kills_during_recovery_lose_nothing(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = write_back(bed, "model:san?latency=300ms&inner=file:" + image)
    written = {}
    for round_ in range(6):
        h = attach(disk)
        for block, version in written.items():
            assert bytes(h.pread(4096, block * 4096)) == pattern(block * 4096, 4096, version), block
        for n in range(20):
            block = bed.random.randrange(4096)
            written[block] = round_ * 100 + n + 1
            h.pwrite(pattern(block * 4096, 4096, written[block]), block * 4096)
        if round_ % 3 == 1:
            h.flush()
        disk.kill()
        # Again and again, each time a little further.
        for attempt in range(6):
            kill_start(disk, 0.002 + 0.006 * attempt + 0.003 * bed.random.random())
        disk.start()
    disk.stop()


@test(forebay_only=True)
def two_disks_share_a_pool_and_each_keeps_its_own_log(bed):
    config = 'shards = 2\ncontrol = "%s"\n' % bed.path("serve.control")
    for name in "ab":
        image = bed.image(name + ".raw", 16 * MIB)
        config += ('[[disk]]\nname = "%s"\nbackend = "model:san?latency=100ms&inner=file:%s"\n'
                   'ram = "2MiB"\nflash = "%s:16MiB"\nmode = "write-back"\nwrite-log = "4MiB"\n'
                   'destage-order = "window"\ndestage-barrier = "flush"\nmax-destage-rate = "8MiB"\n'
                   % (name, image, bed.path("pool")))
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("nbd.sock")
    server = bed.serve(config, ["unix:" + bed.path("nbd.sock")])
    disks = {}
    for round_ in range(3):
        for version, name in enumerate("ab", 1):
            h = disks[name] = nbd.NBD()
            h.connect_uri(server.uri_of(name))
            for n in range(200):
                if round_:
                    expected = pattern(n * 8192, 4096, version + round_ - 1)
                    assert bytes(h.pread(4096, n * 8192)) == expected
                h.pwrite(pattern(n * 8192, 4096, version + round_), n * 8192)
        if round_ < 2:
            server.restart()
    assert server.stop() == 0
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert sorted(disk["name"] for disk in shown["disks"]) == ["a", "b"]
    assert all(disk["session"] == "closed" and disk["error"] is None for disk in shown["disks"])


@test(forebay_only=True)
def disks_of_a_pool_that_are_opened_together_each_have_their_own_writes(bed):
    names = ["d%d" % n for n in range(20)]
    config = 'shards = 2\ncontrol = "%s"\n' % bed.path("serve.control")
    for name in names:
        image = bed.image(name + ".raw", 4 * MIB)
        config += ('[[disk]]\nname = "%s"\nbackend = "model:san?latency=100ms&inner=file:%s"\n'
                   'ram = "1MiB"\nflash = "%s:8MiB"\nmode = "write-back"\nwrite-log = "4MiB"\n'
                   'max-destage-rate = "1MiB"\n' % (name, image, bed.path("pool")))
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("nbd.sock")
    server = bed.serve(config, ["unix:" + bed.path("nbd.sock")])
    places = range(0, 4 * MIB, 64 * 1024)
    for round_ in range(4):
        for number, name in enumerate(names):
            h = nbd.NBD()
            h.connect_uri(server.uri_of(name))
            version = 100 * number + round_
            for at in places:
                if round_:
                    assert bytes(h.pread(4096, at)) == pattern(at, 4096, version), (name, at)
                h.pwrite(pattern(at, 4096, version + 1), at)
        server.kill()
        # A start that is killed while disks are opened is followed by one that finds the same.
        for attempt in range(3):
            kill_start(server, 0.03 + 0.05 * attempt + 0.05 * bed.random.random())
        server.start()
    assert server.stop() == 0


@test(forebay_only=True)
def forty_crashes_without_destaging_need_no_more_log_than_the_writes(bed):
    image, disk, h = opened(bed)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    disk_command(bed, disk, "pause", "disk")
    write_blocks(h, range(5))
    for crash in range(1, 40):
        # Ten segments of 1 MiB are all that the log can have, with what restarts need.
        disk.restart()
        disk_command(bed, disk, "pause", "disk")
        h = attach(disk)
        expect_blocks(of_client(h), range(5 * crash))
        write_blocks(h, range(5 * crash, 5 * crash + 5))
    leased = log_of(disk)["leased_bytes"]
    assert leased <= 4 * MIB, leased
    disk.restart()
    disk_command(bed, disk, "flush", "disk")
    expect_blocks(read_file(image), range(200))
    assert disk.stop() == 0


@test(forebay_only=True)
def a_disk_with_deferred_flushes_destages_before_it_ends(bed):
    image, disk, h = opened(bed, uri="model:san?latency=5ms&inner=file:", extra=DEFERRED)
    write_blocks(h, range(300))
    h.flush()
    assert not log_of(disk)["is_clean"]
    assert disk.stop() == 0
    expect_blocks(read_file(image), range(300))
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert shown["disks"][0]["dirty_records"] == 0, shown


@test(forebay_only=True)
def a_disk_with_deferred_flushes_keeps_its_log_when_primary_storage_is_away_at_the_end(bed):
    image = bed.image("disk.raw", 16 * MIB)
    primary = nbdkit_on(bed, image)
    disk = write_back(bed, primary.uri, extra=DEFERRED)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    h = attach(disk)
    primary.kill()
    write_blocks(h, range(100))
    assert disk.stop(timeout=20) == 0
    assert "stays in the write log" in disk.log()
    primary.start()
    disk.start()
    expect_blocks(of_client(attach(disk)), range(100))
    assert disk.stop() == 0
    expect_blocks(read_file(image), range(100))


@test(forebay_only=True)
def a_clean_shutdown_does_not_come_back_dirty(bed):
    _, disk, h = opened(bed)
    write_blocks(h, range(300))
    h.flush()
    destaged(disk)
    assert disk.stop() == 0
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert shown["disks"][0]["dirty_records"] == 0, shown
    disk.start()
    log = log_of(disk)
    assert log["is_clean"] and log["dirty_bytes"] == 0, log
    assert "are to be destaged" not in disk.log()
    assert disk.stop() == 0


@test(forebay_only=True)
def restarts_in_order_get_on_with_destaging(bed):
    # Each write is an epoch of its own, and one destage write; 128 of them a second, so that a busy machine has time for three restarts.
    slow = ["--write-cache", "off", "--max-destage-rate", "512KiB", "--destage-order", "strict"]
    image, disk, h = opened(bed, extra=slow)
    write_blocks(h, range(900))
    h.shutdown()
    counted, dirty = 0, 900
    for _ in range(3):
        eventually(lambda: disk.stats()["counters"]["destage_writes"] > 60, "some are destaged")
        counted = disk.stats()["counters"]["destage_writes"]
        assert disk.stop() == 0
        shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
        left = shown["disks"][0]["dirty_records"]
        assert left <= dirty - counted, (left, dirty, counted)
        dirty = left
        disk.start()
    assert dirty > 0, "the last start has something to do"
    log = log_of(disk)
    assert log["primary_age_is_at_least"] and log["primary_is_consistent"], log
    assert "at least" in bed.run([bed.program, "disk", "show", "disk", "--control", bed.path("disk.control")])
    destaged(disk)
    assert not log_of(disk)["primary_age_is_at_least"]
    assert disk.stop() == 0
    expect_blocks(read_file(image), range(900))


@test(forebay_only=True)
def an_end_waits_for_a_flush_that_takes_long(bed):
    _, disk, h = opened(bed, uri="model:san?latency=1ms&flush-latency=5s&inner=file:")
    write_blocks(h, range(50))
    for _ in range(2):
        for n in range(100, 1000):
            h.pread(4096, n * 8192)
    h.shutdown()
    eventually(lambda: log_of(disk)["dirty_bytes"] == 0, "all is destaged")
    assert disk.stop() == 0
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert shown["disks"][0]["dirty_records"] == 0, shown
    disk.start()
    assert "strong evidence" in disk.log(), disk.log()
    stats = disk.stats()
    assert stats["counters"]["destage_writes"] == 0 and stats["log"]["dirty_bytes"] == 0, stats
    assert stats["ring"]["blocks_found"] == stats["ring"]["blocks_kept"] > 0, stats
    assert disk.stop() == 0


@test(forebay_only=True)
def a_dirty_log_keeps_a_read_only_disk_from_its_start_until_it_is_destaged(bed):
    image, disk, h = opened(bed)
    disk_command(bed, disk, "pause", "disk")
    write_blocks(h, range(20))
    h.flush()
    h.shutdown()
    assert disk.stop() == 0
    writes = disk.command
    of_reader = [*writes[:writes.index("--mode")], "--read-only"]
    of_server = [word.replace("file:" + image, "file:" + image + "?read-only=on") for word in writes]
    assert of_server != writes
    for command in [of_reader, of_server]:
        refused = bed.run(command, code=None, timeout=30)
        assert refused.returncode == 1, refused
        for text in ["the write log of disk 'disk' holds writes that primary storage does not have", "is read-only",
                     "forebay disk flush disk"]:
            assert text in refused.stderr, "%r is not in: %s" % (text, refused.stderr)
    # The way that it names.
    disk.start()
    h = attach(disk)
    expect_blocks(of_client(h), range(20))
    h.shutdown()
    disk_command(bed, disk, "flush", "disk")
    assert disk.stop() == 0
    for command in [of_reader, of_server]:
        disk.command = command
        disk.start()
        h = attach(disk)
        assert h.is_read_only()
        expect_blocks(of_client(h), range(20))
        h.shutdown()
        assert disk.stop() == 0
