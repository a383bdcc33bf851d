"""kill -9 before each step of `disk resolve` through the daemon: the disk is refused as before, or it is as was decided."""
import json
import os
import shutil
import signal

from bed import eventually, need_program, on_tmpfs, pattern, test
from test_fence import FAR, OWN, SIZE, sidecar, written
from test_refused import attach, disk

# What changes files, and what comes before it: a kill loses nothing of what was written without a flush.
CALLS = ["fsync", "rename", "pwritev", "unlink", "ftruncate"]
WRITES = 20


def config(bed, image):
    return ('control = "%s"\nshards = 1\n'
            '[[disk]]\nname = "other"\nbackend = "mem:16MiB"\nram = "1MiB"\n\n'
            '[[disk]]\nname = "first"\nbackend = "file:%s"\nram = "2MiB"\nmode = "write-back"\n'
            'flash = "%s:16MiB"\nwrite-log = "4MiB"\n\n[[nbd]]\nlisten = "unix:%s"\n'
            % (bed.path("serve.control"), image, bed.path("pool"), bed.path("both.sock")))


def at(n):
    return OWN + n * 8192


def with_a_log_that_was_killed(bed):
    """A disk that was killed with a dirty log, the last write only in its staging file, and whose image was changed then."""
    image = bed.image("first.raw", SIZE)
    daemon = bed.serve(config(bed, image), ["unix:" + bed.path("both.sock")])
    disk(bed, "pause", "first")
    h = attach(daemon, "first")
    for n in range(WRITES):
        if n == WRITES - 1:
            h.flush()
        h.pwrite(pattern(at(n), 4096, n + 1), at(n))
    daemon.kill()
    written(image)
    return daemon, image


class Snapshot:
    """All files of the refused disk, as the kill left them: each round begins with them."""

    def __init__(self, bed, image):
        self.directory = bed.path("snapshot")
        os.mkdir(self.directory)
        shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
        self.shm = [on_tmpfs("forebay-%s.%s" % (shown["disks"][0]["uuid"], kind)) for kind in ["staging", "trail"]]
        self.files = [bed.path("pool"), image, sidecar(image), *self.shm]
        assert all(map(os.path.exists, self.files)), self.files
        for path in self.files:
            shutil.copy2(path, self.directory)

    def restore(self):
        for path in self.files:
            shutil.copy2(os.path.join(self.directory, os.path.basename(path)), path)

    def remove(self):
        for path in filter(os.path.exists, self.shm):
            os.unlink(path)


def kill_before(bed, daemon, call, nth, *words):
    """Has the daemon decide, and kills it before a thread's n-th call of this kind; whether it came to that."""
    inject = "inject=%s:signal=SIGKILL:when=%d" % (call, nth)
    tracer = bed.spawn(["strace", "-f", "-qq", "-e", "trace=" + call, "-e", inject, "-o", bed.path("strace"),
                        "-p", str(daemon.process.pid)])
    traced = "/proc/%d/task/%d/status" % (daemon.process.pid, daemon.process.pid)
    eventually(lambda: "TracerPid:\t%d\n" % tracer.pid in open(traced).read(), "it is traced")
    decided = disk(bed, "resolve", "first", *words, code=None)
    is_over = decided.returncode == 0
    daemon.was_ended = True
    if is_over:
        tracer.terminate()
        tracer.wait(30)
        assert daemon.stop() == 0
    else:
        assert daemon.process.wait(30) == -signal.SIGKILL, decided.stderr
        tracer.wait(30)
    return not is_over


def content(daemon, image_holds):
    """Which side the disk shows: every byte is of that one."""
    h = attach(daemon, "first")
    assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99)
    read = [bytes(h.pread(4096, at(n))) for n in range(WRITES)]
    h.shutdown()
    if read == [pattern(at(n), 4096, n + 1) for n in range(WRITES)]:
        return "log"
    assert read == image_holds, "it is half of each"
    return "image"


def kills(bed, words, side):
    need_program("strace")
    daemon, image = with_a_log_that_was_killed(bed)
    snapshot = Snapshot(bed, image)
    outcomes = {"refused": [], "decided": []}
    for call in CALLS:
        nth = 1
        while decide_and_kill(bed, daemon, image, snapshot, (call, nth), words, side, outcomes):
            nth += 1
    print(outcomes)
    assert len(outcomes["refused"]) >= 4 and len(outcomes["decided"]) >= 10, "it was killed before the decision and after"
    snapshot.remove()


def decide_and_kill(bed, daemon, image, snapshot, point, words, side, outcomes):
    """One round; whether there was such a point to kill it at."""
    snapshot.restore()
    with open(image, "rb") as f:
        held = f.read()
    image_holds = [held[at(n):at(n) + 4096] for n in range(WRITES)]
    daemon.start()
    assert "disk first: NOT SERVED" in daemon.said, daemon.said
    before = json.loads(disk(bed, "resolve", "first", "--json"))
    is_killed = kill_before(bed, daemon, *point, *words)
    daemon.start()
    if "disk first: NOT SERVED" in daemon.said:
        outcomes["refused"].append(point)
        assert is_killed, "it was decided"
        with open(image, "rb") as f:
            assert f.read() == held, "primary storage of a refused disk was changed"
        now = json.loads(disk(bed, "resolve", "first", "--json"))
        for key, was in before.items():
            assert key in ["generation", "sidecar"] or now[key] == was, (point, key, was, now[key])
        disk(bed, "resolve", "first", *words)
    else:
        outcomes["decided"].append(point)
    assert content(daemon, image_holds) == side, point
    assert daemon.stop() == 0
    daemon.start()
    assert "NOT SERVED" not in daemon.said and content(daemon, image_holds) == side, point
    assert daemon.stop() == 0
    return is_killed


@test(forebay_only=True, timeout=400)
def a_daemon_that_is_killed_while_it_decides_to_use_a_log_leaves_nothing_half(bed):
    kills(bed, ["--use-log"], "log")


@test(forebay_only=True, timeout=400)
def a_daemon_that_is_killed_while_it_decides_to_discard_a_log_leaves_nothing_half(bed):
    kills(bed, ["--discard-log", "%dKiB" % (WRITES * 4)], "image")
