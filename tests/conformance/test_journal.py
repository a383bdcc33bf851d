"""Destaging through a journal: after a kill the image with its journal is as the disk was, without its flash."""
import json
import os
import threading
import time

from bed import MIB, Skip, eventually, pattern, test
from test_crash import write_over_kills
import nbd

BLOCKS = 4096
SAN = "model:san?iops=2000&latency=3ms&inner=file:%s"
JOURNALED = ["--destage-order", "journaled", "--write-log", "16MiB"]


class Sequence:
    """One durable write after the other, each an epoch of its own, to places that repeat."""

    def __init__(self, disk, random):
        self.disk, self.random = disk, random
        self.writes = []        # blocks, in the order of their versions from 1 on
        self.acknowledged = 0
        self.stop = False

    def run(self):
        h = nbd.NBD()
        h.connect_uri(self.disk.uri)
        try:
            while not self.stop:
                block = self.random.randrange(BLOCKS)
                self.writes.append(block)
                version = len(self.writes)
                h.pwrite(pattern(block * 4096, 4096, version), block * 4096, nbd.CMD_FLAG_FUA)
                self.acknowledged = version
        except nbd.Error:
            pass  # the server is gone

    def check(self, image):
        """The image is what the disk was after one of the writes; which one."""
        with open(image, "rb") as f:
            data = f.read()
        found = [int.from_bytes(data[b * 4096 + 8:b * 4096 + 16], "little") for b in range(BLOCKS)]
        newest = max(found)
        expected = [0] * BLOCKS
        for version, block in enumerate(self.writes[:newest], 1):
            expected[block] = version
        for block in range(BLOCKS):
            assert found[block] == expected[block], "the image shows version %d, and block %d has %d instead of %d" % (
                newest, block, found[block], expected[block])
            whole = pattern(block * 4096, 4096, found[block])
            assert data[block * 4096:block * 4096 + 4096] == whole, "block %d is torn" % block
        return newest


def journaled(bed, image, **more):
    flash = bed.path("pool")
    return bed.disk(SAN % image, flash=flash + ":64MiB", mode="write-back", extra=JOURNALED, **more)


def checked(bed, image, *, repair=False, code=None):
    command = [bed.program, "image", "repair" if repair else "check", image, "--json"]
    came = bed.run(command, code=None)
    if code is not None:
        assert came.returncode == code, came.stderr
    return json.loads(came.stdout) if came.stdout else came.stderr


def kill_with_dirty_windows(bed, image, keeps_flash=False):
    """A disk whose windows go through the journal is killed, and its flash lost. What was written."""
    disk = journaled(bed, image)
    sequence = Sequence(disk, bed.random)
    thread = threading.Thread(target=sequence.run, daemon=True)
    thread.start()

    def windows():
        return disk.stats()["counters"]["journal_windows"]

    eventually(lambda: windows() > 3, "windows go through the journal")
    time.sleep(bed.random.random() / 4)
    disk.kill()
    thread.join(30)
    if not keeps_flash:
        os.unlink(bed.path("pool"))
    return disk, sequence


def torn(bed, **more):
    """An image that a kill left torn, its disk, and what was written."""
    for _ in range(8):
        image = bed.image("db.raw", BLOCKS * 4096)
        disk, sequence = kill_with_dirty_windows(bed, image, **more)
        if checked(bed, image)["state"] == "torn":
            return image, disk, sequence
        for name in ("db.raw.forebay", "db.raw.forebay-journal", "pool"):
            if os.path.exists(bed.path(name)):
                os.unlink(bed.path(name))
    raise AssertionError("no kill left a window in place in part")


