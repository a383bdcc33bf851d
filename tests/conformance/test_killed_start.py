"""kill -9 before each system call of a start behind an end that left the first part of long writes in the log."""
import shutil
import signal
import subprocess
import threading

from bed import KIB, MIB, eventually, need_program, pattern, test
import nbd
from test_fence import sidecar
from test_write_back import attach, disk_command, log_of, write_back

CALLS = ["pwritev", "fdatasync"]
LONG = 3 * MIB
START = 8 * MIB


def with_halves_in_a_full_log(bed):
    """A disk that ends in order while long writes wait for room in its log."""
    image = bed.image("disk.raw", 64 * MIB)
    disk = write_back(bed, "file:" + image)
    disk_command(bed, disk, "pause", "disk")
    h = attach(disk)
    h.pwrite(pattern(0, 64 * KIB, 7), 0)
    h.flush()
    writers = [threading.Thread(target=write_long, args=(attach(disk), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    eventually(lambda: log_of(disk)["writes_waiting"] > 0, "writers wait for room")
    assert disk.stop() == 0
    for writer in writers:
        writer.join()
    return disk, image


def write_long(client, n):
    try:
        client.pwrite(pattern(START + n * LONG, LONG, 9), START + n * LONG)
    except nbd.Error:
        pass  # the disk ends while it waits


def kill_before(bed, disk, call, nth):
    """Starts the disk, and kills it before a thread's n-th call of this kind; whether it came to that."""
    inject = "inject=%s:signal=SIGKILL:when=%d" % (call, nth)
    traced = subprocess.Popen(["strace", "-D", "-f", "-qq", "-e", "trace=" + call, "-e", inject,
                               "-o", bed.path("calls"), *disk.command],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    bed.processes.append(traced)
    is_killed = not any(b"ready" in line for line in traced.stdout)
    if not is_killed:
        traced.kill()
    assert traced.wait(30) == -signal.SIGKILL
    return is_killed


@test(forebay_only=True, timeout=400)
def a_start_that_is_killed_behind_an_end_with_half_writes_is_only_a_start_more(bed):
    need_program("strace")
    disk, image = with_halves_in_a_full_log(bed)
    files = [bed.path("pool"), image, sidecar(image)]
    for path in files:
        shutil.copy2(path, path + ".kept")
    kills = 0
    for call in CALLS:
        nth = 1
        while True:
            for path in files:
                shutil.copy2(path + ".kept", path)
            is_killed = kill_before(bed, disk, call, nth)
            disk.start()
            h = attach(disk)
            assert bytes(h.pread(64 * KIB, 0)) == pattern(0, 64 * KIB, 7), (call, nth)
            h.shutdown()
            disk.kill()
            if not is_killed:
                break
            kills += 1
            nth += 1
    print(kills, "kills")
    assert kills > 6
