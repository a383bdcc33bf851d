"""The fence where primary storage has no times: exports, and block devices under several names."""
import json
import os

from bed import MIB, eventually, pattern, test
from test_block import loop_device
from test_fence import (FAR, OWN, SIZE, clean_disk, dirty_disk, end, forget, image_of, is_refused,
                        serves_what_was_written, written_at)
from test_write_back import attach, destaged, disk_command, nbdkit_on, write_back


@test(forebay_only=True)
def a_block_device_is_told_by_size_and_samples(bed):
    image = image_of(bed)
    with loop_device(image) as device:
        disk = dirty_disk(bed, "block:" + device)
        assert disk.stop() == 0
        disk.start()
        serves_what_was_written(disk)
        assert "does not tell when it was modified" in disk.log()
        disk_command(bed, disk, "pause", "disk")
        attach(disk).pwrite(pattern(OWN, 4096, 1), OWN)
        assert disk.stop() == 0
        written_at(device, 512)
        refused = bed.run(disk.command, code=None)
        assert refused.returncode == 1 and "sampled ranges" in refused.stderr, refused.stderr


@test(forebay_only=True)
def an_export_is_told_by_samples(bed):
    for begin, is_dirty in [(clean_disk, False), (dirty_disk, True)]:
        image = image_of(bed)
        primary = nbdkit_on(bed, image)
        disk = begin(bed, primary.uri)
        eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
        assert disk.stop() == 0
        disk.start()
        assert "weak evidence" in disk.log() and "does not tell when" in disk.log(), disk.log()
        if is_dirty:
            serves_what_was_written(disk)
            disk_command(bed, disk, "pause", "disk")
            attach(disk).pwrite(pattern(OWN, 4096, 1), OWN)
        assert disk.stop() == 0
        written_at(image, 512)
        if is_dirty:
            refused = bed.run(disk.command, code=None)
            assert refused.returncode == 1 and "sampled ranges" in refused.stderr, refused.stderr
        else:
            disk.start()
            assert "sampled ranges hold other bytes; the write log was empty" in disk.log()
            assert bytes(attach(disk).pread(4096, 512)) == pattern(512, 4096, 99)
            assert disk.stop() == 0
        assert primary.stop() == 0
        forget(bed, disk, image)


@test(forebay_only=True)
def an_export_of_another_size_is_refused_with_a_dirty_log(bed):
    image = image_of(bed)
    primary = nbdkit_on(bed, image)
    disk = write_back(bed, primary.uri)
    eventually(lambda: disk.stats()["mode_actual"] == "write-back", "it is in write-back")
    disk_command(bed, disk, "pause", "disk")
    attach(disk).pwrite(pattern(OWN, 4096, 1), OWN)
    disk.kill()
    primary.kill()
    os.truncate(image, SIZE + MIB)
    primary.start()
    refused = bed.run(disk.command, code=None)
    assert refused.returncode == 1 and "it has 17 MiB" in refused.stderr, refused.stderr
    primary.kill()
    os.truncate(image, SIZE)
    primary.start()
    assert json.loads(bed.run([bed.program, "pool", "show", bed.path("pool"), "--json"]))[
        "disks"][0]["dirty_records"] == 1


def never_starts(bed, disk, *expected):
    """A disk that is made, and refused with these words."""
    bed.servers.remove(disk)
    refused = bed.run(disk.command, code=None, timeout=30)
    assert refused.returncode == 1, refused.stderr
    for text in expected:
        assert text in refused.stderr, "%r is not in: %s" % (text, refused.stderr)
    return refused.stderr


@test(forebay_only=True)
def an_export_meets_its_dirty_log_under_every_name_and_spelling(bed):
    image = image_of(bed)
    primary = nbdkit_on(bed, image)
    spelt = primary.uri + "&connections=2"
    disk = dirty_disk(bed, primary.uri)
    assert disk.stop() == 0
    never_starts(bed, write_back(bed, spelt, name="other", wait=False), "under the name 'disk'", "--name disk")
    without_flash = bed.disk(spelt, ram="1MiB", name="third", wait=False)
    never_starts(bed, without_flash, "belongs to the disk 'disk'", "--take-over")
    again = write_back(bed, spelt)
    serves_what_was_written(again)
    destaged(again)
    assert again.stop() == 0


@test(forebay_only=True)
def an_export_is_cached_by_one_disk_of_a_host_at_a_time(bed):
    image = image_of(bed)
    primary = nbdkit_on(bed, image)
    spelt = primary.uri + "&connections=2"
    first = bed.disk(primary.uri, ram="1MiB", name="first")
    never_starts(bed, bed.disk(spelt, ram="1MiB", name="second", wait=False),
                 "it is served already, perhaps under another name",
                 "already in use by process %d" % first.process.pid)
    never_starts(bed, write_back(bed, spelt, name="third", wait=False), "it is served already")
    never_starts(bed, bed.disk(spelt, ram="1MiB", name="reader", extra=["--read-only"], wait=False),
                 "it is served already")
    attach(first).pwrite(pattern(OWN, 4096, 1), OWN)
    first.kill()
    readers = [bed.disk(uri, ram="1MiB", name=name, extra=["--read-only"])
               for uri, name in [(primary.uri, "one"), (spelt, "two")]]
    for reader in readers:
        assert bytes(attach(reader).pread(4096, OWN)) == pattern(OWN, 4096, 1)
    never_starts(bed, bed.disk(spelt, ram="1MiB", name="writer", wait=False), "it is served already")
    for reader in readers:
        assert reader.stop() == 0
    writer = bed.disk(spelt, ram="1MiB", name="writer")
    assert writer.stop() == 0
    again = bed.disk(primary.uri, ram="1MiB", name="again")
    assert bytes(attach(again).pread(4096, OWN)) == pattern(OWN, 4096, 1)
    assert again.stop() == 0


@test(forebay_only=True)
def an_export_whose_flash_is_absent_is_not_served_without_its_log(bed):
    for how in ["stopped", "killed"]:
        image = image_of(bed)
        primary = nbdkit_on(bed, image)
        disk = dirty_disk(bed, primary.uri)
        end(disk, how)
        os.rename(bed.path("pool"), bed.path("away"))
        refused = bed.run(disk.command, code=None, timeout=30)
        assert refused.returncode == 1 and "belongs to the disk 'disk'" in refused.stderr, refused.stderr
        uuid = refused.stderr.split("--take-over ")[1].split()[0]
        # Whoever takes it over is told from the disk when the flash is back.
        taken = write_back(bed, primary.uri, extra=["--take-over", uuid])
        attach(taken).pwrite(pattern(FAR, 4096, 99), FAR)
        destaged(taken)
        assert taken.stop() == 0
        os.unlink(bed.path("pool"))
        os.rename(bed.path("away"), bed.path("pool"))
        is_refused(bed, disk, "another disk was served from it")
        assert primary.stop() == 0
        forget(bed, disk, image)


@test(forebay_only=True)
def a_loop_device_and_its_file_are_the_same_primary_storage(bed):
    image = image_of(bed)
    with loop_device(image) as device:
        disk = dirty_disk(bed, "file:" + image)
        never_starts(bed, bed.disk("block:" + device, name="other", wait=False), "in use")
        assert disk.stop() == 0
        never_starts(bed, write_back(bed, "block:" + device, name="other", wait=False), "--name disk")
        never_starts(bed, bed.disk("block:" + device, name="other", wait=False), "belongs to the disk 'disk'")
        disk.start()
        serves_what_was_written(disk)
        assert disk.stop() == 0