@test(timeout=300)
def a_torn_image_is_whole_again_without_its_flash(bed):
    image = bed.image("db.raw", BLOCKS * 4096)
    disk, sequence = kill_with_dirty_windows(bed, image)
    seen = checked(bed, image)
    state = seen["state"]
    assert state in ("torn", "in-place"), seen
    modified = os.stat(image).st_mtime_ns
    report = checked(bed, image, repair=True, code=0)
    assert report["state"] == ("repaired" if state == "torn" else "in-place"), report
    assert os.stat(image).st_mtime_ns == modified, "its disk knows it again by its time"
    newest = sequence.check(image)
    assert 0 < newest <= len(sequence.writes)
    assert checked(bed, image, code=0)["state"] == "in-place"
    assert checked(bed, image, repair=True, code=0)["state"] == "in-place", "twice does no harm"
    assert sequence.check(image) == newest


@test(timeout=300)
def a_repair_that_is_killed_is_followed_by_one_that_keeps_the_time_of_the_image(bed):
    image, _, sequence = torn(bed)
    said = bed.run([bed.program, "image", "check", image], code=None)
    assert said.returncode == 1, said.returncode
    assert "\n  forebay image repair %s\n" % image in said.stderr, "a command to copy: " + said.stderr
    assert bed.run_unread([bed.program, "image", "check", image]).returncode == 1
    modified = os.stat(image).st_mtime_ns
    for n in range(20):
        repair = bed.spawn([bed.program, "image", "repair", image])
        time.sleep(n * 0.002)
        repair.kill()
        repair.wait()
    checked(bed, image, repair=True, code=0)
    assert os.stat(image).st_mtime_ns == modified, "its disk knows it again by its time"
    assert not os.path.exists(image + ".forebay.repair")
    assert sequence.check(image) > 0


@test(timeout=300)
def a_torn_image_is_not_served_by_another_disk_before_its_repair(bed):
    image, _, sequence = torn(bed)
    with open(image + ".forebay") as f:
        owner = next(line.split()[1] for line in f if line.startswith("disk "))
    other = bed.disk("file:" + image, name="other", wait=False, extra=["--take-over", owner])
    said = bed.run(other.command, code=1)
    refused = bed.run(other.command, code=None).stderr
    assert "forebay image repair" in refused, (said, refused)
    checked(bed, image, repair=True, code=0)
    sequence.check(image)
    other.start()
    assert other.stop() == 0


@test(timeout=300)
def a_log_is_not_discarded_over_a_torn_image(bed):
    image, disk, sequence = torn(bed, keeps_flash=True)
    os.utime(image, (time.time(), time.time() + 60))
    assert "disk resolve" in bed.run(disk.command, code=1) + bed.run(disk.command, code=None).stderr
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    amount = shown["disks"][0]["dirty_bytes"]
    command = [bed.program, "disk", "resolve", "disk", "--pool", bed.path("pool"), "--discard-log",
               str(amount)]
    refused = bed.run(command, code=None)
    assert refused.returncode == 1 and "forebay image repair" in refused.stderr, refused.stderr
    checked(bed, image, repair=True, code=0)
    bed.run(command)
    disk.start()
    assert disk.stop() == 0
    assert sequence.check(image) > 0


@test(timeout=300)
def an_image_from_another_time_is_not_repaired_unless_forced(bed):
    image, _, _ = torn(bed)
    os.utime(image, (time.time(), time.time() - 86400))
    refused = checked(bed, image, repair=True, code=1)
    assert "earlier than its journal" in refused and "--force" in refused, refused
    bed.run([bed.program, "image", "repair", image, "--force"])


@test(timeout=300)
def kills_of_a_disk_with_a_journal_lose_nothing(bed):
    image = bed.image("db.raw", 4 * MIB)
    disk = journaled(bed, image)
    recorder = write_over_kills(bed, disk)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    recorder.check(lambda at, length: bytes(h.pread(length, at)))
    h.shutdown()
    bed.run([bed.program, "disk", "flush", "disk", "--control", bed.path("disk.control")])
    assert disk.stop() == 0
    with open(image, "rb") as f:
        data = f.read()
    recorder.check(lambda at, length: data[at:at + length])
    with open(image + ".forebay") as f:
        text = f.read()
    assert text.startswith("Forebay sidecar 1\n") and "state clean" in text, "no journal counts any more: " + text
    assert checked(bed, image, code=0)["state"] == "alone"


