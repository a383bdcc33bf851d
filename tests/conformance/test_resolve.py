"""What an administrator decides about a disk that was refused: its log is used, or discarded."""
import fcntl
import json
import os
import shutil

from bed import MIB, pattern, test
from test_fence import (FAR, OWN, SIZE, digest, dirty_disk, end, forget, image_of, is_refused,
                        serves_what_was_written, sidecar, written, written_at)
from test_write_back import attach, destaged, disk_command, nbdkit_on, write_back


def resolve(bed, *words, code=0):
    return bed.run([bed.program, "disk", "resolve", "disk", "--pool", bed.path("pool"), *words],
                   code=code)


def refused_disk(bed, how="stopped"):
    """A disk with 20 writes in its log, on an image that somebody else has written to."""
    image = image_of(bed)
    disk = dirty_disk(bed, "file:" + image)
    end(disk, how)
    written(image)
    is_refused(bed, disk)
    return image, disk


@test(forebay_only=True)
def resolve_shows_both_sides_and_changes_nothing_by_itself(bed):
    image, disk = refused_disk(bed)
    before = digest(bed.path("pool")), digest(image)
    said = resolve(bed)
    for text in ["was refused: decide", "80 KiB (81920 bytes) dirty in 20 writes", "--use-log", "closed 20",
                 "--discard-log 80KiB", "modified 20", "sidecar of disk 'disk'", "dirty"]:
        assert text in said, "%r is not in: %s" % (text, said)
    shown = json.loads(resolve(bed, "--json"))
    assert shown["dirty_bytes"] == 81920 and shown["is_unresolved"] and shown["size"] == SIZE, shown
    assert (digest(bed.path("pool")), digest(image)) == before
    is_refused(bed, disk)


@test(forebay_only=True)
def resolve_with_use_log_writes_the_log_over_what_is_there(bed):
    for how in ["stopped", "killed"]:
        image, disk = refused_disk(bed, how)
        resolve(bed, "--use-log")
        disk.start()
        serves_what_was_written(disk)
        h = attach(disk)
        assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99)
        destaged(disk)
        h.shutdown()
        assert disk.stop() == 0
        with open(image, "rb") as f:
            f.seek(OWN)
            assert f.read(4096) == pattern(OWN, 4096, 1)
        # It is an ordinary disk again.
        disk.start()
        assert disk.log().count("strong evidence") == 2, disk.log()
        assert disk.stop() == 0
        forget(bed, disk, image)


@test(forebay_only=True)
def resolve_discards_the_log_when_its_amount_is_typed(bed):
    for how, amount in [("stopped", "80KiB"), ("killed", "81920"), ("stopped", "80 KiB")]:
        image, disk = refused_disk(bed, how)
        for wrong in ["all", "79KiB", "1GiB", "0", ""]:
            refused = resolve(bed, "--discard-log", wrong, code=None)
            assert refused.returncode == 1 and "--discard-log 80KiB" in refused.stderr, refused.stderr
        is_refused(bed, disk)
        resolve(bed, "--discard-log", amount)
        assert "state clean" in open(sidecar(image)).read()
        disk.start()
        h = attach(disk)
        assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096)
        assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99)
        h.pwrite(pattern(OWN, 4096, 5), OWN)
        h.flush()
        disk.restart()
        assert bytes(attach(disk).pread(4096, OWN)) == pattern(OWN, 4096, 5)
        assert disk.stop() == 0
        forget(bed, disk, image)


@test(forebay_only=True)
def resolve_takes_another_disks_image_an_older_flash_and_another_size(bed):
    # Shrunk below what the log writes, then long enough.
    image = image_of(bed)
    disk = dirty_disk(bed, "file:" + image)
    assert disk.stop() == 0
    os.truncate(image, OWN + MIB // 32)
    is_refused(bed, disk, "it has")
    refused = resolve(bed, "--use-log", code=None)
    assert refused.returncode == 1 and "make it that long first" in refused.stderr, refused.stderr
    os.truncate(image, 20 * MIB)
    resolve(bed, "--use-log")
    disk.start()
    serves_what_was_written(disk)
    assert attach(disk).get_size() == 20 * MIB
    disk_command(bed, disk, "pause", "disk")
    attach(disk).pwrite(pattern(OWN, 4096, 1), OWN)
    assert disk.stop() == 0
    # An older copy of the flash: no generation of the newer one is used again.
    shutil.copyfile(bed.path("pool"), bed.path("pool.old"))
    for _ in range(3):
        disk.start()
        assert disk.stop() == 0
    shutil.copyfile(bed.path("pool.old"), bed.path("pool"))
    refused = bed.run(disk.command, code=None)
    assert "an old copy of the flash" in refused.stderr, refused.stderr
    resolve(bed, "--use-log")
    disk.start()
    serves_what_was_written(disk)
    disk.kill()
    shown = json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))
    assert shown["disks"][0]["generation"] >= 6, shown


