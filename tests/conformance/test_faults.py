"""Primary storage and flash that fail: that request gets an error, others go on, nothing wrong is cached."""
import errno
import mmap
import os

from bed import MIB, eventually, pattern, test
import nbd


def client(disk):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    return h


def error_of(call):
    try:
        call()
    except nbd.Error as error:
        return error.errnum
    raise AssertionError("an error was expected")


@test(forebay_only=True)
def a_read_error_is_eio_for_that_request_only_and_nothing_is_cached(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=error,op=read,range=1MiB+4KiB,times=2&inner=file:" + image,
                    extra=["--grid-offset", "0"])
    h = client(disk)
    assert error_of(lambda: h.pread(4096, MIB)) == errno.EIO
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096)
    assert error_of(lambda: h.pread(512, MIB + 512)) == errno.EIO
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096), "the fault is over"
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096), "now from the cache"


@test(forebay_only=True)
def a_write_error_is_eio_and_the_cache_does_not_keep_what_failed(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=error,op=write,range=1MiB+4KiB,times=1&inner=file:" + image)
    h = client(disk)
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096)
    assert error_of(lambda: h.pwrite(pattern(MIB, 4096, 1), MIB)) == errno.EIO
    # Old or new: but what the cache says is what primary storage has.
    seen = bytes(h.pread(4096, MIB))
    with open(image, "rb") as f:
        f.seek(MIB)
        assert seen == f.read(4096)
    h.pwrite(pattern(MIB, 4096, 2), MIB)
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096, 2)


@test(forebay_only=True)
def a_torn_write_is_eio_and_reads_show_what_is_on_primary_storage(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:seed=3&rule=torn,range=2MiB+64KiB,times=1&inner=file:" + image)
    h = client(disk)
    h.pread(65536, 2 * MIB)
    assert error_of(lambda: h.pwrite(pattern(2 * MIB, 65536, 1), 2 * MIB)) == errno.EIO
    seen = bytes(h.pread(65536, 2 * MIB))
    with open(image, "rb") as f:
        f.seek(2 * MIB)
        assert seen == f.read(65536)


@test(forebay_only=True)
def a_failed_flush_fails_the_flush(bed):
    image = bed.image("disk.raw", 8 * MIB)
    # The first flush is Forebay's own, as it opens the disk; the guest's is the second one.
    disk = bed.disk("fault:rule=error,op=flush,nth=2,times=1&inner=file:" + image)
    h = client(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    assert error_of(h.flush) == errno.EIO
    h.pwrite(pattern(0, 4096, 2), 0)
    h.flush()
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 2)


@test(forebay_only=True)
def a_hanging_read_times_out_and_others_go_on(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=hang,op=read,range=1MiB+4KiB,times=1&inner=file:" + image,
                    extra=["--backend-timeout", "500ms"])
    h = client(disk)
    result = []
    buffer = nbd.Buffer(4096)
    h.aio_pread(buffer, MIB, lambda error: (result.append(error.value), 1)[1])
    for i in range(50):
        assert bytes(h.pread(4096, 2 * MIB + i * 4096)) == pattern(2 * MIB + i * 4096, 4096)
    while h.aio_in_flight():
        h.poll(-1)
    assert result in ([errno.EIO], [errno.ETIMEDOUT]), result


@test(forebay_only=True)
def a_write_that_timed_out_and_lands_late_does_not_overwrite_a_newer_one(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=delay,time=2s,op=write,range=1MiB+4KiB,times=1&inner=file:" + image,
                    extra=["--backend-timeout", "300ms"])
    h = client(disk)
    assert error_of(lambda: h.pwrite(pattern(MIB, 4096, 1), MIB)) in (errno.EIO, errno.ETIMEDOUT)
    results = []

    def newer():
        try:
            h.pwrite(pattern(MIB, 4096, 2), MIB)
            return True
        except nbd.Error as error:  # it waits for the older one, perhaps beyond its own time
            results.append(error.errnum)
            return False

    eventually(newer, "the newer write is accepted")
    h.flush()
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096, 2)
    disk.stop()
    with open(image, "rb") as f:
        f.seek(MIB)
        assert f.read(4096) == pattern(MIB, 4096, 2), "the older write landed on top"