@test(timeout=120)
def without_a_place_for_a_journal_destaging_is_strict(bed):
    disk = bed.disk("mem:64MiB", flash=bed.path("pool") + ":64MiB", mode="write-back", extra=JOURNALED)
    assert "in strict order, without a journal" in disk.log()
    assert disk.stop() == 0


def served(bed, name, image):
    listen = bed.path(name + ".sock")
    return bed.other(name, ["nbdkit", "-f", "-U", listen, "file", image], "unix:" + listen)


@test(timeout=300)
def an_export_with_a_journal_on_another_export_is_whole_again_without_its_flash(bed):
    image, beside = bed.image("db.raw", BLOCKS * 4096), bed.image("journal.raw", 64 * MIB, "holes")
    primary, journal = served(bed, "primary", image), served(bed, "journal", beside)
    asked = ["--destage-journal", journal.uri, "--write-log", "16MiB"]
    slow = "model:san?iops=2000&latency=3ms&inner=" + primary.uri + "&fence=0s"
    bed.disk(slow, flash=bed.path("pool") + ":64MiB", mode="write-back", extra=asked)
    disk = bed.servers[-1]
    sequence = Sequence(disk, bed.random)
    thread = threading.Thread(target=sequence.run, daemon=True)
    thread.start()
    eventually(lambda: disk.stats()["counters"]["journal_windows"] > 3, "windows go through the journal")
    again = [bed.program, "image", "check", primary.uri + "&fence=0s", "--json",
             "--state-dir", bed.path("state")]
    for word in ["check", "repair"]:
        used = bed.run([bed.program, "image", word, *again[3:]], code=None)
        assert used.returncode == 1 and "served already" in used.stderr, used.stderr
    disk.kill()
    thread.join(30)
    os.unlink(bed.path("pool"))
    if os.geteuid() != 0:
        homeless = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
        blind = json.loads(bed.run(again[:5], env=homeless))
        assert "--state-dir" in blind["warnings"][0], blind
    seen = json.loads(bed.run(again, code=None).stdout)
    assert seen["state"] in ("torn", "in-place"), seen
    assert seen["journal"]["place"] == journal.uri, "its sidecar says where the journal is: %s" % seen
    again[2] = "repair"
    report = json.loads(bed.run(again))
    assert report["state"] == ("repaired" if seen["state"] == "torn" else "in-place"), report
    assert 0 < sequence.check(image) <= len(sequence.writes)


@test(timeout=300)
def kills_of_an_export_with_a_journal_lose_nothing(bed):
    image, beside = bed.image("db.raw", 4 * MIB), bed.path("elsewhere.journal")
    primary = served(bed, "primary", image)
    slow = "model:san?iops=2000&latency=3ms&inner=" + primary.uri + "&fence=0s"
    asked = ["--destage-journal", "file:" + beside, "--write-log", "16MiB"]
    disk = bed.disk(slow, flash=bed.path("pool") + ":64MiB", mode="write-back", extra=asked)
    recorder = write_over_kills(bed, disk)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    recorder.check(lambda at, length: bytes(h.pread(length, at)))
    h.shutdown()
    assert os.path.getsize(beside) > 2 * MIB
    bed.run([bed.program, "disk", "flush", "disk", "--control", bed.path("disk.control")])
    assert disk.stop() == 0
    with open(image, "rb") as f:
        data = f.read()
    recorder.check(lambda at, length: data[at:at + length])


