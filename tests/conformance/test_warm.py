"""The cache on flash over restarts: it is there again, without a read of primary storage, and never older than it."""
import json
import struct

from bed import MIB, eventually, pattern, test
from test_write_back import attach, disk_command, nbdkit_on

SIZE = 16 * MIB
BLOCK = 8192
CACHED = 2 * MIB
MODES = {"write-through": [], "write-back": ["--write-log", "4MiB"]}


def start(bed, mode, *, primary=None, flash="16MiB", extra=()):
    primary = primary or "file:" + bed.image("%s.raw" % mode, SIZE)
    return bed.disk(primary, ram="0", flash="%s:%s" % (bed.path(mode), flash), mode=mode, name=mode,
                    extra=[*MODES[mode], "--flash-admission", "always", "--bypass-sequential", "off", *extra])


def ring(disk):
    return disk.stats()["ring"]


def fill(disk, h, start=0, length=CACHED):
    """Reads blocks until flash has them."""
    def is_there():
        for at in range(start, start + length, BLOCK):
            h.pread(BLOCK, at)
        before = disk.stats()["counters"]["backend_reads"]
        for at in range(start, start + length, BLOCK):
            h.pread(BLOCK, at)
        return disk.stats()["counters"]["backend_reads"] == before
    eventually(is_there, "the cache has %d blocks" % (length // BLOCK))


def recorded(disk):
    """Everything that is in the cache is durably in the ring, and no mark is in its way."""
    def is_recorded():
        now = ring(disk)
        return now["state"] == "recorded" and now["regions_marked"] == 0 and now["last_page"] > 0
    eventually(is_recorded, "no region is marked", seconds=60)


def expect(h, version_of):
    for at in range(0, CACHED, BLOCK):
        assert bytes(h.pread(BLOCK, at)) == pattern(at, BLOCK, version_of(at)), "byte %d" % at


@test(forebay_only=True)
def a_restart_serves_from_flash_without_primary_storage(bed):
    for mode in MODES:
        disk = start(bed, mode)
        h = attach(disk)
        fill(disk, h)
        h.shutdown()
        assert disk.stop() == 0
        disk.start()
        found = ring(disk)
        assert found["is_warm"] and found["blocks_found"] == found["blocks_kept"] >= CACHED // BLOCK, found
        h = attach(disk)
        expect(h, lambda at: 0)
        counters = disk.stats()["counters"]
        assert counters["backend_reads"] == 0, counters
        assert counters["read_hits_flash"] == CACHED // BLOCK, counters
        assert "blocks (100 %) are kept after an end in order" in events(bed, disk)
        h.shutdown()
        assert disk.stop() == 0


@test(forebay_only=True)
def writes_between_restarts_are_never_served_stale(bed):
    for mode in MODES:
        disk = start(bed, mode)
        h = attach(disk)
        fill(disk, h)
        versions = {}
        for round_ in range(6):
            for at in range(round_ * BLOCK, CACHED, 7 * BLOCK):
                versions[at] = round_ + 1
                h.pwrite(pattern(at, BLOCK, versions[at]), at)
            if round_ % 2:
                h.flush()
            if round_ % 3 == 2:
                h.shutdown()
                assert disk.stop() == 0
                disk.start()
            else:
                disk.restart()
            h = attach(disk)
            expect(h, lambda at: versions.get(at, 0))
            fill(disk, h)
        h.shutdown()


@test(forebay_only=True)
def a_kill_leaves_the_cache_warm_but_for_what_was_being_written(bed):
    for mode in MODES:
        disk = start(bed, mode)
        h = attach(disk)
        fill(disk, h)
        fill(disk, h, 8 * MIB, MIB)
        recorded(disk)
        # Another change, and its record, are behind everything before.
        page = ring(disk)["last_page"]
        fill(disk, h, 12 * MIB, 64 * BLOCK)
        eventually(lambda: ring(disk)["last_page"] > page, "the last blocks are recorded")
        h.pwrite(pattern(0, BLOCK, 1), 0)
        disk.restart()
        found = ring(disk)
        assert found["is_warm"], events(bed, disk)
        # The block, or the region of 64 KiB around it, is gone, and nothing else of what was recorded.
        assert 0 < found["blocks_found"] - found["blocks_kept"] <= 8 or mode == "write-back", found
        assert found["blocks_kept"] >= (CACHED + MIB) // BLOCK - 8, found
        h = attach(disk)
        expect(h, lambda at: 1 if at == 0 else 0)
        counters = disk.stats()["counters"]
        assert counters["backend_reads"] <= 8, counters
        h.shutdown()
        assert disk.stop() == 0


@test(forebay_only=True)
def storage_that_was_put_back_is_told_by_what_the_cache_has_of_it(bed):
    """After a kill there is no sample of primary storage, and an export has no times."""
    # What is there by then. Of a log that goes on over zeroes a few could have been discarded, and not all.
    other, nothing = (lambda block: pattern(block, BLOCK, 7)), (lambda block: bytes(BLOCK))
    for mode, at, now in [("write-through", 4 * MIB, other), ("write-back", 6 * MIB, other), ("write-back", 6 * MIB, nothing)]:
        image = bed.image("export.raw", SIZE)
        primary = nbdkit_on(bed, image)
        disk = start(bed, mode, primary=primary.uri, extra=["--backend-exclusive"])
        h = attach(disk)
        fill(disk, h, at)
        recorded(disk)
        page = ring(disk)["last_page"]
        fill(disk, h, 12 * MIB, 64 * BLOCK)
        eventually(lambda: ring(disk)["last_page"] > page, "the last blocks are recorded")
        if mode == "write-back":
            disk_command(bed, disk, "pause", mode)
            h.pwrite(pattern(0, BLOCK, 1), 0)
        disk.restart()
        assert ring(disk)["is_warm"], events(bed, disk)
        disk.kill()
        with open(image, "r+b") as f:
            f.seek(at)
            for block in range(at, at + CACHED, BLOCK):
                f.write(now(block))
        if mode == "write-back":
            refused = bed.run(disk.command, code=None)
            assert refused.returncode == 1 and "sampled ranges hold other bytes" in refused.stderr, refused.stderr
            bed.run([bed.program, "disk", "resolve", mode, "--pool", bed.path(mode), "--use-log"])
        disk.start()
        assert not ring(disk)["is_warm"], events(bed, disk)
        h = attach(disk)
        assert bytes(h.pread(BLOCK, 0)) == pattern(0, BLOCK, int(mode == "write-back"))
        for block in range(at, at + CACHED, BLOCK):
            assert bytes(h.pread(BLOCK, block)) == now(block), block
        h.shutdown()
        eventually(lambda: disk.stats()["connections"] == 0, "the client is gone")
        disk_command(bed, disk, "detach", mode)
        disk.was_ended = True
        assert disk.process.wait(60) == 0 and primary.stop() == 0


@test(forebay_only=True)
def another_size_or_block_starts_empty(bed):
    disk = start(bed, "write-through")
    h = attach(disk)
    fill(disk, h)
    h.shutdown()
    assert disk.stop() == 0
    disk.command += ["--block-size", "16KiB"]
    disk.start()
    assert not ring(disk)["is_warm"]
    h = attach(disk)
    expect(h, lambda at: 0)
    h.shutdown()
    assert disk.stop() == 0
    disk.start()
    assert ring(disk)["is_warm"]
    assert disk.stop() == 0


@test(forebay_only=True)
def a_read_only_run_after_a_kill_marks_the_ring_that_it_begins(bed):
    """What the killed run wrote may be on primary storage only until that loses its power."""
    disk = start(bed, "write-through")
    given = disk.command
    h = attach(disk)
    h.pwrite(pattern(0, BLOCK, 1), 0)
    disk.kill()
    disk.command = [*given, "--block-size", "16KiB", "--read-only"]
    for run in range(2):
        disk.start()
        found = ring(disk)
        assert found["regions_marked"] == found["regions"] > 0 and found["is_warm"] == (run > 0), found
        h = attach(disk)
        fill(disk, h)
        expect(h, lambda at: int(at == 0))
        h.shutdown()
        assert disk.stop() == 0
    # The next one that writes believes none of it, and flushes primary storage.
    disk.command = [*given, "--block-size", "16KiB"]
    disk.start()
    found = ring(disk)
    assert found["blocks_found"] > 0 and found["blocks_kept"] == 0, found
    recorded(disk)
    assert disk.stop() == 0
    disk.command = [*given, "--block-size", "32KiB", "--read-only"]
    for run in range(2):
        disk.start()
        found = ring(disk)
        assert found["regions_marked"] == 0 and found["blocks_kept"] == found["blocks_found"], found
        assert (found["blocks_kept"] > 0) == (run > 0), found
        h = attach(disk)
        fill(disk, h)
        h.shutdown()
        assert disk.stop() == 0


def events(bed, disk):
    return bed.run([bed.program, "events", disk.name, "--control", bed.path(disk.name + ".control")])


def told(bed, mode):
    """What the pool says of the ring, with nobody using it."""
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path(mode), "--json"]))
    return shown["disks"][0]["ring"]


