"""A guest whose partition begins at sector 63, on a disk with a write log: what it is told, and what it costs."""
from bed import MIB, pattern, test
from test_write_back import attach, destaged, disk_command, write_back

START = 63 * 512
SIZE = 64 * MIB


def write(disk, version, count=200):
    """Pages of the guest, none beside another one."""
    h = attach(disk)
    for n in range(count):
        h.pwrite(pattern(START + n * 16384, 4096, version), START + n * 16384)
    h.flush()
    h.shutdown()


def holds(disk, version, count=200):
    h = attach(disk)
    for n in range(count):
        assert bytes(h.pread(4096, START + n * 16384)) == pattern(START + n * 16384, 4096, version), n
    h.shutdown()


def said(bed):
    """The events of this run."""
    return bed.run([bed.program, "events", "disk", "--control", bed.path("disk.control"), *bed.servers[-1].since()])


def destage_writes(disk):
    return disk.stats()["counters"]["destage_writes"]


def records(disk):
    return disk.stats()["log"]["last_sequence"]


@test(forebay_only=True)
def a_guest_off_the_grid_of_a_write_log_is_destaged_with_one_io_a_write_and_told_the_grid(bed):
    image = bed.image("disk.raw", SIZE)
    disk = write_back(bed, "file:" + image)
    for version in range(1, 22):
        write(disk, version)
    destaged(disk)
    assert 'set grid-offset = "3584"' in said(bed), said(bed)
    before, logged = destage_writes(disk), records(disk)
    write(disk, 50)
    destaged(disk)
    # A write that a group of the log has no room for is two records. They lie in one batch and are one I/O, or in two.
    divided = records(disk) - logged - 200
    assert 0 <= destage_writes(disk) - before - 200 <= divided, (destage_writes(disk) - before, divided)
    with open(image, "rb") as f:
        f.seek(START)
        assert f.read(4096) == pattern(START, 4096, 50)
    # With a log that is not empty the grid stays for one more run.
    disk_command(bed, disk, "pause", "disk")
    write(disk, 51)
    assert disk.stop() == 0
    disk.command += ["--grid-offset", "3584"]
    disk.start()
    assert "the block grid is at byte offset 0 in this run" in said(bed), said(bed)
    holds(disk, 51)
    destaged(disk)
    assert disk.stop() == 0
    for how in ["stopped", "killed"]:
        disk.start()
        assert "the block grid is at" not in said(bed), said(bed)
        has_moved = "the block grid has changed from byte offset 0 to 3584" in said(bed)
        assert has_moved == (how == "stopped") and "contradicts itself" not in said(bed), said(bed)
        holds(disk, 51)
        before = destage_writes(disk)
        write(disk, 51)
        destaged(disk)
        assert destage_writes(disk) - before == 200, destage_writes(disk) - before
        if how == "stopped":
            assert disk.stop() == 0
        else:
            disk.kill()
    disk.start()
    holds(disk, 51)
    assert disk.stop() == 0


@test(forebay_only=True)
def a_log_on_the_grid_of_larger_blocks_goes_on_with_smaller_ones(bed):
    disk = write_back(bed, "file:" + bed.image("disk.raw", SIZE))
    assert disk.stop() == 0
    given = disk.command
    for version, (before, after) in enumerate([("64KiB", "16KiB"), ("32KiB", "4KiB"), ("4KiB", "64KiB")], 1):
        offset = START % {"64KiB": 65536, "32KiB": 32768, "4KiB": 4096}[before]
        disk.command = [*given, "--block-size", before, "--grid-offset", str(offset)]
        disk.start()
        disk_command(bed, disk, "pause", "disk")
        write(disk, version)
        assert disk.stop() == 0
        disk.command = [*given, "--block-size", after]
        disk.start()
        holds(disk, version)
        destaged(disk)
        assert disk.stop() == 0
