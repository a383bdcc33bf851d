"""Primary storage changes behind the disk's back, in each way that it can: nothing stale is served, no log is written over it."""
import json
import os
import shutil

from bed import MIB, eventually, pattern, remove_staging, test
import nbd
from test_write_back import attach, destaged, disk_command, write_back

SIZE = 16 * MIB
FAR = 9 * MIB      # outside the first and the last MiB
OWN = 4 * MIB      # where the disk writes
FUTURE = 3600      # seconds that a change may lie after the last write, without waiting for them


def image_of(bed):
    return bed.image("disk.raw", SIZE)


def sidecar(image):
    return image + ".forebay"


def dirty_disk(bed, backend, **more):
    """A disk whose log holds writes that stay there."""
    disk = write_back(bed, backend, **more)
    disk_command(bed, disk, "pause", "disk")
    h = attach(disk)
    for n in range(20):
        h.pwrite(pattern(OWN + n * 8192, 4096, n + 1), OWN + n * 8192)
    h.flush()
    return disk


def clean_disk(bed, backend, **more):
    """A disk that has written, and whose log is empty."""
    disk = write_back(bed, backend, **more)
    h = attach(disk)
    for n in range(20):
        h.pwrite(pattern(OWN + n * 8192, 4096, n + 1), OWN + n * 8192)
        h.pread(4096, FAR)
    h.flush()
    destaged(disk)
    return disk


def serves_what_was_written(disk, count=20):
    h = attach(disk)
    for n in range(count):
        assert bytes(h.pread(4096, OWN + n * 8192)) == pattern(OWN + n * 8192, 4096, n + 1), n
    h.shutdown()


def is_refused(bed, disk, *expected):
    """It does not start, says why, and primary storage and the log stay as they are."""
    result = bed.run(disk.command, code=None, timeout=30)
    assert result.returncode == 1, result.returncode
    for text in ["changed by somebody else", "--use-log", "--discard-log 80KiB", *expected]:
        assert text in result.stderr, "%r is not in: %s" % (text, result.stderr)
    shown = bed.run([bed.program, "pool", "show", bed.path("pool")])
    assert "needs 'forebay disk resolve'" in shown and "20 writes (80 KiB)" in shown, shown


def digest(path):
    with open(path, "rb") as f:
        return hash(f.read())


# ---- ways to change an image; each leaves FAR with version 99 where it can

def written(image):
    with open(image, "r+b") as f:
        f.seek(FAR)
        f.write(pattern(FAR, 4096, 99))
    later(image)


def later(image):
    now = os.stat(image).st_mtime
    os.utime(image, (now + FUTURE, now + FUTURE))


def replaced_by_a_copy(image):
    shutil.copyfile(image, image + ".copy")
    written(image + ".copy")
    os.rename(image + ".copy", image)


def restored_from_a_backup_with_its_times(image):
    os.utime(image + ".backup", (10**9, 10**9))
    written_at(image + ".backup", FAR)
    os.utime(image + ".backup", (10**9, 10**9))
    shutil.copy2(image + ".backup", image)


def written_at(image, at):
    with open(image, "r+b") as f:
        f.seek(at)
        f.write(pattern(at, 4096, 99))


def grown(image):
    written(image)
    os.truncate(image, SIZE + MIB)


def shrunk(image):
    written(image)
    os.truncate(image, SIZE - MIB)


def written_with_the_time_set_back(image):
    before = os.stat(image)
    written_at(image, FAR)
    written_at(image, 512)  # among the samples
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))


WAYS = [written, replaced_by_a_copy, restored_from_a_backup_with_its_times, grown, shrunk]


def end(disk, how):
    if how == "stopped":
        assert disk.stop() == 0
    else:
        disk.kill()


def each_way(ways, hows=("stopped", "killed")):
    return [(way, how) for way in ways for how in hows]


