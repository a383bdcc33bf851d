"""Somebody replaces, removes, renames or cuts an image file while it is served: that is told, and what to do."""
import os
import shutil

from bed import MIB, eventually, pattern, test
import nbd
from test_warm import events
from test_write_back import attach, disk_command

KIB = 1024


def changed(disk):
    return disk.stats()["storage_changed"]


def told(bed, disk):
    """What `disk show` says of primary storage as its JSON does."""
    words = changed(disk)
    shown = disk_command(bed, disk, "show", "disk")
    assert (words is None) == ("PRIMARY STORAGE" not in shown) and (words or "") in shown, shown
    return words


def with_and_without_flash(bed):
    for name, extra in [("plain", {}), ("flash", {"flash": bed.path("pool") + ":16MiB"})]:
        image = bed.image(name + ".raw", 16 * MIB)
        yield image, bed.disk("file:" + image, ram="1MiB", **extra)


@test(forebay_only=True)
def an_image_that_is_replaced_or_removed_is_told_with_how_to_save_it(bed):
    for image, disk in with_and_without_flash(bed):
        assert told(bed, disk) is None
        h = attach(disk)
        for take_away, words in [(lambda: os.unlink(image), "was removed"),
                                 (lambda: shutil.copy(bed.image("other.raw", 16 * MIB, "holes"), image),
                                  "another file is at " + image)]:
            take_away()
            eventually(lambda: words in (changed(disk) or ""), "it is told")
            assert words in events(bed, disk)
            h.pwrite(pattern(0, 4096, 7), 0)
            h.flush()
            copy = next(word for word in told(bed, disk).split() if word.startswith("/proc/"))
            with open(copy, "rb") as f:
                assert f.read(4096) == pattern(0, 4096, 7), "that is not the disk"
        h.shutdown()
        disk.stop()


@test(forebay_only=True)
def an_image_that_is_renamed_is_missed_until_it_is_back(bed):
    for image, disk in with_and_without_flash(bed):
        os.rename(image, image + ".old")
        eventually(lambda: "put it back" in (changed(disk) or ""), "it is told")
        told(bed, disk)
        os.rename(image + ".old", image)
        eventually(lambda: changed(disk) is None, "it is back")
        told(bed, disk)
        assert "again where" in events(bed, disk)
        assert disk.stop() == 0


@test(forebay_only=True)
def an_image_that_is_cut_short_is_told_and_what_is_gone_reads_as_errors(bed):
    for image, disk in with_and_without_flash(bed):
        h = attach(disk)
        os.truncate(image, 8 * MIB + 4096)
        eventually(lambda: "cut short" in (changed(disk) or ""), "it is told")
        told(bed, disk)
        assert bytes(h.pread(4096, 8 * MIB)) == pattern(8 * MIB, 4096)
        for at, length in [(8 * MIB, 8192), (8 * MIB + 4096, 4096), (12 * MIB, 64 * KIB), (16 * MIB - 512, 512)]:
            try:
                h.pread(length, at)
                raise AssertionError("%d bytes at %d were read" % (length, at))
            except nbd.Error as error:
                assert error.errno == "EIO", error
        h.shutdown()
        disk.stop()
