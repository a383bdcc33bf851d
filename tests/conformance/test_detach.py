"""How a disk ends: a detach and a SIGTERM say where everything is that was acknowledged, and whether it is safe."""
import mmap
import os
import signal
import subprocess

from bed import MIB, eventually, pattern, test
import nbd
from test_fence import OWN, two_disks
from test_iscsi_detach import two_units
from test_reload import Served, client, disk as configured, images
from test_write_back import attach, disk_command, expect_blocks, log_of, nbdkit_on, of_client, opened, write_blocks

SLOW = "model:san?iops=10&latency=100ms&inner=file:"


def detach(bed, disk):
    """`disk detach` as a program that runs; it is waited for until the disk shows that."""
    process = bed.spawn([bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: disk.stats()["is_detaching"], "the detach begins")
    return process


def ended(process):
    """Exit code and all that a program said."""
    said = "".join(process.communicate(timeout=60))
    print(said, flush=True)
    return process.returncode, said


def without_client(disk, h):
    h.shutdown()
    eventually(lambda: disk.stats()["connections"] == 0, "the client is gone")


def rot_the_end(path, size):
    """The end of a file rots, past the page cache."""
    rot = mmap.mmap(-1, size)
    rot.write(b"\xa5" * size)
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    os.pwrite(fd, rot, os.path.getsize(path) - size)
    os.close(fd)


@test(forebay_only=True)
def a_detach_is_shown_and_is_cancelled_by_resume_pause_and_a_mode(bed):
    _, disk, h = opened(bed, uri=SLOW)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    write_blocks(h, range(400))
    without_client(disk, h)
    for words, why, paused in [(["resume", "disk"], "it was resumed", False),
                               (["pause", "disk"], "destaging was paused", True),
                               (["set", "disk", "--mode", "write-back"], "its mode was set", False)]:
        process = detach(bed, disk)
        assert "(DETACHING)" in disk_command(bed, disk, "list")
        assert "resume disk" in disk_command(bed, disk, "show", "disk")
        refused = nbd.NBD()
        try:
            refused.connect_uri(disk.uri)
            refused.pread(512, 0)
            raise AssertionError("a client was taken")
        except nbd.Error:
            pass
        disk_command(bed, disk, *words)
        code, said = ended(process)
        assert code == 1 and "it was not detached: " + why in said, said
        now = disk.stats()
        assert not now["is_detaching"] and now["mode"] == "write-back", now
        assert (log_of(disk)["state"] == "paused") == paused, now
        h = attach(disk)
        expect_blocks(of_client(h), range(400))
        without_client(disk, h)
    events = bed.run([bed.program, "events", "--control", bed.path("disk.control")])
    assert "it is being detached" in events and "its detach was cancelled" in events, events
    assert disk.stop() == 0


@test(forebay_only=True)
def a_disk_that_is_being_detached_or_was_is_no_export_of_a_shared_listener(bed):
    daemon = two_units(bed)
    control = ["--control", bed.path("serve.control")]

    def refused(name):
        other = nbd.NBD()
        try:
            other.connect_uri(daemon.uri_of(name))
            return False
        except nbd.Error as error:
            # In the handshake: no export is named so.
            assert error.errno == "ENOENT", error
            return True

    process = bed.spawn([bed.program, "disk", "detach", "slow", *control], stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE, text=True)
    eventually(lambda: "DETACHING" in bed.run([bed.program, "disk", "list", *control]), "the detach begins")
    assert refused("slow") and not refused("fast")
    bed.run([bed.program, "disk", "resume", "slow", *control])
    assert ended(process)[0] == 1
    assert not refused("slow"), "it is back"
    detach_fast = [bed.program, "disk", "detach", "fast", *control]
    eventually(lambda: bed.run(detach_fast, code=None).returncode == 0, "it is detached")
    assert refused("fast") and not refused("slow")
    assert daemon.stop() == 0


@test(forebay_only=True)
def ctrl_c_ends_the_command_and_says_that_the_detach_goes_on(bed):
    _, disk, h = opened(bed, uri=SLOW)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    write_blocks(h, range(400))
    without_client(disk, h)
    process = detach(bed, disk)
    # Its handler is there a moment after the disk shows the detach.
    eventually(lambda: has_handler(process.pid, signal.SIGINT), "it handles SIGINT")
    # Again, as a person would: the first may come between the handler and whoever hears of it.
    eventually(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None, "it ends", 10)
    code, said = ended(process)
    assert code == 1 and "goes on without this command" in said and "disk resume disk" in said, said
    assert disk.stats()["is_detaching"]
    disk_command(bed, disk, "resume", "disk")
    expect_blocks(of_client(attach(disk)), range(400))
    assert disk.stop() == 0


def has_handler(pid, number):
    with open("/proc/%d/status" % pid) as f:
        caught = next(line for line in f if line.startswith("SigCgt")).split()[1]
    return int(caught, 16) >> (number - 1) & 1


@test(forebay_only=True)
def a_detach_that_the_daemons_end_overtakes_says_what_is_left_where(bed):
    _, disk, h = opened(bed, uri=SLOW)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    write_blocks(h, range(400))
    without_client(disk, h)
    process = detach(bed, disk)
    assert disk.stop() == 0
    assert "in the write log of disk; start again" in disk.log()
    code, said = ended(process)
    assert code == 1 and "durable in its write log" in said and "primary storage has" not in said, said
    disk.start()
    expect_blocks(of_client(attach(disk)), range(400))
    assert disk.stop() == 0


@test(forebay_only=True)
def a_detach_whose_last_flush_fails_does_not_say_that_all_is_well(bed):
    image = bed.image("disk.raw", 8 * MIB)
    # The first flush is Forebay's own, as it opens the disk; the second one is the last.
    disk = bed.disk("fault:rule=error,op=flush,nth=2,times=1&inner=file:" + image)
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    without_client(disk, h)
    said = bed.run([bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")], code=None)
    assert said.returncode == 1 and "last flush of primary storage failed" in said.stderr, said.stderr
    disk.was_ended = True
    assert disk.process.wait(30) == 1
    assert "disk 'disk': the last flush of primary storage failed" in disk.log()


@test(forebay_only=True)
def a_disk_without_log_that_has_ended_in_trouble_comes_back_without_a_stop(bed):
    images(bed, "a", "b")
    failing = "fault:rule=error,op=flush,nth=2,times=1&inner=file:" + bed.path("a.raw")
    served = Served(bed, configured(bed, "a", backend=failing), configured(bed, "b"))
    h = client(bed, "a")
    h.pwrite(pattern(0, 4096, 1), 0)
    h.shutdown()
    eventually(lambda: served.stats("a")["connections"] == 0, "its client has left")

    def of_disk(*words, code=0):
        said = bed.run([bed.program, "disk", *words, "a", "--control", served.control], code=None)
        assert said.returncode == code, said
        return said.stderr
    assert "last flush of primary storage failed" in of_disk("detach", code=1)
    said = of_disk("open", code=1)
    assert "'forebay disk remove a' and then 'forebay disk reset a'" in said and "log" not in said, said
    assert "a restart of the daemon serves it again" in said, said
    of_disk("remove")
    of_disk("reset")
    assert bytes(client(bed, "a").pread(4096, 0)) == pattern(0, 4096, 1)
    # The end of the daemon tells once more what may be lost.
    assert served.server.stop() == 1


@test(forebay_only=True)
def a_disk_whose_log_is_lost_is_not_detached_and_its_end_says_so(bed):
    _, disk, h = opened(bed)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    disk_command(bed, disk, "pause", "disk")
    # More than RAM holds.
    for first in range(0, 400, 20):
        write_blocks(h, range(first, first + 20))
        h.flush()
    rot_the_end(bed.path("pool"), 4 * MIB)
    disk_command(bed, disk, "resume", "disk")
    eventually(lambda: log_of(disk)["state"] == "lost", "the log is lost")
    without_client(disk, h)
    said = bed.run([bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")], code=None)
    assert said.returncode == 1 and "its write log is lost" in said.stderr, said.stderr
    assert not disk.stats()["is_detaching"]
    assert disk.stop() == 1
    assert "disk 'disk': its write log cannot be read back" in disk.log(), disk.log()
    assert "ended: everything" not in disk.log()
    # Whoever was told of it decides. No start goes on as if nothing had been.
    for _ in range(2):
        refused = bed.run(disk.command, code=None)
        print(refused.stderr, flush=True)
        assert refused.returncode == 1 and "disk resolve" in refused.stderr, refused.stderr
    resolved = bed.run([bed.program, "disk", "resolve", "disk", "--pool", bed.path("pool")])
    assert "its write log was refused: decide about it" in resolved, resolved


@test(forebay_only=True)
def an_end_before_anybody_heard_of_a_lost_session_says_so(bed):
    image = bed.image("disk.raw", 16 * MIB)
    backend = "fault:seed=1&volatile=on&rule=power-cut,op=read,range=12MiB+4KiB,times=1&inner=file:" + image
    for hears in [False, True]:
        disk = bed.disk(backend)
        h = attach(disk)
        h.pwrite(pattern(0, 4096, 1), 0)
        h.pread(4096, 12 * MIB)
        assert disk.stats()["sessions_lost"] == 1
        if hears:
            try:
                h.flush()
                raise AssertionError("the flush did not tell it")
            except nbd.Error:
                pass
        assert disk.stop() == (0 if hears else 1)
        told = "disk 'disk': primary storage may have lost acknowledged writes" in disk.log()
        assert told != hears, disk.log()


@test(forebay_only=True)
def a_first_flush_that_fails_is_told_by_the_guests_next_one(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("fault:rule=error,op=flush,nth=1,times=1&inner=file:" + image)
    eventually(lambda: "failed the first flush" in disk.log(), "it failed")
    h = attach(disk)
    try:
        h.flush()
        raise AssertionError("the flush did not tell it")
    except nbd.Error:
        pass
    h.flush()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_disk_whose_log_cannot_be_used_keeps_no_other_from_being_served(bed):
    daemon, _, _ = two_disks(bed)
    control = ["--control", bed.path("serve.control")]
    bed.run([bed.program, "disk", "pause", "first", *control])
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of("first"))
    for n in range(10):
        h.pwrite(pattern(OWN + n * 8192, 4096, n + 1), OWN + n * 8192)
        h.flush()
    h.shutdown()
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of("second"))
    h.pwrite(pattern(OWN, 4096, 1), OWN)
    h.shutdown()
    assert daemon.stop() == 0
    with open(bed.path("pool"), "r+b") as f:
        data = f.read()
        f.seek(data.find(pattern(OWN + 4 * 8192, 4096, 5)) - 4096)
        torn = f.tell()
        f.write(b"torn")
    daemon.start()
    assert "disk first: NOT SERVED" in daemon.said and "records are missing" in daemon.said, daemon.said
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of("second"))
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    assert "first  NOT SERVED" in bed.run([bed.program, "disk", "list", *control])
    sides = bed.run([bed.program, "disk", "resolve", "first", *control])
    assert "cannot be used as it is: decide" in sides and "not refused" not in sides, sides
    assert "6 writes that were durable or staged are lost, whatever is decided" in sides, sides
    events = bed.run([bed.program, "events", *control])
    assert "first  the disk is not served: the write log of disk 'first' cannot be used" in events, events
    assert daemon.stop() == 0
    # Nothing was changed: with the page as it was, the log goes on.
    with open(bed.path("pool"), "r+b") as f:
        f.seek(torn)
        f.write(data[torn:torn + 4])
    daemon.start()
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of("first"))
    for n in range(10):
        assert bytes(h.pread(4096, OWN + n * 8192)) == pattern(OWN + n * 8192, 4096, n + 1), n
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_detach_that_waits_for_the_server_of_primary_storage_can_be_cancelled(bed):
    primary = nbdkit_on(bed, bed.image("disk.raw", 4 * MIB))
    disk = bed.disk(primary.uri, ram="1MiB")
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    h.flush()
    without_client(disk, h)
    primary.kill()
    eventually(lambda: disk.stats()["primary_storage"] != "connected", "the session is lost")
    process = detach(bed, disk)
    disk_command(bed, disk, "resume", "disk")
    code, said = ended(process)
    assert code == 1 and "it was resumed" in said, said
    primary.start()
    h = attach(disk)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1)
    without_client(disk, h)
    disk_command(bed, disk, "detach", "disk")
    disk.was_ended = True
    # Of a daemon with one disk that is the end.
    assert disk.process.wait(60) == 0
