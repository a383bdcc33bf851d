"""fio writes, reads back and verifies checksums."""
from bed import MIB, need_program, test

# Small enough for two cores, larger than the caches below it.
SIZE = 64 * MIB


def verify(bed, disk, *more, rw="randrw", bs="4k", depth="32", size=SIZE):
    need_program("fio")
    bed.run(["fio", "--name=verify", "--ioengine=nbd", "--uri=" + disk.uri, "--rw=" + rw,
             "--bs=" + bs, "--iodepth=" + depth, "--size=%d" % size, "--verify=crc32c",
             "--verify_fatal=1", "--verify_backlog=512", "--randseed=7", "--output-format=terse",
             *more])


def disk_on_file(bed, **options):
    return bed.disk("file:" + bed.image("disk.raw", SIZE, "holes"), **options)


@test
def fio_verifies_write_through_with_ram_and_flash(bed):
    disk = disk_on_file(bed, ram="8MiB", flash=bed.path("flash") + ":32MiB",
                        extra=["--flash-admission", "always"])
    verify(bed, disk)


@test
def fio_verifies_write_through_with_flash_alone(bed):
    disk = disk_on_file(bed, ram="0", flash=bed.path("flash") + ":32MiB")
    verify(bed, disk)


@test
def fio_verifies_write_around(bed):
    verify(bed, disk_on_file(bed, mode="write-around", ram="16MiB"))


@test
def fio_verifies_pass_through(bed):
    verify(bed, disk_on_file(bed, mode="pass-through", ram="0"))


@test
def fio_verifies_monitor(bed):
    verify(bed, disk_on_file(bed, mode="monitor"))


@test
def fio_verifies_the_smallest_block_with_requests_that_straddle_it(bed):
    disk = disk_on_file(bed, block_size="4KiB", ram="8MiB", flash=bed.path("flash") + ":16MiB")
    verify(bed, disk, "--bsrange=512-70k", "--bs_unaligned=0", "--blockalign=512", bs="512",
           size=24 * MIB)


@test
def fio_verifies_the_largest_block(bed):
    disk = disk_on_file(bed, block_size="1MiB", ram="16MiB", flash=bed.path("flash") + ":32MiB")
    verify(bed, disk, bs="8k")


@test
def fio_verifies_a_shifted_grid(bed):
    # Sector 63 is possible where the logical block is 512 bytes, as it is through the page cache.
    image = bed.image("disk.raw", SIZE, "holes")
    disk = bed.disk("file:%s?direct=off" % image, block_size="64KiB", ram="8MiB",
                    flash=bed.path("flash") + ":16MiB", extra=["--grid-offset", "32256"])
    verify(bed, disk, "--offset=32256", bs="4k", size=32 * MIB)


@test
def fio_verifies_four_jobs_on_four_connections(bed):
    disk = disk_on_file(bed, ram="8MiB", flash=bed.path("flash") + ":16MiB")
    verify(bed, disk, "--numjobs=4", "--offset_increment=16m", "--group_reporting", size=16 * MIB)


@test
def fio_verifies_with_flushes_between(bed):
    disk = disk_on_file(bed, ram="8MiB")
    verify(bed, disk, "--fsync=16", rw="randwrite")


def write_back(bed, *extra, **more):
    return disk_on_file(bed, mode="write-back", ram="8MiB", flash=bed.path("flash") + ":32MiB",
                        extra=["--write-log", "8MiB", *extra], **more)


@test(forebay_only=True)
def fio_verifies_write_back_in_windows_without_a_write_cache(bed):
    disk = write_back(bed, "--destage-order", "window", "--write-cache", "off")
    verify(bed, disk, "--bsrange=512-40k", "--bs_unaligned=0", "--blockalign=512", bs="512",
           size=16 * MIB)