@test(forebay_only=True, timeout=400)
def a_clean_disk_serves_what_somebody_else_wrote(bed):
    ways = each_way(WAYS) + [(written_with_the_time_set_back, "stopped")]
    for way, how in ways:
        print("----", way.__name__, how, flush=True)
        image = image_of(bed)
        shutil.copyfile(image, image + ".backup")
        disk = clean_disk(bed, "file:" + image)
        end(disk, how)
        way(image)
        disk.start()
        h = attach(disk)
        assert h.get_size() == os.path.getsize(image)
        assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99)
        h.shutdown()
        events = bed.run([bed.program, "events", "disk", "--control", bed.path("disk.control")])
        assert "changed by somebody else" in events and "log was empty" in events, events
        assert disk.stop() == 0
        forget(bed, disk, image)


@test(forebay_only=True, timeout=400)
def a_dirty_log_is_refused_when_somebody_else_wrote(bed):
    ways = each_way(WAYS) + [(written_with_the_time_set_back, "stopped")]
    for way, how in ways:
        print("----", way.__name__, how, flush=True)
        image = image_of(bed)
        shutil.copyfile(image, image + ".backup")
        disk = dirty_disk(bed, "file:" + image)
        end(disk, how)
        shutil.copy2(image, image + ".before")
        before = os.stat(image)
        way(image)
        changed = digest(image)
        is_refused(bed, disk, "20 writes", "generation 2", image, "modified")
        assert digest(image) == changed, "a refused disk changed primary storage"
        # What it was is put back, as far as anybody can: it stays refused until it is resolved.
        shutil.copy2(image + ".before", image)
        os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
        is_refused(bed, disk, "nobody has resolved it")
        forget(bed, disk, image)


def forget(bed, disk, image):
    """What one round left: the next one begins with nothing."""
    remove_staging(bed.directory, bed.program)
    shutil.rmtree(bed.path("state"), ignore_errors=True)
    for path in [bed.path("pool"), image, sidecar(image), image + ".backup", image + ".before"]:
        if os.path.exists(path):
            os.unlink(path)
    disk.was_ended = True


@test(forebay_only=True)
def what_nobody_changed_is_strong_evidence(bed):
    image = image_of(bed)
    disk = dirty_disk(bed, "file:" + image)
    for how in ["killed", "stopped", "killed", "killed", "stopped"]:
        end(disk, how)
        disk.start()
        serves_what_was_written(disk)
        assert "strong evidence" in disk.log().splitlines()[-1] or "strong evidence" in disk.log()
    # With destaging at work, too.
    for _ in range(5):
        disk.kill()
        disk.start()
        serves_what_was_written(disk)
    destaged(disk)
    assert disk.stop() == 0
    log = disk.log()
    assert log.count("strong evidence") == 10 and "weak" not in log, log
    assert "state clean" in open(sidecar(image)).read()


@test(forebay_only=True)
def without_its_sidecar_or_with_a_time_that_was_set_the_evidence_is_weak(bed):
    image = image_of(bed)
    disk = dirty_disk(bed, "file:" + image)
    assert disk.stop() == 0
    assert "state dirty" in open(sidecar(image)).read()
    os.unlink(sidecar(image))
    disk.start()
    serves_what_was_written(disk)
    assert "weak evidence" in disk.log() and "sidecar" in disk.log()
    disk.kill()
    assert "weak when its log went on" in bed.run([bed.program, "pool", "show", bed.path("pool")])
    disk.start()
    destaged(disk)
    assert disk.stop() == 0
    # Outside the samples, with the time set back: the one change that is not told from none.
    before = os.stat(image)
    written_at(image, OWN + 4096)
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    disk.start()
    assert "its metadata changed" in disk.log()
    assert disk.log().count("weak evidence") == 2, disk.log()
    shown = disk_command(bed, disk, "show", "disk")
    assert "evidence at start weak: its metadata changed" in shown, shown
    assert disk.stop() == 0


