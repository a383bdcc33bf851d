"""The staging file: it takes memory as it is needed. Without a folder on tmpfs, the core of write-back again."""
import functools
import glob
import os
import subprocess

import test_write_back
import test_write_back_restarts
from bed import KIB, MIB, Skip, Test, TESTS, eventually, pattern, test
from test_write_back import attach, write_back

WRITE_BACK = [
    test_write_back.write_back_serves_and_destages,
    test_write_back.nothing_acknowledged_is_lost_by_kills_under_load_in_write_back,
    test_write_back.a_log_that_is_dirty_outlives_a_kill_with_primary_storage_too_slow_to_destage,
    test_write_back.sigterm_keeps_what_is_dirty_and_the_next_run_goes_on,
    test_write_back_restarts.kills_during_recovery_lose_nothing,
]


def over_shared_memory(bed, mount):
    """What `mount` says lies over the host's shared memory, for Forebay alone."""
    hidden = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
              'mount %s && unset XDG_RUNTIME_DIR && exec "$@"' % mount, bed.directory]
    if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
        raise Skip("this user may not make mount namespaces")
    bed.prefix = hidden


def without_tmpfs(function):
    @functools.wraps(function)
    def run(bed):
        over_shared_memory(bed, '--bind "$0" /dev/shm')
        function(bed)
        logs = "".join(server.log() for server in bed.servers)
        assert "no folder on tmpfs" in logs, "it does not say that there is no staging file"

    run.__module__ = __name__
    return run


for each in WRITE_BACK:
    TESTS.append(Test(without_tmpfs(each), forebay_only=True, alone=False, timeout=240))


def taken(disk):
    """Bytes that the disk's staging file has."""
    files = glob.glob("/proc/%d/fd/*" % disk.process.pid)
    file, = (file for file in files if os.readlink(file).endswith(".staging"))
    return os.stat(file).st_blocks * 512


def write_all(h, version, length):
    for at in range(0, 8 * MIB, length):
        h.pwrite(pattern(at, length, version), at)
        h.flush()
    for at in range(0, 8 * MIB, length):
        assert bytes(h.pread(length, at)) == pattern(at, length, version), at


@test(forebay_only=True)
def a_staging_file_is_small_until_a_write_needs_more(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = write_back(bed, "file:" + image)
    h = attach(disk)
    write_all(h, 1, 64 * KIB)
    small = taken(disk)
    assert small < 500 * KIB, small
    write_all(h, 2, 512 * KIB)
    assert taken(disk) > 2 * small, (small, taken(disk))
    h.shutdown()
    disk.kill()
    disk.start()
    h = attach(disk)
    assert bytes(h.pread(8 * MIB, 0))[:512 * KIB] == pattern(0, 512 * KIB, 2)
    assert taken(disk) == small
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def with_no_memory_for_more_of_a_staging_file_writes_to_the_log_are_small(bed):
    image = bed.image("disk.raw", 16 * MIB)
    # There is room for a part of the rest, too.
    over_shared_memory(bed, "-t tmpfs -o size=4M none /dev/shm && head -c 3M /dev/zero > /dev/shm/else")
    disk = write_back(bed, "file:" + image)
    h = attach(disk)
    write_all(h, 0, 4 * KIB)
    small = taken(disk)
    for version, length in enumerate((512 * KIB, 4 * KIB, MIB), 1):
        write_all(h, version, length)
    assert taken(disk) == small
    h.shutdown()
    assert disk.stop() == 0
    log = disk.log()
    assert log.count("writes to the log are small") == 1 and "No space left on device" in log, log
    with open(image, "rb") as f:
        assert f.read(MIB) == pattern(0, MIB, 3)


@test(forebay_only=True)
def a_staging_file_that_somebody_removes_is_told_of(bed):
    disk = write_back(bed, "file:" + bed.image("disk.raw", 16 * MIB))
    files = [os.readlink(file) for file in glob.glob("/proc/%d/fd/*" % disk.process.pid)]
    file, = (file for file in files if file.endswith(".staging"))
    said = lambda: bed.run([bed.program, "events", disk.name, "--control", bed.path(disk.name + ".control")])
    h = attach(disk)
    h.pwrite(pattern(0, MIB, 1), 0)
    os.remove(file)
    eventually(lambda: "was removed by somebody else: if Forebay is killed" in said(), "it is told")
    # In good order nothing is lost.
    disk.stop()
    disk.start()
    assert bytes(attach(disk).pread(MIB, 0)) == pattern(0, MIB, 1)
