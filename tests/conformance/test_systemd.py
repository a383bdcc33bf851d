"""What systemd is told: a socket of the test is in its place."""
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import time

from bed import MIB, Skip, eventually, test

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


class Manager:
    """Hears what a service says of itself."""

    def __init__(self, bed):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(bed.path("notify"))

    def hear(self, key, seconds=30):
        """The value of the next message of this kind."""
        end = time.monotonic() + seconds
        while select.select([self.socket], [], [], max(end - time.monotonic(), 0))[0]:
            message = dict(line.split("=", 1) for line in self.socket.recv(65536).decode().splitlines())
            if key in message:
                self.message = message
                return message[key]
        raise AssertionError("no %s within %g s" % (key, seconds))

    def ignore_what_came(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.socket.recv(65536)


def service(bed, disks, watchdog=None, prepare=lambda manager: None):
    """A service with this manager, started and not waited for."""
    manager = Manager(bed)
    prepare(manager)
    path = bed.path("forebay.toml")
    with open(path, "w") as f:
        f.write('state-dir = "%s"\ncontrol = "%s"\n' % (bed.path("state"), bed.path("control")) + disks)
    environment = dict(os.environ, NOTIFY_SOCKET=bed.path("notify"))
    if watchdog:
        environment["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
    log = open(bed.path("service.server-log"), "a")
    process = bed.spawn([bed.program, "serve", "--config", path], stdout=log, stderr=log, env=environment)
    return process, manager


def disk(bed, name, backend):
    return ('[[disk]]\nname = "%s"\nbackend = "%s"\nram = "16MiB"\nnbd = ["unix:%s"]\n'
            % (name, backend, bed.path(name + ".sock")))


def end(process):
    process.terminate()
    assert process.wait(60) == 0


@test(forebay_only=True)
def systemd_learns_of_start_reload_and_end(bed):
    process, manager = service(bed, disk(bed, "a", "mem:16MiB") + disk(bed, "b", "mem:16MiB"))
    assert manager.hear("STATUS") == "1 of 2 disks open"
    assert int(manager.message["EXTEND_TIMEOUT_USEC"]) >= 60e6, "each disk has time"
    assert manager.hear("STATUS") == "2 of 2 disks open"
    assert manager.hear("READY") == "1"
    assert manager.message["STATUS"] == "2 of 2 disks served"
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    process.send_signal(signal.SIGHUP)
    manager.hear("RELOADING")
    assert int(manager.message["MONOTONIC_USEC"]) >= before
    assert manager.hear("READY") == "1"
    bed.run([bed.program, "disk", "detach", "b", "--control", bed.path("control")])
    assert manager.hear("STATUS") == "1 of 2 disks served"
    end(process)
    assert manager.hear("STOPPING") == "1"
    assert int(manager.message["EXTEND_TIMEOUT_USEC"]) >= 45e6, "an end that is slow has its time"


@test(forebay_only=True)
def a_manager_that_reads_late_learns_that_many_disks_are_ready(bed):
    disks = "".join('[[disk]]\nname = "d%d"\nbackend = "mem:1MiB"\nnbd = ["unix:%s"]\n' % (i, bed.path("d%d.sock" % i))
                    for i in range(80))
    filler = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    filler.setblocking(False)

    def fill(manager):
        filler.connect(bed.path("notify"))
        try:
            while True:
                filler.send(b"FILL=1")
        except BlockingIOError:
            pass

    process, manager = service(bed, disks, prepare=fill)
    listed = [bed.program, "disk", "list", "--control", bed.path("control")]
    eventually(lambda: bed.run(listed, code=None).stdout.count("mem:") == 80, "all disks are served")
    assert manager.hear("READY") == "1"
    end(process)


@test(forebay_only=True)
def the_status_names_a_disk_that_is_not_served(bed):
    image = bed.path("b.raw")
    with open(image, "wb") as f:
        f.write(b"QFI\xfb" + bytes(MIB - 4))
    process, manager = service(bed, disk(bed, "a", "mem:16MiB") + disk(bed, "b", "file:" + image))
    manager.hear("READY")
    assert manager.message["STATUS"] == "1 of 2 disks served; NOT SERVED: b"
    end(process)


@test(forebay_only=True)
def a_service_without_disks_runs_and_says_what_to_do(bed):
    process, manager = service(bed, "# nothing yet\n")
    manager.hear("READY")
    assert manager.message["STATUS"].startswith("no disk is configured: add a [[disk]]")
    check = [bed.program, "serve", "--config", bed.path("forebay.toml"), "--check"]
    assert "no disk is configured" in bed.run(check)
    assert bed.run([bed.program, "disk", "list", "--control", bed.path("control")]) == "no disk is configured\n"
    end(process)
    with open(bed.path("service.server-log")) as f:
        assert "no disk is configured, so there is nothing to serve yet" in f.read()


@test(forebay_only=True)
def primary_storage_that_hangs_does_not_trip_the_watchdog(bed):
    backend = "fault:rule=hang,op=read&inner=file:" + bed.image("disk.raw", 4 * MIB)
    process, manager = service(bed, disk(bed, "a", backend), watchdog=6)
    manager.hear("READY")
    reader = bed.spawn(["nbdcopy", "nbd+unix:///a?socket=" + bed.path("a.sock"), "null:"],
                       stderr=subprocess.DEVNULL)

    def is_waiting():
        shown = bed.run([bed.program, "stats", "a", "--control", bed.path("control"), "--json"])
        return json.loads(shown)["requests_in_flight"] > 0
    eventually(is_waiting, "a read hangs")
    manager.ignore_what_came()
    for _ in range(4):
        manager.hear("WATCHDOG", seconds=6)
    assert reader.poll() is None
    process.kill()


@test(forebay_only=True)
def nothing_waits_for_a_systemd_that_reads_no_messages(bed):
    process, manager = service(bed, disk(bed, "a", "mem:16MiB"), watchdog=3)
    manager.hear("READY")
    for _ in range(40):
        process.send_signal(signal.SIGHUP)
        bed.run([bed.program, "stats", "a", "--control", bed.path("control")])
    end(process)


@test(forebay_only=True)
def a_shard_that_takes_no_turns_trips_the_watchdog(bed):
    process, manager = service(bed, disk(bed, "a", "mem:16MiB") + disk(bed, "b", "mem:16MiB"), watchdog=3)
    manager.hear("READY")
    manager.hear("WATCHDOG")
    threads = "/proc/%d/task" % process.pid
    names = {open("%s/%s/comm" % (threads, task)).read().strip(): int(task) for task in os.listdir(threads)}
    shard = next(task for name, task in sorted(names.items()) if "shard" in name)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, shard, None, None) != 0:
        raise Skip("this user may not stop a thread: %s" % os.strerror(ctypes.get_errno()))
    libc.ptrace(PTRACE_INTERRUPT, shard, None, None)
    os.waitpid(shard, WALL)

    def events():
        return bed.run([bed.program, "events", "--control", bed.path("control")])
    eventually(lambda: "takes no turn" in events(), "an event names the shard")
    manager.ignore_what_came()
    assert not select.select([manager.socket], [], [], 3)[0], "the watchdog gets no sign for its whole time"
    libc.ptrace(PTRACE_DETACH, shard, None, None)
    manager.hear("WATCHDOG")
    end(process)