@test(forebay_only=True)
def an_end_whose_sidecar_cannot_be_written_is_a_good_end(bed):
    image = image_of(bed)
    disk = bed.disk("file:" + image, ram="1MiB", flash=bed.path("pool") + ":16MiB")
    attach(disk).pread(4096, 0)
    os.mkdir(sidecar(image) + ".new")
    assert disk.stop() == 0
    assert "nothing acknowledged depends on it" in disk.log(), disk.log()
    os.rmdir(sidecar(image) + ".new")
    disk.start()
    assert "strong evidence" in disk.log(), disk.log()
    assert disk.stop() == 0


def without_flash(bed, image, *more, name="plain"):
    """The command of a disk without flash."""
    return [bed.program, "run", "file:" + image, "--name", name, "--ram", "1MiB", "--nbd", "unix:" + bed.path("x.sock"),
            "--control", bed.path("x.control"), "--state-dir", bed.path("state"), *more]


@test(forebay_only=True)
def a_renamed_image_with_a_dirty_log_is_refused_until_it_is_put_back_or_taken_over(bed):
    image, renamed = image_of(bed), bed.path("renamed.raw")
    disk = dirty_disk(bed, "file:" + image)
    assert disk.stop() == 0
    os.link(image, bed.path("other-name"))
    os.rename(image, renamed)
    # Something else under its old name says nothing of it.
    for puts_another_there in [False, True]:
        if puts_another_there:
            bed.image("disk.raw", MIB)
        for name in [renamed, bed.path("other-name")]:
            for more in [[], ["--read-only"], ["--flash", bed.path("other-pool") + ":16MiB"]]:
                refused = bed.run(without_flash(bed, name, *more), code=None)
                assert refused.returncode == 1, refused.stderr
                for text in ["another name, %s," % image, "'disk'", bed.path("pool"), "--take-over"]:
                    assert text in refused.stderr, (text, refused.stderr)
    uuid = refused.stderr.split("--take-over ")[1].split()[0]
    os.rename(renamed, image)
    disk.start()
    serves_what_was_written(disk)
    disk_command(bed, disk, "pause", "disk")
    attach(disk).pwrite(pattern(OWN, 4096, 1), OWN)
    assert disk.stop() == 0
    os.rename(image, renamed)
    for more in [["--take-over", uuid], []]:
        taken = bed.disk("file:" + renamed, ram="1MiB", name="taken", extra=more)
        assert taken.stop() == 0
        bed.servers.remove(taken)


@test(forebay_only=True)
def an_old_copy_of_the_pool_is_refused_after_a_detach(bed):
    image = image_of(bed)
    disk = dirty_disk(bed, "file:" + image)
    disk.kill()
    shutil.copyfile(bed.path("pool"), bed.path("old-pool"))
    disk.start()
    destaged(disk)
    h = attach(disk)
    for n in range(20):
        h.pwrite(pattern(OWN + n * 8192, 4096, 50 + n), OWN + n * 8192)
    h.shutdown()
    disk.was_ended = True
    disk_command(bed, disk, "detach", "disk")
    assert disk.process.wait(30) == 0
    assert not os.path.exists(sidecar(image))
    there = digest(image)
    shutil.copyfile(bed.path("old-pool"), bed.path("pool"))
    for _ in range(2):
        refused = bed.run(disk.command, code=None)
        assert refused.returncode == 1 and "resolve disk" in refused.stderr, refused.stderr
        assert digest(image) == there, "it was written to"
    assert "was detached" in refused.stderr or "nobody has resolved it" in refused.stderr, refused.stderr
    bed.run([bed.program, "disk", "resolve", "disk", "--pool", bed.path("pool"), "--state-dir", bed.path("state"),
             "--discard-log", "80KiB"])
    disk.start()
    h = attach(disk)
    for n in range(20):
        assert bytes(h.pread(4096, OWN + n * 8192)) == pattern(OWN + n * 8192, 4096, 50 + n), n
    h.shutdown()
    assert disk.stop() == 0
    disk.start()
    assert "strong evidence" in disk.log(), disk.log()
    assert disk.stop() == 0


