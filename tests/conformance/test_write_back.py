"""Write-back: what was acknowledged survives kills and restarts, and reaches primary storage in the end."""
import glob
import json
import os
import threading

from bed import MIB, eventually, on_tmpfs, pattern, test
import nbd
from test_crash import Recorder, write_over_kills

LOG = ["--write-log", "4MiB"]
DEFERRED = ["--flush-semantics", "deferred", "--max-dirty-age", "1s", "--accept-data-loss"]


def write_back(bed, backend, *, extra=(), **more):
    return bed.disk(backend, ram="2MiB", flash=bed.path("pool") + ":16MiB", mode="write-back",
                    extra=[*LOG, *extra], **more)


def attach(disk):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    return h


def opened(bed, *, uri="file:", size=16 * MIB, **more):
    """A disk in write-back on a fresh image behind `uri`, with a client: image, disk, client."""
    image = bed.image("disk.raw", size)
    disk = write_back(bed, uri + image, **more)
    return image, disk, attach(disk)


def write_blocks(h, blocks):
    """A block of 4 KiB in every 8 KiB, each with a version of its own."""
    for n in blocks:
        h.pwrite(pattern(n * 8192, 4096, n + 1), n * 8192)


def expect_blocks(read, blocks):
    for n in blocks:
        assert bytes(read(n * 8192, 4096)) == pattern(n * 8192, 4096, n + 1), n


def of_client(h):
    return lambda at, length: h.pread(length, at)


def read_file(path):
    def read(at, length):
        with open(path, "rb") as f:
            f.seek(at)
            return f.read(length)
    return read


def log_of(disk):
    return disk.stats()["log"]


def destaged(disk):
    eventually(lambda: log_of(disk)["is_clean"], "everything is destaged", seconds=60)


def staging_files(bed):
    """Those of the disks in the test's pool, which nobody uses."""
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    return glob.glob(on_tmpfs("forebay-%s.staging" % shown["disks"][0]["uuid"]))


@test(forebay_only=True)
def write_back_serves_and_destages(bed):
    image, disk, h = opened(bed)
    for n in range(200):
        h.pwrite(pattern(n * 40960 + 512, 12288, n + 1), n * 40960 + 512)
    for n in range(200):
        assert bytes(h.pread(12288, n * 40960 + 512)) == pattern(n * 40960 + 512, 12288, n + 1)
    h.flush()
    destaged(disk)
    read = read_file(image)
    for n in range(200):
        assert read(n * 40960 + 512, 12288) == pattern(n * 40960 + 512, 12288, n + 1)
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def nothing_acknowledged_is_lost_by_kills_under_load_in_write_back(bed):
    lose_nothing_over_kills(bed)


@test(forebay_only=True)
def nothing_acknowledged_is_lost_by_kills_under_load_destaging_in_windows(bed):
    lose_nothing_over_kills(bed, "--destage-order", "window")


def lose_nothing_over_kills(bed, *extra):
    image = bed.image("disk.raw", 4 * MIB)
    disk = write_back(bed, "file:" + image, extra=extra)
    recorder = write_over_kills(bed, disk, times=6)
    for _ in range(2):
        h = attach(disk)
        recorder.check(lambda at, length: bytes(h.pread(length, at)))
        disk.restart()
    destaged(disk)
    recorder.check(read_file(image))
    assert disk.stop() == 0


