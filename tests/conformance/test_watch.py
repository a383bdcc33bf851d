"""What watches an image: a write of the disk's own is never taken for somebody else's."""
import json
import os
import re
import shutil
import subprocess
import time

from bed import MIB, eventually, need_program, on_tmpfs, pattern, test
from test_reload import Served, client, disk
from test_warm import fill, recorded
from test_write_back import attach, destaged, disk_command, opened, write_back


@test(forebay_only=True)
def a_write_whose_note_is_held_up_is_not_taken_for_somebody_elses(bed):
    need_program("strace")
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, ram="2MiB", flash=bed.path("pool") + ":16MiB",
                    extra=["--reactor", "epoll"])
    assert disk.stop() == 0
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    trail = on_tmpfs("forebay-%s.trail" % shown["disks"][0]["uuid"])
    # Five looks at the image fit into the time that a note takes.
    disk.command = ["strace", "-D", "-f", "-qq", "-o", bed.path("calls"), "-P", trail, "-e", "trace=pwrite64",
                    "-e", "inject=pwrite64:delay_enter=1000000", *disk.command]
    disk.start()
    h = attach(disk)

    def seen():
        with open(trail, "rb") as f:
            f.seek(16)
            return f.read(16)

    before = seen()
    h.pwrite(pattern(0, MIB, 3), 0)
    eventually(lambda: seen() != before, "the time of the write was seen")
    events = bed.run([bed.program, "events", "disk", "--control", bed.path("disk.control")])
    assert "was modified while" not in events, events
    h.shutdown()
    assert disk.stop() == 0
    assert os.path.getsize(image) == 16 * MIB


@test(forebay_only=True)
def a_write_of_somebody_else_is_told_until_the_cache_is_dropped(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, ram="2MiB", flash=bed.path("pool") + ":16MiB")
    control = ["--control", bed.path("disk.control")]
    h = attach(disk)
    h.pwrite(pattern(0, MIB, 3), 0)
    h.flush()

    def changed():
        return json.loads(bed.run([bed.program, "stats", "disk", "--json", *control]))["storage_changed"]

    # A look comes every second: one that saw the write of the disk tells of nothing.
    time.sleep(2)
    assert changed() is None
    with open(image, "r+b") as f:
        f.seek(8 * MIB)
        f.write(b"somebody else")
    eventually(lambda: "was modified while" in (changed() or ""), "it is shown")
    assert "was modified while" in bed.run([bed.program, "events", "disk", *control])
    bed.run([bed.program, "disk", "drop-cache", "disk", *control])
    assert changed() is None
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_disk_with_the_last_copy_of_its_image_is_ended_by_consent_alone(bed):
    for name in ("a", "b"):
        bed.image(name + ".raw", 8 * MIB)
    a, b = disk(bed, "a"), disk(bed, "b")
    served = Served(bed, a, b)
    h = client(bed, "b")
    h.pwrite(pattern(0, MIB, 3), 0)
    h.shutdown()
    eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")

    def ask(*words, code):
        return bed.run([bed.program, "disk", *words, "--control", served.control], code=code)

    def refused():
        for word in ("detach", "remove"):
            said = ask(word, "b", code=None)
            assert said.returncode == 1 and "that is to be put right first" in said.stderr, said
            assert "forebay disk detach b --force" in said.stderr, said
        served.write(a)
        kind, why = served.reload(code=1)["b"]
        assert "that is to be put right first" in why, (kind, why)
        served.write(a, b)
        served.reload()
        assert served.disks() == ["a", "b"]

    image, away = bed.path("b.raw"), bed.path("away")
    os.rename(image, away)
    refused()
    os.rename(away, image)
    ask("detach", "b", code=0)
    ask("open", "b", code=0)
    os.unlink(image)
    refused()
    eventually(lambda: served.stats("b")["storage_changed"], "the watch has seen it")
    shutil.copyfile(copy_of(served.stats("b")["storage_changed"]), away)
    os.rename(away, image)
    refused()
    said = ask("detach", "b", "--force", code=0)
    assert "detached with --force" in said and "everything" not in said, said
    assert "ends the disk with --force, although another file is at" in served.events()
    ask("open", "b", code=0)
    h = client(bed, "b")
    assert bytes(h.pread(MIB, 0)) == pattern(0, MIB, 3)
    h.shutdown()
    assert served.server.stop() == 0