def other_pool(bed, image, *more):
    """A disk of another pool on the same image."""
    return bed.disk("file:" + image, ram="2MiB", flash=bed.path("other-pool") + ":16MiB",
                    mode="write-back", name="other", extra=["--write-log", "4MiB", *more], wait=False)


@test(forebay_only=True)
def an_image_whose_log_is_dirty_in_another_pool_is_refused_unless_it_is_taken_over(bed):
    for how in ["stopped", "killed"]:
        image = image_of(bed)
        disk = dirty_disk(bed, "file:" + image)
        end(disk, how)
        other = other_pool(bed, image)
        bed.servers.remove(other)  # it never runs
        refused = bed.run(other.command, code=None)
        assert refused.returncode == 1, refused.stderr
        assert "belongs to the disk 'disk'" in refused.stderr, refused.stderr
        without_flash = bed.run([bed.program, "run", "file:" + image, "--ram", "1MiB", "--nbd",
                                 "unix:" + bed.path("x.sock"), "--control", bed.path("x.control")],
                                code=None)
        assert "--take-over" in without_flash.stderr, without_flash.stderr
        uuid = refused.stderr.split("--take-over ")[1].split()[0]
        other = other_pool(bed, image, "--take-over", uuid)
        other.start()
        attach(other).pwrite(pattern(FAR, 4096, 99), FAR)
        destaged(other)
        assert other.stop() == 0
        is_refused(bed, disk, "another disk was served from it", "other")
        forget(bed, disk, image)
        os.unlink(bed.path("other-pool"))


@test(forebay_only=True)
def an_image_has_its_log_under_every_name_that_it_has(bed):
    for how in ["stopped", "killed"]:
        image, second = image_of(bed), bed.path("second.raw")
        disk = dirty_disk(bed, "file:" + image)
        end(disk, how)
        os.link(image, second)
        other = other_pool(bed, second)
        bed.servers.remove(other)  # it never runs
        refused = bed.run(other.command, code=None)
        assert "belongs to the disk 'disk'" in refused.stderr, refused.stderr
        without_flash = bed.run([bed.program, "run", "file:" + second, "--ram", "1MiB", "--nbd",
                                 "unix:" + bed.path("x.sock"), "--control", bed.path("x.control"),
                                 "--state-dir", bed.path("state")], code=None)
        assert "--take-over" in without_flash.stderr, without_flash.stderr
        # Under its own name the disk goes on, and leaves one sidecar.
        disk.command = ["file:" + second if word == "file:" + image else word for word in disk.command]
        disk.start()
        serves_what_was_written(disk)
        destaged(disk)
        assert disk.stop() == 0
        assert "state clean" in open(sidecar(image)).read() and not os.path.exists(sidecar(second))
        os.unlink(second)
        forget(bed, disk, image)
        assert not os.path.exists(bed.path("other-pool")), "no disk came to use it"


@test(forebay_only=True)
def another_pool_that_served_the_image_meanwhile_is_noticed(bed):
    image = image_of(bed)
    disk = clean_disk(bed, "file:" + image)
    assert disk.stop() == 0
    other = other_pool(bed, image)
    other.start()
    attach(other).pwrite(pattern(FAR, 4096, 99), FAR)
    destaged(other)
    assert other.stop() == 0
    disk.start()
    assert bytes(attach(disk).pread(4096, FAR)) == pattern(FAR, 4096, 99)
    assert "another disk was served from it" in disk.log()
    assert disk.stop() == 0