@test(forebay_only=True)
def a_pool_that_nobody_uses_tells_what_a_restart_will_find(bed):
    for mode in MODES:
        disk = start(bed, mode)
        h = attach(disk)
        fill(disk, h)
        recorded(disk)
        h.shutdown()
        assert disk.stop() == 0
        stopped = told(bed, mode)
        assert stopped["cold"] is None and stopped["closed"], stopped
        assert stopped["blocks"] == stopped["kept"] >= CACHED // BLOCK, stopped
        assert "0 errors, 0 warnings" in bed.run([bed.program, "pool", "check", bed.path(mode)])
        disk.start()
        h = attach(disk)
        h.pwrite(pattern(0, BLOCK, 1), 0)
        disk.kill()
        killed = told(bed, mode)
        assert killed["cold"] is None and killed["generation"] >= stopped["generation"], killed
        # In write-back the ring may hear of a write later than the log, which a start looks at as well.
        assert mode == "write-back" or not killed["closed"], killed
        assert killed["kept"] < killed["blocks"], killed
        text = bed.run([bed.program, "pool", "show", bed.path(mode)])
        assert "blocks recorded by generation %d, " % killed["generation"] in text, text
        assert killed["closed"] != ("not ended in order" in text), text
        disk.start()
        found = ring(disk)
        assert (found["blocks_found"], found["blocks_kept"]) == (killed["blocks"], killed["kept"]), (found, killed)
        assert disk.stop() == 0