def copy_of(said):
    """From where the daemon says that the image can be copied."""
    return re.search(r"copy (/proc/\d+/fd/\d+) ", said).group(1)


@test(forebay_only=True)
def a_detach_is_cancelled_when_the_image_is_removed_while_it_destages(bed):
    image = bed.image("disk.raw", 16 * MIB)
    served = write_back(bed, "model:san?latency=300ms&inner=file:" + image)
    h = attach(served)
    for n in range(64):
        h.pwrite(pattern(n * 131072, 4096, 1), n * 131072)
    h.shutdown()
    eventually(lambda: served.stats()["connections"] == 0, "its client has left")
    ask = [bed.program, "disk", "detach", served.name, "--control", bed.path(served.name + ".control")]
    detach = subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: served.stats()["is_detaching"], "it has begun")
    os.unlink(image)
    _, said = detach.communicate(timeout=60)
    assert detach.returncode == 1 and "the detach was cancelled: the image" in said, said
    assert not served.stats()["is_detaching"]
    h = attach(served)
    for n in range(64):
        assert bytes(h.pread(4096, n * 131072)) == pattern(n * 131072, 4096, 1), n
    h.shutdown()
    eventually(lambda: served.stats()["connections"] == 0, "its client has left")
    assert json.loads(bed.run([*ask, "--force", "--json"]))["clean"] is None, "nobody knows"
    served.was_ended = True
    assert served.process.wait(timeout=60) == 0
    assert "the disk was detached with --force: the image" in served.log()


FAR = 8 * MIB


def cached_and_written_over(bed, extra=()):
    """A disk that has blocks on flash which somebody else has written over since, which it has noticed."""
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, ram="0", flash=bed.path("pool") + ":16MiB",
                    extra=["--flash-admission", "always", "--bypass-sequential", "off", *extra])
    h = attach(disk)
    fill(disk, h, FAR, MIB)
    fill(disk, h, 2 * MIB, MIB)
    recorded(disk)
    write_over(image, 7)
    eventually(lambda: disk.stats()["storage_changed"], "it is noticed")
    assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096), "flash has what was there before"
    return image, disk, h


def write_over(image, version):
    with open(image, "r+b") as f:
        f.seek(FAR)
        f.write(pattern(FAR, MIB, version))


def serves(disk, version):
    h = attach(disk)
    for at in range(FAR, FAR + MIB, 8192):
        assert bytes(h.pread(8192, at)) == pattern(at, 8192, version), at
    h.shutdown()


def own_write(disk, h):
    """A write of the disk elsewhere, and a look that takes the time of the image for it."""
    with open(disk.bed.path("disk.raw.forebay")) as f:
        trail = on_tmpfs("forebay-%s.trail" % re.search(r"^disk (\S+)$", f.read(), re.M).group(1))

    def seen():
        with open(trail, "rb") as f:
            f.seek(16)
            return f.read(16)

    before = seen()
    h.pwrite(pattern(5 * MIB, 4096, 1), 5 * MIB)
    h.flush()
    eventually(lambda: seen() != before, "the time of the write was seen")


@test(forebay_only=True)
def what_somebody_else_wrote_while_a_disk_was_served_is_not_read_from_flash_after_an_orderly_end(bed):
    for extra in ([], ["--backend-exclusive"]):
        _, disk, h = cached_and_written_over(bed, extra)
        h.shutdown()
        assert disk.stop() == 0
        disk.start()
        assert not disk.stats()["ring"]["is_warm"]
        serves(disk, 7)
        # It is over with that: nothing was changed since.
        assert disk.stats()["storage_changed"] is None
        h = attach(disk)
        fill(disk, h, FAR, MIB)
        h.shutdown()
        assert disk.stop() == 0
        disk.start()
        assert disk.stats()["ring"]["is_warm"]
        serves(disk, 7)
        assert disk.stop() == 0
        for name in ("pool", "disk.raw", "disk.raw.forebay"):
            os.unlink(bed.path(name))


