"""Block devices as primary storage and as flash: loop devices here, where the machine has them."""
import contextlib
import fcntl
import os
import subprocess

from bed import KIB, MIB, Skip, eventually, pattern, test
from test_refusals import refused
from traces import write_msr
import nbd


@contextlib.contextmanager
def loop_device(image, *options):
    """A loop device over a file, for the time of a `with`."""
    done = subprocess.run(["losetup", "--find", "--show", *options, image], capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise Skip("no loop devices on this machine: " + done.stderr.strip())
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def client(disk):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    return h


def on_device(device, offset, length):
    """What a device holds, past what this side of the page cache may remember."""
    with open(device, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        f.seek(offset)
        return f.read(length)


@test(forebay_only=True)
def a_device_with_data_or_that_shows_primary_storage_is_no_flash(bed):
    at = ["--ram", "1MiB", "--nbd", "unix:" + bed.path("s"), "--control", bed.path("c"),
          "--state-dir", bed.path("state")]
    image = bed.image("device.raw", 256 * MIB, "holes")
    with open(image, "r+b") as f:
        f.seek(256 * MIB - 512)
        f.write(b"EFI PART")  # as the copy of a partition table at the end
    with loop_device(image) as device:
        flash = ["--flash", device + ":32MiB"]
        refused(bed, ["run", "file:" + image, *at, *flash], "are one and the same", code=1)
        refused(bed, ["run", "block:" + device, *at, "--flash", image + ":32MiB"], "are one and the same", code=1)
        refused(bed, ["run", "mem:1MiB", *at, *flash], "not Forebay's at byte 268431360", "blkdiscard " + device, code=1)
        assert on_device(device, 0, MIB) == bytes(MIB), "it was written to"
        bed.run(["blkdiscard", device])
        disk = bed.disk("mem:1MiB", ram="1MiB", flash=device + ":32MiB")
        assert disk.stop() == 0


@test(forebay_only=True)
def a_block_device_is_served_with_flash_on_another(bed):
    primary, pool = bed.image("primary.raw", 16 * MIB), bed.image("pool.raw", 36 * MIB, "holes")
    with loop_device(primary) as device, loop_device(pool) as flash:
        disk = bed.disk("block:" + device, ram="0", flash=flash + ":32MiB",
                        extra=["--flash-admission", "always", "--bypass-sequential", "off"])
        h = client(disk)
        assert h.get_size() == 16 * MIB
        h.pwrite(pattern(MIB, 64 * KIB, 1), MIB)
        h.pwrite(pattern(2 * MIB + 512, 512, 1), 2 * MIB + 512, nbd.CMD_FLAG_FUA)
        h.zero(64 * KIB, 3 * MIB)
        h.trim(64 * KIB, 4 * MIB, nbd.CMD_FLAG_FUA)

        def served_from_flash():  # a fill is left out while flash is busy: asked for again
            for at in range(8 * MIB, 12 * MIB, 64 * KIB):
                assert bytes(h.pread(64 * KIB, at)) == pattern(at, 64 * KIB), "wrong at %d" % at
            return disk.stats()["counters"]["read_hits_flash"] >= 64

        eventually(served_from_flash, "reads are answered from flash")
        assert bytes(h.pread(64 * KIB, MIB)) == pattern(MIB, 64 * KIB, 1)
        assert disk.stop() == 0
        assert on_device(device, MIB, 64 * KIB) == pattern(MIB, 64 * KIB, 1)
        assert on_device(device, 2 * MIB, 1536) == (
            pattern(2 * MIB, 512) + pattern(2 * MIB + 512, 512, 1) + pattern(2 * MIB + 1024, 512))
        assert on_device(device, 3 * MIB, 64 * KIB) == bytes(64 * KIB)
        assert on_device(device, 5 * MIB, MIB) == pattern(5 * MIB, MIB)


@test(forebay_only=True)
def a_discard_reaches_a_device(bed):
    image = bed.image("primary.raw", 16 * MIB)
    with loop_device(image) as device:
        disk = bed.disk("block:" + device, ram="4MiB")
        h = client(disk)
        h.flush()
        before = os.stat(image).st_blocks
        for _ in range(2):  # the second one when all is said of what the device can do
            h.trim(4 * MIB + KIB, 4 * MIB - 512)
        h.flush()
        assert os.stat(image).st_blocks <= before - 4 * MIB // 512, "nothing was given back"
        assert bytes(h.pread(64 * KIB, 3 * MIB)) == pattern(3 * MIB, 64 * KIB)
        assert bytes(h.pread(64 * KIB, 9 * MIB)) == pattern(9 * MIB, 64 * KIB)
        assert disk.stop() == 0


@test(forebay_only=True)
def a_device_that_refuses_each_write_is_refused_or_read(bed):
    with loop_device(bed.image("primary.raw", 16 * MIB), "--read-only") as device:
        at = ["--ram", "1MiB", "--nbd", "unix:" + bed.path("s"), "--control", bed.path("c"),
              "--state-dir", bed.path("state")]
        refused(bed, ["run", "block:" + device, *at], "the device is read-only", code=1)
        disk = bed.disk("block:%s?read-only=on" % device, ram="1MiB")
        h = client(disk)
        assert h.is_read_only() and bytes(h.pread(4 * KIB, MIB)) == pattern(MIB, 4 * KIB)
        assert disk.stop() == 0


@test(forebay_only=True)
def a_write_smaller_than_the_blocks_of_a_device_keeps_its_neighbours(bed):
    with loop_device(bed.image("primary.raw", 16 * MIB), "--sector-size", "4096") as device:
        disk = bed.disk("block:" + device, ram="4MiB")
        h = client(disk)
        h.pwrite(pattern(MIB + 512, 5 * KIB, 1), MIB + 512)
        expected = (pattern(MIB, 512) + pattern(MIB + 512, 5 * KIB, 1)
                    + pattern(MIB + 512 + 5 * KIB, 2 * KIB + 512))
        assert bytes(h.pread(8 * KIB, MIB)) == expected
        assert disk.stop() == 0
        assert on_device(device, MIB, 8 * KIB) == expected


@test(forebay_only=True)
def a_device_has_what_was_acknowledged_after_a_kill(bed):
    primary, pool = bed.image("primary.raw", 16 * MIB), bed.image("pool.raw", 12 * MIB, "holes")
    with loop_device(primary) as device, loop_device(pool) as flash:
        disk = bed.disk("block:" + device, ram="1MiB", flash=flash + ":8MiB")
        for version in range(1, 4):
            h = client(disk)
            for at in range(0, 8 * MIB, 64 * KIB):
                h.pwrite(pattern(at, 64 * KIB, version), at)
            disk.restart()
            h = client(disk)
            for at in range(0, 8 * MIB, 64 * KIB):
                assert bytes(h.pread(64 * KIB, at)) == pattern(at, 64 * KIB, version)


@test(forebay_only=True)
def devices_that_are_in_use_too_small_or_somebodys_are_refused(bed):
    primary, pool = bed.image("primary.raw", 16 * MIB), bed.image("pool.raw", 12 * MIB, "holes")
    alien = bed.image("alien.raw", 16 * MIB)
    with loop_device(primary) as device, loop_device(pool) as flash, loop_device(alien) as other:
        at = ["--ram", "1MiB", "--nbd", "unix:" + bed.path("second.sock"),
              "--control", bed.path("second.control")]
        refused(bed, ["run", "mem:16MiB", *at, "--flash", flash + ":10MiB"], flash, "12 MiB", "13 MiB")
        refused(bed, ["run", "mem:16MiB", *at, "--flash", other + ":8MiB"], other, "wipefs")
        refused(bed, ["run", "file:" + device, *at], device, "block:")
        disk = bed.disk("block:" + device, ram="1MiB", flash=flash + ":8MiB")
        refused(bed, ["run", "block:" + device, *at], device, "in use")
        refused(bed, ["run", "mem:16MiB", *at, "--flash", flash + ":8MiB"], flash, "in use")
        assert bytes(client(disk).pread(MIB, 0)) == pattern(0, MIB)
        assert on_device(other, 0, MIB) == pattern(0, MIB), "untouched"


@test(forebay_only=True, timeout=120)
def a_device_that_somebody_looks_at_is_served_once_it_is_let_go_of(bed):
    with loop_device(bed.image("primary.raw", 16 * MIB)) as device:
        config = 'control = "%s"\n' % bed.path("serve.control")
        for name, backend in [("device", "block:" + device), ("memory", "mem:16MiB")]:
            config += '[[disk]]\nname = "%s"\nbackend = "%s"\nram = "2MiB"\n' % (name, backend)
        config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("all.sock")
        listed = [bed.program, "disk", "list", "--control", bed.path("serve.control")]
        with open(device, "rb") as looks:  # as udev does while it handles an event
            fcntl.flock(looks, fcntl.LOCK_SH)
            daemon = bed.serve(config, ["unix:" + bed.path("all.sock")])
            assert "disk device: NOT SERVED" in daemon.said and "wait until" in daemon.said, daemon.said
        eventually(lambda: "NOT SERVED" not in bed.run(listed), "it is served by itself", 30)
        assert daemon.stop() == 0


@test(forebay_only=True)
def a_loop_device_without_direct_io_is_the_page_cache(bed):
    told = 0  # events of former runs are shown, too
    for how in ("off", "on"):
        with loop_device(bed.image(how + ".raw", 16 * MIB), "--direct-io=" + how) as device:
            with open("/sys/block/%s/loop/dio" % os.path.basename(device)) as file:
                told += file.read().strip() == "0"
            disk = bed.disk("block:" + device, flash=bed.path(how) + ":64MiB", mode="write-back",
                            extra=["--write-log", "16MiB", "--destage-order", "strict"])
            said = bed.run([bed.program, "events", "--control", bed.path("disk.control")])
            assert said.count("through the page cache of this host") == told, said
            assert disk.stop() == 0


@test(forebay_only=True)
def a_result_is_written_over_no_device(bed):
    trace, image = write_msr(bed, "t.msr", 100), bed.image("device.raw", 4 * MIB)
    with loop_device(image) as device:
        before = on_device(device, 0, 4 * MIB)
        replay = ["trace", "replay", trace, "--target", "mem:4MiB"]
        for command in (
                ["trace", "convert", trace, device, "--to", "fbt"], [*replay, "--json", device], [*replay, "--html", device]):
            said = bed.run([bed.program, *command], code=None)
            assert said.returncode == 1 and "it is a block device" in said.stderr, said
        assert on_device(device, 0, 4 * MIB) == before