@test(forebay_only=True)
def what_was_read_after_a_kill_is_on_primary_storage_after_a_detach(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = write_back(bed, "file:" + image)
    recorder = write_over_kills(bed, disk, times=1)
    disk.restart()
    bed.run(["nbdcopy", disk.uri, bed.path("seen")])
    disk_command(bed, disk, "detach", "disk")
    disk.was_ended = True
    assert disk.process.wait(60) == 0
    bed.run(["cmp", bed.path("seen"), image])
    recorder.check(read_file(image))


@test(forebay_only=True)
def a_log_that_is_dirty_outlives_a_kill_with_primary_storage_too_slow_to_destage(bed):
    _, disk, h = opened(bed, uri="model:san?latency=200ms&inner=file:")
    write_blocks(h, range(300))
    h.flush()
    write_blocks(h, range(300, 400))
    assert not log_of(disk)["is_clean"]
    for _ in range(3):
        disk.restart()
        h = attach(disk)
        expect_blocks(of_client(h), range(400))
    assert disk.stop() == 0


@test(forebay_only=True)
def sigterm_keeps_what_is_dirty_and_the_next_run_goes_on(bed):
    _, disk, h = opened(bed, uri="model:san?latency=200ms&inner=file:")
    write_blocks(h, range(300))
    assert not log_of(disk)["is_clean"]
    assert disk.stop() == 0
    assert not staging_files(bed), "the log is durable: no staging file is needed"
    disk.start()
    h = attach(disk)
    expect_blocks(of_client(h), range(300))
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def what_an_earlier_version_left_on_tmpfs_is_found_and_links_there_are_not_followed(bed):
    image, disk, h = opened(bed)
    # A busy machine may kill it after the log has the write as well: then another one is tried.
    for seed in range(5, 25):
        h.pwrite(pattern(0, 4096, seed), 0)
        disk.kill()
        left, = staging_files(bed)
        old = os.path.join("/dev/shm", os.path.basename(left))
        os.rename(left, old)
        disk.start()
        h = attach(disk)
        assert bytes(h.pread(4096, 0)) == pattern(0, 4096, seed)
        assert not os.path.exists(old)
        if "1 of them from the staging file" in disk.log():
            break
    else:
        raise AssertionError(disk.log())
    h.shutdown()
    assert disk.stop() == 0
    # Somebody plants links while the disk is stopped.
    precious = bed.path("precious")
    with open(precious, "w") as f:
        f.write("precious")
    os.symlink(precious, old)
    try:
        disk.start()
        assert bytes(attach(disk).pread(4096, 0)) == pattern(0, 4096, seed)
        assert disk.stop() == 0
        assert open(precious).read() == "precious"
    finally:
        os.unlink(old)


@test(forebay_only=True)
def without_the_staging_file_everything_that_was_flushed_is_there(bed):
    _, disk, h = opened(bed, uri="model:san?latency=200ms&inner=file:")
    write_blocks(h, range(100))
    h.flush()
    h.pwrite(pattern(4096, 4096, 77), 4096, nbd.CMD_FLAG_FUA)
    write_blocks(h, range(100, 120))
    disk.kill()
    for path in staging_files(bed):
        os.unlink(path)
    disk.start()
    h = attach(disk)
    expect_blocks(of_client(h), range(100))
    assert bytes(h.pread(4096, 4096)) == pattern(4096, 4096, 77)
    for n in range(100, 120):
        data = bytes(h.pread(4096, n * 8192))
        assert data in (pattern(n * 8192, 4096, n + 1), pattern(n * 8192, 4096)), n
    assert "staging file is gone" in disk.log()
    assert disk.stop() == 0


@test(forebay_only=True)
def opened_in_another_mode_a_dirty_log_is_drained_first(bed):
    image, disk, h = opened(bed)
    write_blocks(h, range(300))
    disk.kill()
    other = bed.disk("file:" + image, ram="2MiB", flash=bed.path("pool") + ":16MiB")
    h = attach(other)
    expect_blocks(of_client(h), range(300))
    h.pwrite(pattern(0, 4096, 999), 0)
    eventually(lambda: other.stats()["mode_actual"] == "write-through", "it is drained", seconds=60)
    h.flush()
    read = read_file(image)
    assert read(0, 4096) == pattern(0, 4096, 999)
    expect_blocks(read, range(1, 300))
    h.shutdown()
    assert other.stop() == 0


def disk_command(bed, disk, *words, code=0):
    return bed.run([bed.program, "disk", *words, "--control", bed.path(disk.name + ".control")],
                   code=code)


@test(forebay_only=True)
def pause_and_resume_say_what_becomes_of_destaging(bed):
    disk = bed.disk("mem:16MiB")
    for word in ("pause", "resume"):
        refused = disk_command(bed, disk, word, "disk", code=None)
        assert refused.returncode == 1 and "it has no write log, so there is no destaging" in refused.stderr, refused
    assert disk.stop() == 0
    disk = write_back(bed, "mem:16MiB")
    assert disk_command(bed, disk, "pause", "disk") == "disk disk: paused\n"
    disk_command(bed, disk, "set", "disk", "--mode", "write-through", "--wait")
    said = disk_command(bed, disk, "resume", "disk")
    assert said == "disk disk: nothing is to be destaged in this mode\n", said
    refused = disk_command(bed, disk, "pause", "disk", code=None)
    assert refused.returncode == 1 and "mode write-through has no write log" in refused.stderr, refused
    disk_command(bed, disk, "set", "disk", "--mode", "write-back", "--wait")
    assert not disk.stats()["log"]["is_paused"], "nothing of a pause is left"
    assert disk.stop() == 0


@test(forebay_only=True)
def fio_verifies_write_back(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = write_back(bed, "file:" + image)
    for more in [["--bs=4k"], ["--bs=4k", "--fsync=16"],
                 ["--bsrange=512-70k", "--bs_unaligned=0", "--blockalign=512"]]:
        fio(bed, disk, "--rw=randwrite", "--do_verify=0", *more)
        # What the log holds and what is destaged by now is one disk, also for the next run.
        disk.restart()
        fio(bed, disk, "--rw=randwrite", "--verify_only", *more)
    assert disk.stop() == 0


@test(forebay_only=True)
def fio_verifies_write_back_with_reads_among_the_writes(bed):
    disk = write_back(bed, "file:" + bed.image("disk.raw", 64 * MIB, "holes"))
    fio(bed, disk, "--rw=randrw", "--bs=4k", "--verify_backlog=512")
    assert disk.stop() == 0


def fio(bed, disk, *more):
    bed.run(["fio", "--name=verify", "--ioengine=nbd", "--uri=" + disk.uri,
             "--iodepth=32", "--size=%d" % (32 * MIB), "--verify=crc32c", "--verify_fatal=1",
             "--randseed=7", "--output-format=terse", *more])


@test(forebay_only=True)
def writes_go_on_without_primary_storage_until_the_log_is_full_and_then_wait_for_it(bed):
    primary = nbdkit_on(bed, bed.image("disk.raw", 64 * MIB))
    # Not even the time that primary storage has ends the wait.
    disk = write_back(bed, primary.uri, extra=["--backend-timeout", "1s"])
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    h.flush()
    primary.kill()
    answered = []
    for n in range(3000):
        data = nbd.Buffer.from_bytearray(bytearray(pattern(n * 8192, 4096, n + 2)))
        h.aio_pwrite(data, n * 8192, lambda error, n=n: (answered.append((n, error.value)), 1)[1])
        while h.aio_in_flight() > 32 and h.poll(2000) == 1:
            pass
        if h.aio_in_flight() > 32:
            break
    assert len(answered) > 300, "only %d writes went on" % len(answered)
    assert all(error == 0 for _, error in answered)
    assert h.aio_in_flight() > 0, "a log of 4 MiB took 3000 blocks"
    log = log_of(disk)
    assert log["writes_waiting"] > 0 and log["dirty_bytes"] > 2 * MIB, log
    primary.start()
    while h.aio_in_flight():
        assert h.poll(60000) == 1, "writers do not go on"
    assert all(error == 0 for _, error in answered)
    h.flush()
    disk_command(bed, disk, "flush", "disk")
    read = read_file(bed.path("disk.raw"))
    for n, _ in answered:
        assert read(n * 8192, 4096) == pattern(n * 8192, 4096, n + 2), n
    assert disk.stop() == 0


def nbdkit_on(bed, image):
    listen = bed.path("primary.sock")
    return bed.other("primary", ["nbdkit", "-f", "-U", listen, "file", image], "unix:" + listen)


@test(forebay_only=True)
def a_dirty_disk_whose_primary_storage_is_dead_ends_in_order(bed):
    primary = nbdkit_on(bed, bed.image("disk.raw", 16 * MIB))
    disk = write_back(bed, primary.uri)
    # What a former run may have left there is flushed first.
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    h = attach(disk)
    primary.kill()
    write_blocks(h, range(100))
    assert disk.stop(timeout=20) == 0
    primary.start()
    disk.start()
    h = attach(disk)
    expect_blocks(of_client(h), range(100))
    assert disk.stop() == 0


@test(forebay_only=True)
def the_mode_changes_both_ways_under_load(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = write_back(bed, "file:" + image)
    recorder = Recorder(disk, bed.random, 4 * MIB // 4096)
    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    for _ in range(3):
        for mode in ["write-through", "write-back", "write-only"]:
            disk_command(bed, disk, "set", "disk", "--mode", mode, "--wait")
            goal = recorder.version + 500
            eventually(lambda: recorder.version > goal, "500 more writes in " + mode)
    assert recorder.sessions == 1, "the client was thrown out"
    recorder.stop = True
    thread.join(30)
    h = attach(disk)
    recorder.check(lambda at, length: bytes(h.pread(length, at)))
    disk_command(bed, disk, "set", "disk", "--mode", "write-through", "--wait")
    h.flush()
    recorder.check(read_file(image))
    assert disk.stop() == 0


@test(forebay_only=True)
def deferred_flushes_need_consent_and_every_status_says_so(bed):
    image = bed.image("disk.raw", 16 * MIB)
    deferred = ["--flush-semantics", "deferred", "--max-dirty-age", "1s"]
    refused = bed.run([bed.program, "run", "file:" + image, "--flash", bed.path("pool") + ":16MiB",
                       "--mode", "write-back", "--nbd", "unix:" + bed.path("x.sock"), *deferred],
                      code=None)
    assert refused.returncode != 0 and "accept-data-loss" in refused.stderr
    disk = write_back(bed, "file:" + image, extra=[*deferred, "--accept-data-loss"])
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 5), 0)
    h.flush()
    eventually(lambda: log_of(disk)["is_durable"], "it is durable after a while")
    assert "DEFERRED" in disk_command(bed, disk, "show", "disk")
    assert log_of(disk)["deferred_ns"] == 10**9
    h.shutdown()
    disk.stop()
    assert "deferred" in bed.run([bed.program, "pool", "show", bed.path("pool")])


@test(forebay_only=True)
def one_pool_is_for_one_daemon(bed):
    image = bed.image("disk.raw", 16 * MIB)
    write_back(bed, "file:" + image)
    other = bed.image("other.raw", 16 * MIB)
    for command in [["run", "file:" + other, "--flash", bed.path("pool") + ":16MiB", "--nbd",
                     "unix:" + bed.path("x.sock"), "--control", bed.path("x.control")],
                    ["pool", "show", bed.path("pool")]]:
        refused = bed.run([bed.program, *command], code=None)
        assert refused.returncode == 1 and "in use by process" in refused.stderr, refused.stderr


@test(forebay_only=True)
def a_pool_tells_what_is_dirty_and_a_check_finds_rot(bed):
    _, disk, h = opened(bed, uri="model:san?latency=1s&inner=file:")
    for n in range(100):
        h.pwrite(pattern(n * 8192, 4096, n + 1), n * 8192)
        if n % 10 == 9:
            h.flush()
    disk.kill()
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert shown["disks"][0]["name"] == "disk" and shown["disks"][0]["error"] is None
    assert shown["disks"][0]["dirty_records"] == 100, shown
    assert "crashed" in bed.run([bed.program, "pool", "show", bed.path("pool")])
    assert "0 errors" in bed.run([bed.program, "pool", "check", bed.path("pool")])
    # A page of data in the log is changed.
    with open(bed.path("pool"), "r+b") as f:
        data = f.read()
        at = data.find(pattern(40 * 8192, 4096, 41))
        assert at > 0
        f.seek(at + 600)
        f.write(b"rot")
    found = bed.run([bed.program, "pool", "check", bed.path("pool")], code=1)
    assert "wrong checksum" in found, found


@test(forebay_only=True)
def a_disk_is_refused_when_the_last_write_before_an_orderly_end_is_damaged(bed):
    _, disk, h = opened(bed)
    disk_command(bed, disk, "pause", "disk")
    for n in range(9):
        h.pwrite(pattern(n << 20, 65536, n + 1), n << 20)
        h.flush()
    h.shutdown()
    assert disk.stop() == 0
    with open(bed.path("pool"), "r+b") as f:
        at = f.read().find(pattern(8 << 20, 65536, 9)[:4096])
        assert at > 0
        # The page before is the header of its group, the last one in the log.
        f.seek(at - 4096)
        f.write(bytes(bed.random.randbytes(4096)))
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert "missing" in shown["disks"][0]["error"], shown
    bed.run([bed.program, "pool", "check", bed.path("pool")], code=1)
    refused = bed.run(disk.command, code=None)
    assert refused.returncode == 1 and "missing" in refused.stderr, refused.stderr


@test(forebay_only=True)
def a_disk_with_another_primary_storage_is_refused_while_its_log_is_dirty(bed):
    _, disk, h = opened(bed)
    disk_command(bed, disk, "pause", "disk")
    h.pwrite(pattern(0, 4096, 1), 0)
    h.flush()
    assert disk.stop() == 0
    other = bed.image("other.raw", 16 * MIB)
    refused = bed.run([bed.program, "run", "file:" + other, "--name", "disk", "--mode", "write-back",
                       "--flash", bed.path("pool") + ":16MiB", *LOG, "--nbd",
                       "unix:" + bed.path("x.sock"), "--control", bed.path("x.control")], code=1)
    assert refused is not None
    disk.start()
    assert bytes(attach(disk).pread(4096, 0)) == pattern(0, 4096, 1)
    assert disk.stop() == 0


@test(forebay_only=True)
def a_disk_is_flushed_paused_resumed_and_detached(bed):
    image, disk, h = opened(bed, extra=["--max-destage-rate", "2MiB"])
    write_blocks(h, range(500))
    disk_command(bed, disk, "pause", "disk")
    assert "paused" in disk_command(bed, disk, "show", "disk")
    dirty = log_of(disk)["dirty_bytes"]
    assert dirty > MIB
    disk_command(bed, disk, "flush", "disk", code=1)
    disk_command(bed, disk, "resume", "disk")
    said = json.loads(disk_command(bed, disk, "flush", "disk", "--json"))
    assert said["clean"] and said["seconds"] > 0.2, said
    read = read_file(image)
    expect_blocks(read, range(500))
    h.pwrite(pattern(0, 4096, 9999), 0)
    disk_command(bed, disk, "detach", "disk", code=1)
    h.shutdown()
    eventually(lambda: disk.stats()["connections"] == 0, "the client is gone")
    disk_command(bed, disk, "detach", "disk")
    disk.was_ended = True
    assert disk.process.wait(30) == 0, "with its last disk the daemon ends"
    assert read(0, 4096) == pattern(0, 4096, 9999)
    assert json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))["disks"] == []


@test(forebay_only=True)
def without_a_write_cache_each_write_is_durable(bed):
    _, disk, h = opened(bed, uri="model:san?latency=1s&inner=file:", extra=["--write-cache", "off"])
    assert not h.can_flush()
    write_blocks(h, range(50))
    disk.kill()
    for path in staging_files(bed):
        os.unlink(path)
    disk.start()
    h = attach(disk)
    expect_blocks(of_client(h), range(50))
    disk.stop()