@test(forebay_only=True)
def what_somebody_else_wrote_while_a_disk_was_served_is_not_read_from_flash_after_a_kill(bed):
    _, disk, h = cached_and_written_over(bed)
    own_write(disk, h)
    disk.kill()
    disk.start()
    assert not disk.stats()["ring"]["is_warm"]
    serves(disk, 7)
    h = attach(disk)
    assert bytes(h.pread(4096, 5 * MIB)) == pattern(5 * MIB, 4096, 1)
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_cache_that_was_dropped_after_somebody_else_wrote_is_kept_from_then_on(bed):
    image, disk, h = cached_and_written_over(bed)
    drop = [bed.program, "disk", "drop-cache", "disk", "--control", bed.path("disk.control")]
    bed.run(drop)
    assert disk.stats()["storage_changed"] is None
    fill(disk, h, FAR, MIB)
    recorded(disk)
    own_write(disk, h)
    disk.restart()
    assert disk.stats()["ring"]["is_warm"]
    serves(disk, 7)
    # At once: no look has seen the write before the command.
    write_over(image, 8)
    bed.run(drop)
    serves(disk, 8)
    time.sleep(1)
    assert disk.stats()["storage_changed"] is None
    assert disk.stop() == 0
    disk.start()
    serves(disk, 8)
    assert "evidence at start strong" in bed.run([bed.program, "disk", "show", "disk", *drop[4:]])
    assert disk.stop() == 0


@test(forebay_only=True)
def a_log_is_not_written_over_what_somebody_else_wrote_while_its_disk_was_served(bed):
    image, disk, h = opened(bed)
    disk_command(bed, disk, "pause", "disk")
    h.pwrite(pattern(0, 81920, 1), 0)
    h.flush()
    write_over(image, 7)
    eventually(lambda: disk.stats()["storage_changed"], "it is noticed")
    # Nor does it end to be opened again: that would be refused.
    said = bed.run([bed.program, "disk", "set", "disk", "--block-size", "16KiB", "--control",
                    bed.path("disk.control")], code=None)
    assert said.returncode == 1 and "disk drop-cache disk" in said.stderr + said.stdout, said
    h.shutdown()
    assert disk.stop() == 0
    refused = bed.run(disk.command, code=None)
    assert refused.returncode == 1 and "modified while the disk was served" in refused.stderr, refused.stderr
    bed.run([bed.program, "disk", "resolve", "disk", "--pool", bed.path("pool"), "--use-log"])
    disk.start()
    h = attach(disk)
    assert bytes(h.pread(81920, 0)) == pattern(0, 81920, 1)
    assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 7)
    destaged(disk)
    # Who drops the cache has dealt with it: the log goes on.
    disk_command(bed, disk, "pause", "disk")
    h.pwrite(pattern(0, 81920, 2), 0)
    h.flush()
    h.shutdown()
    # Within a second of what was destaged it would be taken for that.
    time.sleep(2)
    write_over(image, 8)
    eventually(lambda: disk.stats()["storage_changed"], "it is noticed")
    disk_command(bed, disk, "drop-cache", "disk")
    assert disk.stop() == 0
    disk.start()
    serves(disk, 8)
    h = attach(disk)
    assert bytes(h.pread(81920, 0)) == pattern(0, 81920, 2)
    destaged(disk)
    # So it does when Forebay is killed.
    disk_command(bed, disk, "pause", "disk")
    h.pwrite(pattern(0, 81920, 3), 0)
    h.flush()
    time.sleep(2)
    write_over(image, 9)
    eventually(lambda: disk.stats()["storage_changed"], "it is noticed")
    disk_command(bed, disk, "drop-cache", "disk")
    disk.kill()
    disk.start()
    serves(disk, 9)
    h = attach(disk)
    assert bytes(h.pread(81920, 0)) == pattern(0, 81920, 3)
    h.shutdown()
    assert disk.stop() == 0