@test(forebay_only=True)
def rotten_flash_is_a_miss_and_counted(bed):
    image = bed.image("disk.raw", 8 * MIB)
    flash = bed.path("flash")
    disk = bed.disk("file:" + image, ram="0", flash=flash + ":32MiB",
                    extra=["--flash-admission", "always", "--bypass-sequential", "off"])
    h = client(disk)

    def filled():  # a fill is left out while flash is busy: asked for again
        for at in range(0, 4 * MIB, 65536):
            h.pread(65536, at)
        return disk.stats()["counters"]["flash_write_bytes"] >= 4 * MIB

    eventually(filled, "flash holds what was read")
    before = disk.stats()["counters"]
    # All that the flash file holds rots behind the server's back, past the page cache as it reads.
    rot = mmap.mmap(-1, MIB)
    rot.write(b"\xa5" * MIB)
    fd = os.open(flash, os.O_WRONLY | os.O_DIRECT)
    for at in range(0, os.path.getsize(flash) // MIB * MIB, MIB):
        os.pwrite(fd, rot, at)
    os.close(fd)
    for at in range(0, 4 * MIB, 65536):
        assert bytes(h.pread(65536, at)) == pattern(at, 65536), "wrong bytes at %d" % at
    after = disk.stats()["counters"]
    assert after["flash_checksum_errors"] > before["flash_checksum_errors"], "not counted"
    assert after["backend_read_bytes"] >= before["backend_read_bytes"] + 4 * MIB, "not read again"


@test(forebay_only=True, alone=True)
def a_slow_disk_does_not_slow_its_neighbour(bed):
    slow, quick = bed.image("slow.raw", 8 * MIB), bed.image("quick.raw", 8 * MIB)
    socket = bed.path("all.sock")
    server = bed.serve(
        'shards = 1\n[[nbd]]\nlisten = "unix:%s"\n'
        '[[disk]]\nname = "slow"\nbackend = "fault:rule=delay,time=5s,op=read&inner=file:%s"\nram = "16MiB"\n'
        '[[disk]]\nname = "quick"\nbackend = "file:%s"\nram = "16MiB"\n' % (socket, slow, quick),
        ["unix:" + socket])
    one, two = nbd.NBD(), nbd.NBD()
    one.connect_uri(server.uri_of("slow"))
    two.connect_uri(server.uri_of("quick"))
    buffer, done = nbd.Buffer(4096), []
    one.aio_pread(buffer, 0, lambda error: (done.append(error.value), 1)[1])
    for i in range(500):
        assert bytes(two.pread(4096, i * 4096)) == pattern(i * 4096, 4096)
    one.poll(0)
    assert not done, "500 reads of the quick disk took longer than one of the slow disk"
    while one.aio_in_flight():
        one.poll(-1)
    assert done == [0]


@test(forebay_only=True)
def errors_of_primary_storage_are_told_once_counted_and_shown(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=error,op=write,status=no-space,range=1MiB+1MiB,times=5&inner=file:" + image)
    h = client(disk)
    for n in range(5):
        assert error_of(lambda: h.pwrite(pattern(MIB, 4096, 1), MIB + n * 4096)) == errno.ENOSPC
    at = ["--control", bed.path("disk.control")]
    events = bed.run([bed.program, "events", *at])
    assert events.count("primary storage fails writes: no space left, at byte 1048576; the guest gets an error") == 1, events
    assert events.count("no space left") == 1, events
    shown = bed.run([bed.program, "disk", "show", "disk", *at])
    assert "fails writes: no space left (5 failed, the last at byte 1064960)" in shown, shown
    assert "requests failed   5; the last one: write at byte 1064960, 4096 bytes: no space left" in shown, shown
    h.pwrite(pattern(MIB, 4096, 2), MIB)
    works = "primary storage works again: 5 writes failed"
    eventually(lambda: works in bed.run([bed.program, "events", *at]), "it is over")
    assert "connected" in bed.run([bed.program, "disk", "show", "disk", *at])


@test(forebay_only=True)
def errors_that_destaging_meets_are_told_once_with_words(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=error,op=write,status=no-space&inner=file:" + image, mode="write-back",
                    flash=bed.path("flash") + ":64MiB")
    h = client(disk)
    for n in range(16):
        h.pwrite(pattern(n * 65536, 4096, 1), n * 65536)
        h.flush()
    eventually(lambda: disk.stats()["counters"]["destage_errors"] >= 4, "destaging was tried several times")
    events = bed.run([bed.program, "events", "--control", bed.path("disk.control")])
    assert events.count("primary storage fails writes: no space left, at byte ") == 1, events
    assert "NoSpace" not in events and events.count("no space left") == 1, events
    disk.kill()