@test(forebay_only=True)
def an_old_copy_of_the_flash_is_noticed(bed):
    image = image_of(bed)
    for begin, is_dirty in [(clean_disk, False), (dirty_disk, True)]:
        disk = begin(bed, "file:" + image)
        assert disk.stop() == 0
        shutil.copyfile(bed.path("pool"), bed.path("pool.old"))
        disk.start()
        h = attach(disk)
        h.pwrite(pattern(FAR, 4096, 99), FAR)
        destaged(disk)
        assert disk.stop() == 0
        shutil.copyfile(bed.path("pool.old"), bed.path("pool"))
        if is_dirty:
            is_refused(bed, disk, "an old copy of the flash was put back")
        else:
            disk.start()
            assert bytes(attach(disk).pread(4096, FAR)) == pattern(FAR, 4096, 99)
            assert "an old copy of the flash was put back" in disk.log()
            assert disk.stop() == 0
        forget(bed, disk, image)
        image = image_of(bed)


@test(forebay_only=True)
def a_detached_disk_leaves_no_sidecar(bed):
    image = image_of(bed)
    disk = clean_disk(bed, "file:" + image)
    assert os.path.exists(sidecar(image))
    eventually(lambda: disk.stats()["connections"] == 0, "the client is gone")
    disk_command(bed, disk, "detach", "disk")
    disk.was_ended = True
    assert disk.process.wait(30) == 0
    assert not os.path.exists(sidecar(image))


@test(forebay_only=True)
def a_read_only_disk_writes_no_sidecar(bed):
    image = image_of(bed)
    disk = bed.disk("file:" + image, ram="2MiB", flash=bed.path("pool") + ":16MiB",
                    extra=["--read-only"])
    attach(disk).pread(4096, 0)
    assert not os.path.exists(sidecar(image))
    assert disk.stop() == 0
    assert not os.path.exists(sidecar(image))


# ---- a daemon of several disks, and its cache

def two_disks(bed):
    """Two disks of one daemon on one pool; the first one's log is dirty."""
    first, second = bed.image("first.raw", SIZE), bed.image("second.raw", SIZE)
    config = ""
    for name, image in [("first", first), ("second", second)]:
        config += '[[disk]]\nname = "%s"\nbackend = "file:%s"\nram = "2MiB"\nmode = "write-back"\n' % (
            name, image)
        config += 'flash = "%s:16MiB"\nwrite-log = "4MiB"\nnbd = ["unix:%s"]\n\n' % (
            bed.path("pool"), bed.path(name + ".sock"))
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("both.sock")
    daemon = bed.serve('control = "%s"\n' % bed.path("serve.control") + config,
                       ["unix:" + bed.path("both.sock")])
    return daemon, first, second


@test(forebay_only=True)
def a_refused_disk_keeps_no_other_from_being_served(bed):
    daemon, first, second = two_disks(bed)
    control = ["--control", bed.path("serve.control")]
    bed.run([bed.program, "disk", "pause", "first", *control])
    for name in ["first", "second"]:
        h = nbd.NBD()
        h.connect_uri(daemon.uri_of(name))
        h.pwrite(pattern(OWN, 4096, 1), OWN)
        h.shutdown()
    assert daemon.stop() == 0
    written(first)
    daemon.start()
    assert "disk first: NOT SERVED" in daemon.said, daemon.said
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of("second"))
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    listed = json.loads(bed.run(["nbdinfo", "--list", "--json", daemon.uri]))
    assert [export["export-name"] for export in listed["exports"]] == ["second"], listed
    assert not os.path.exists(bed.path("first.sock"))
    assert "first  NOT SERVED" in bed.run([bed.program, "disk", "list", *control])
    shown = bed.run([bed.program, "disk", "show", "first", *control], code=None)
    assert shown.returncode == 1 and "--discard-log 4KiB" in shown.stderr, shown.stderr
    events = bed.run([bed.program, "events", *control])
    assert "first  the disk is not served: primary storage was changed" in events, events
    assert daemon.stop() == 0
    bed.run([bed.program, "disk", "resolve", "first", "--pool", bed.path("pool"), "--use-log"])
    daemon.start()
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of("first"))
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99)
    assert daemon.stop() == 0