@test(forebay_only=True)
def a_check_of_the_pool_finds_a_damaged_index(bed):
    disk = start(bed, "write-through")
    h = attach(disk)
    fill(disk, h)
    recorded(disk)
    h.shutdown()
    assert disk.stop() == 0
    with open(bed.path("write-through"), "r+b") as f:
        data = f.read()
        pages = {}
        for at in range(0, len(data), 4096):
            if data[at:at + 8] == b"FBRINGPG":
                number, durable, tail = struct.unpack_from("<QQQ", data, at + 48)
                pages[number] = (at, durable, tail)
        _, durable, tail = pages[max(pages)]
        # One that the last page claims, and that counts.
        f.seek(pages[(durable + tail) // 2][0] + 2000)
        f.write(b"rot")
    shown = told(bed, "write-through")
    assert "is missing or damaged" in shown["cold"] and shown["is_damaged"], shown
    checked = bed.run([bed.program, "pool", "check", bed.path("write-through")], code=1)
    assert "error: the cache of disk 'write-through' starts empty: page" in checked, checked
    assert bed.run_unread([bed.program, "pool", "check", bed.path("write-through")]).returncode == 1
    disk.start()
    assert not ring(disk)["is_warm"]
    expect(attach(disk), lambda at: 0)
    assert disk.stop() == 0