@test(forebay_only=True)
def resolve_uses_a_log_with_a_hole_as_far_as_it_goes_when_told_to(bed):
    image = image_of(bed)
    disk = write_back(bed, "file:" + image)
    disk_command(bed, disk, "pause", "disk")
    h = attach(disk)
    for n in range(40):
        h.pwrite(pattern(OWN + n * 8192, 4096, n + 1), OWN + n * 8192)
        if n % 2:
            h.flush()
    assert disk.stop() == 0
    with open(bed.path("pool"), "r+b") as f:
        data = f.read()
        at = data.find(pattern(OWN + 20 * 8192, 4096, 21))
        f.seek(at - 4096)
        f.write(b"torn")
    refused = bed.run(disk.command, code=None)
    assert refused.returncode == 1 and "records are missing" in refused.stderr, refused.stderr
    assert "disk resolve" in refused.stderr, refused.stderr
    said = resolve(bed)
    # Also those that no later group claims: the disk was left in order.
    assert "20 writes that were durable or staged are lost" in said and "in 20 writes" in said, said
    resolve(bed, "--use-log")
    disk.start()
    serves_what_was_written(disk, 20)
    h = attach(disk)
    for n in range(20, 40):
        assert bytes(h.pread(4096, OWN + n * 8192)) == pattern(OWN + n * 8192, 4096), n
    disk.restart()
    serves_what_was_written(disk, 20)
    assert disk.stop() == 0


@test(forebay_only=True)
def resolve_says_what_it_cannot_lock_and_takes_nothing_that_is_in_use(bed):
    image = image_of(bed)
    primary = nbdkit_on(bed, image)
    disk = dirty_disk(bed, primary.uri)
    assert disk.stop() == 0
    written_at(image, 512)
    refused = bed.run(disk.command, code=None)
    assert "sampled ranges" in refused.stderr, refused.stderr
    with open(bed.path("no-folder"), "w"):
        pass
    # Where nothing can be locked that is said.
    unlocked = ["--state-dir", bed.path("no-folder")]
    assert "warning: " + bed.path("no-folder") in resolve(bed, *unlocked)
    shown = json.loads(resolve(bed, *unlocked, "--json"))
    assert len(shown["warnings"]) == 1 and "cannot be locked" in shown["warnings"][0], shown
    [lock] = [name for name in os.listdir(bed.path("state")) if name.endswith(".lock")]
    state = ["--state-dir", bed.path("state")]
    with open(os.path.join(bed.path("state"), lock)) as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        for words in [[], ["--use-log"], ["--discard-log", "80KiB"]]:
            result = resolve(bed, *state, *words, code=None)
            assert result.returncode == 1 and "served already" in result.stderr, result.stderr
    assert json.loads(resolve(bed, *state, "--json"))["warnings"] == []
    # Nothing is decided that no sidecar can say.
    result = resolve(bed, *unlocked, "--use-log", code=None)
    assert result.returncode == 1 and "cannot write its sidecar" in result.stderr, result.stderr
    decided = json.loads(resolve(bed, *state, "--use-log", "--json"))
    assert decided == {"disk": "disk", "decided": "use-log", "warnings": []}, decided
    disk.start()
    serves_what_was_written(disk)
    assert disk.stop() == 0


@test(forebay_only=True)
def resolve_is_not_for_a_disk_that_is_served(bed):
    disk = dirty_disk(bed, "file:" + image_of(bed))
    refused = resolve(bed, code=None)
    assert refused.returncode == 1 and "stop its daemon" in refused.stderr, refused.stderr
    serves_what_was_written(disk)
