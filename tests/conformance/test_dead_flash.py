"""Flash that dies wholly, under a write log: every I/O on it fails from one moment on."""
import contextlib
import os
import signal
import time

from bed import MIB, eventually, pattern, test
import nbd
from test_block import loop_device
from test_mount import fuse, unmount
from test_primary import nbdkit
from test_warm import events
from test_write_back import attach, disk_command, read_file, write_back, write_blocks

BLOCKS = 40


@contextlib.contextmanager
def mortal_flash(bed):
    """A device, and the file whose presence makes all I/O on it fail."""
    trigger = bed.path("dead")
    image = bed.image("pool.raw", 40 * MIB, "holes")
    server = nbdkit(bed, "--filter=error", "file", image, "error=EIO", "error-rate=100%", "error-file=" + trigger,
                    name="flash")
    process, path = fuse(bed, server)
    with loop_device(path) as device:
        yield device, trigger
    if os.path.exists(trigger):
        os.unlink(trigger)
    unmount(bed, process, path)


def die(trigger):
    open(trigger, "w").close()


@test(forebay_only=True)
def what_memory_has_reaches_primary_storage_and_the_log_is_never_used_again(bed):
    image = bed.image("disk.raw", 16 * MIB)
    with mortal_flash(bed) as (device, trigger):
        disk = bed.disk("file:" + image, ram="2MiB", flash=device + ":16MiB", mode="write-back",
                        extra=["--write-log", "4MiB"])
        disk_command(bed, disk, "pause", "disk")
        h = attach(disk)
        write_blocks(h, range(BLOCKS // 2))
        h.flush()
        die(trigger)
        write_blocks(h, [BLOCKS // 2])
        try:
            h.flush()
            raise AssertionError("a flush that the log could not make durable was acknowledged")
        except nbd.Error as error:
            assert error.errno == "EIO", error
        # The log is known to be dead: writes wait until it is drained, which is paused.
        answered = []
        for n in range(BLOCKS // 2 + 1, BLOCKS):
            data = nbd.Buffer.from_bytearray(bytearray(pattern(n * 8192, 4096, n + 1)))
            h.aio_pwrite(data, n * 8192, lambda error, n=n: (answered.append((n, error.value)), 1)[1])
        disk_command(bed, disk, "resume", "disk")
        while len(answered) < BLOCKS // 2 - 1:
            assert h.poll(30_000) == 1, "writes wait for ever: %s" % answered
        assert all(error == 0 for _, error in answered), answered
        eventually(lambda: disk.stats()["mode_actual"] == "write-through", "the log is drained from memory")
        assert "flash is dead: what memory has is written" in events(bed, disk)
        h.flush()
        read = read_file(image)
        for n in range(BLOCKS):
            assert read(n * 8192, 4096) == pattern(n * 8192, 4096, n + 1), "block %d" % n
        # The disk is served without its flash, and ends in order.
        h.pwrite(pattern(0, 4096, 99), 0)
        h.flush()
        h.shutdown()
        assert disk.stop() == 0
        before = read_file(image)(0, 16 * MIB)
        assert before[:4096] == pattern(0, 4096, 99)
        # It comes back to life: what it holds is of the past.
        os.unlink(trigger)
        result = bed.run(disk.command, code=None, timeout=30)
        assert result.returncode == 1, result.stderr
        assert "the pool knows none above 2" in result.stderr, result.stderr
        assert read_file(image)(0, 16 * MIB) == before
    # Another flash: there is nothing to take over.
    fresh = write_back(bed, "file:" + image, name="again")
    h = attach(fresh)
    for n in range(1, BLOCKS):
        assert bytes(h.pread(4096, n * 8192)) == pattern(n * 8192, 4096, n + 1), "block %d" % n
    h.shutdown()
    assert fresh.stop() == 0


@test(forebay_only=True)
def writes_that_were_not_acknowledged_stop_no_disk(bed):
    image = bed.image("disk.raw", 16 * MIB)
    with mortal_flash(bed) as (device, trigger):
        disk = bed.disk("file:" + image, ram="2MiB", flash=device + ":16MiB", mode="write-back",
                        extra=["--write-log", "4MiB", "--write-cache", "off"])
        h = attach(disk)
        die(trigger)
        try:
            h.pwrite(pattern(0, 4096, 1), 0)
            # The log was given up before the write came, because no segment could be leased: primary storage has it.
            assert read_file(image)(0, 4096) == pattern(0, 4096, 1), "acknowledged without being durable"
        except nbd.Error as error:
            assert error.errno == "EIO", error
        eventually(lambda: disk.stats()["mode_actual"] == "write-through", "the log is given up")
        h.pwrite(pattern(8192, 4096, 2), 8192)
        assert read_file(image)(8192, 4096) == pattern(8192, 4096, 2)
        h.shutdown()
        assert disk.stop() == 0


@test(forebay_only=True)
def flash_that_hangs_does_not_hold_up_the_end(bed):
    image = bed.image("disk.raw", 16 * MIB)
    server = nbdkit(bed, "file", bed.image("pool.raw", 64 * MIB, "holes"), name="flash")
    process, path = fuse(bed, server)
    # No cache on it: nothing of the disk is to be written there at its end but how it was left.
    disk = bed.disk("file:" + image, ram="2MiB", flash=path + ":4MiB", mode="write-back", extra=["--write-log", "4MiB"])
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    h.flush()
    disk_command(bed, disk, "flush", "disk")
    h.shutdown()
    eventually(lambda: disk.stats()["log"]["dirty_bytes"] == 0, "it is destaged")
    process.send_signal(signal.SIGSTOP)
    try:
        disk.was_ended = True
        disk.process.send_signal(signal.SIGTERM)
        eventually(lambda: "it did not end well" in disk.log(), "the end says what hangs", 50)
    finally:
        process.send_signal(signal.SIGCONT)
    # What FUSE handed to its server before that hung keeps the kernel from letting the process go.
    assert disk.process.wait(50) == 1, disk.log()
    assert "does not answer" in disk.log() and "'disk'" in disk.log(), disk.log()
    disk.start()
    h = attach(disk)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1)
    h.shutdown()
    assert disk.stop() == 0
    unmount(bed, process, path)


@test(forebay_only=True)
def a_cache_whose_flash_hangs_is_noted_as_old_beside_primary_storage(bed):
    image = bed.image("disk.raw", 16 * MIB)
    server = nbdkit(bed, "file", bed.image("pool.raw", 64 * MIB, "holes"), name="flash")
    process, path = fuse(bed, server)
    disk = bed.disk("file:" + image, ram="1MiB", flash=path + ":16MiB")
    h = attach(disk)
    for _ in range(2):
        for at in range(0, 8 * MIB, MIB):
            h.pread(MIB, at)
    process.send_signal(signal.SIGSTOP)
    try:
        # It has to be known that the bytes in the cache are old before new ones are on primary storage.
        h.pwrite(pattern(0, 4096, 1), 0)
        said = events(bed, disk)
        assert "must not be used again" not in said, said
        disk.was_ended = True
        disk.process.kill()
    finally:
        process.send_signal(signal.SIGCONT)
    disk.process.wait(50)
    disk.start()
    said = events(bed, disk)
    assert "the flash died and the disk went on without it" in said, said
    h = attach(disk)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1)
    h.shutdown()
    assert disk.stop() == 0
    unmount(bed, process, path)


def index_writes(disk):
    return disk.stats()["counters"]["ring_writes"]


def index_rests(disk):
    writes = index_writes(disk)
    time.sleep(1.5)
    return index_writes(disk) == writes


def an_end_with_a_log_that_flash_does_not_read_back(bed, size, told):
    """On flash of which this much is the disk's, 12 MiB of it the log; what its end tells."""
    image = bed.image("disk.raw", 16 * MIB)
    with mortal_flash(bed) as (device, trigger):
        disk = bed.disk("file:" + image, ram="1MiB", flash=device + ":" + size, mode="write-back",
                        extra=["--write-log", "12MiB"])
        disk_command(bed, disk, "pause", "disk")
        h = attach(disk)
        blocks, before = range(8 * MIB // 8192), index_writes(disk)
        write_blocks(h, blocks)
        h.flush()
        # The index tells of a change a second later. One on its way would find flash dead before the end does.
        if size != "12MiB":
            eventually(lambda: index_writes(disk) > before, "the index tells of the writes")
        eventually(lambda: index_rests(disk), "the index of the cache has all that changed")
        die(trigger)
        with open(os.path.join(bed.path("fuse"), "disk.img"), "rb") as file:
            os.fsync(file.fileno())
            # Nothing of it is in the host's memory.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def reads(n):
            try:
                h.pread(4096, n * 8192)
                return True
            except nbd.Error as error:
                assert error.errno == "EIO", error
                return False

        assert not all(reads(n) for n in blocks), "all of it is in memory"
        state = disk.stats()["log"]["state"]
        assert state == "paused", "it is known to be lost already: " + state
        h.shutdown()
        code = disk.stop()
        log = disk.log()
        assert code == 1, "%s: %s" % (code, log)
        assert told in log and "'disk'" in log, log
        assert "durable, in the write log" not in log, log
        # A device that works again has everything. That a cache cannot be believed, which only the sidecar could be told, wants a
        # decision.
        os.unlink(trigger)
        bed.run([bed.program, "disk", "resolve", "disk", "--pool", device, "--use-log"])
        disk.restart()
        h = attach(disk)
        for n in blocks:
            assert bytes(h.pread(4096, n * 8192)) == pattern(n * 8192, 4096, n + 1), "block %d" % n
        h.shutdown()
        assert disk.stop() == 0


@test(forebay_only=True)
def an_end_says_that_flash_does_not_read_the_log_back(bed):
    an_end_with_a_log_that_flash_does_not_read_back(bed, "12MiB", "flash failed to read its write log")


@test(forebay_only=True)
def an_end_says_that_no_start_will_believe_a_log_whose_flash_is_of_the_past(bed):
    # The index of the cache cannot be written either, and its pool cannot note that.
    an_end_with_a_log_that_flash_does_not_read_back(bed, "16MiB", "noted beside primary storage that the log is of the past")