@test(timeout=120)
def what_is_quiesced_is_a_whole_image_without_its_journal(bed):
    image = bed.image("db.raw", BLOCKS * 4096)
    disk = journaled(bed, image)
    sequence = Sequence(disk, bed.random)
    thread = threading.Thread(target=sequence.run, daemon=True)
    thread.start()
    eventually(lambda: disk.stats()["counters"]["journal_windows"] > 3, "windows go through the journal")
    quiesce = [bed.program, "disk", "quiesce", "disk", "--control", bed.path("disk.control")]
    for _ in range(5):
        held = json.loads(bed.run(quiesce + ["--for", "1m", "--json"]))
        assert held["held"], held
        log = disk.stats()["log"]
        assert log["limited_by"] == "held" and log["primary_is_consistent"], log
        assert not log["journal"]["is_needed"], log
        copy = bed.path("snapshot.raw")
        bed.run(["cp", "--sparse=always", image, copy])
        before = sequence.acknowledged
        eventually(lambda: sequence.acknowledged > before, "the guest goes on")
        # Zero while the guest's next write is still on its way, and it grows from there: nothing is destaged.
        assert disk.stats()["log"]["primary_age_ns"] > held["primary_age_ns"], held
        bed.run(quiesce + ["--end"])
        assert sequence.check(copy) > 0
        time.sleep(bed.random.random() / 4)
    bed.run(quiesce + ["--for", "10ms"])
    eventually(lambda: disk.stats()["log"]["limited_by"] != "held", "it goes on by itself")
    late = bed.run(quiesce + ["--end"], code=None)
    assert late.returncode == 1 and "not held any more" in late.stderr, late.stderr
    bed.run([bed.program, "disk", "set", "disk", "--mode", "write-through", "--wait", "--control",
             bed.path("disk.control")])
    assert "nothing to hold" in bed.run(quiesce)
    sequence.stop = True
    thread.join(30)
    assert disk.stop() == 0


@test(timeout=120)
def strict_order_that_keeps_up_needs_no_journal_and_is_the_default(bed):
    image = bed.image("db.raw", 16 * MIB)
    disk = bed.disk("file:" + image, flash=bed.path("pool") + ":64MiB", mode="write-back",
                    extra=["--write-log", "16MiB"])
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    for n in range(100):
        h.pwrite(pattern(n * 4096, 4096, 1), n * 4096, nbd.CMD_FLAG_FUA)
        time.sleep(0.005)
    stats = disk.stats()
    assert stats["log"]["order"] == "journaled" and stats["log"]["journal"]["is_used"], stats["log"]
    assert (stats["counters"]["journal_windows"], stats["counters"]["journal_bytes"]) == (0, 0)
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def no_order_is_left_to_the_page_cache(bed):
    image = bed.image("disk.raw", 16 * MIB)
    try:
        os.close(os.open(image, os.O_RDWR | os.O_DIRECT))
    except OSError as why:
        raise Skip("the file system has no direct I/O: %s" % why)
    for query in ("", "?direct=off"):
        disk = bed.disk("file:" + image + query, flash=bed.path("pool") + ":64MiB", mode="write-back", extra=JOURNALED)
        journal = image + ".forebay-journal"
        opened = [fd for fd in os.listdir("/proc/%d/fd" % disk.process.pid)
                  if os.path.realpath("/proc/%d/fd/%s" % (disk.process.pid, fd)) == os.path.realpath(journal)]
        flags = [open("/proc/%d/fdinfo/%s" % (disk.process.pid, fd)).read() for fd in opened]
        is_direct = [bool(int(text.split("flags:")[1].split()[0], 8) & os.O_DIRECT) for text in flags]
        assert is_direct.count(True) == 1, (opened, flags)
        h = nbd.NBD()
        h.connect_uri(disk.uri)
        count = lambda name: disk.stats()["counters"][name]
        before = count("backend_flushes"), count("destage_batches")
        for block in range(64):
            h.pwrite(pattern(block * 4096, 4096, 1), block * 4096, nbd.CMD_FLAG_FUA)
        eventually(lambda: disk.stats()["log"]["dirty_bytes"] == 0, "it is destaged")
        flushes, batches = count("backend_flushes") - before[0], count("destage_batches") - before[1]
        # Direct, the file system keeps back which holes were filled.
        assert flushes >= batches - 1, (flushes, batches)
        said = bed.run([bed.program, "events", "--control", bed.path("disk.control")])
        assert ("through the page cache of this host" in said) == (query != ""), said
        assert disk.stop() == 0
