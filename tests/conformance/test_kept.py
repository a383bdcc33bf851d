"""What a disk of an earlier version has left, kept as files: this version must go on with it.

`kept/vN.tar.xz` was made by the first program with version N of the formats. FOREBAY_KEEP=kept/vN.tar.xz makes another one.
"""
import json
import os
import tarfile

import nbd
from bed import Skip, pattern, test
from test_versions import PAGE, checksum

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kept")
SIZE, BLOCK = 512 * 1024, 4096
# What each block was last written with: version 1 was destaged, version 2 is only in the log.
DESTAGED, DIRTY = range(0, 128, 3), range(0, 128, 4)


def serve(bed, wait=True):
    return bed.disk("file:" + bed.path("disk.raw"), ram="256KiB", flash=bed.path("pool") + ":8MiB", mode="write-back",
                    block_size="4KiB", extra=["--write-log", "4MiB", "--write-cache", "off", "--grid-offset", "0"], wait=wait)


def attach(disk):
    handle = nbd.NBD()
    handle.connect_uri(disk.uri)
    return handle


def move(bed):
    """The records of the disk say that its primary storage has always been in this folder."""
    uri = ("file:" + bed.path("disk.raw")).encode()
    with open(bed.path("pool"), "r+b") as file:
        for at in range(0, os.path.getsize(bed.path("pool")), PAGE):
            file.seek(at)
            page = bytearray(file.read(PAGE))
            if page[272:277] == b"disk\0" and page[336:341] == b"file:" and page[8:12] == checksum(page):
                page[336:2384] = uri.ljust(2048, b"\0")
                page[8:12] = checksum(page)
                file.seek(at)
                file.write(page)


def expected(block):
    version = 2 if block in DIRTY else 1 if block in DESTAGED else 0
    return pattern(block * BLOCK, BLOCK, version)


def command(bed, *words):
    return bed.run([bed.program, *words, "--control", bed.path("disk.control")])


def make(bed, path):
    """A disk that was stopped: something is cached, something destaged, something dirty."""
    bed.image("disk.raw", SIZE)
    disk = serve(bed)
    handle = attach(disk)
    for block in range(128):
        handle.pread(BLOCK, block * BLOCK)
    for block in DESTAGED:
        handle.pwrite(pattern(block * BLOCK, BLOCK, 1), block * BLOCK)
    command(bed, "disk", "flush", "disk")
    command(bed, "disk", "pause", "disk")
    for block in DIRTY:
        handle.pwrite(pattern(block * BLOCK, BLOCK, 2), block * BLOCK)
    handle.shutdown()
    assert disk.stop() == 0
    with tarfile.open(path, "w:xz") as tar:
        for name in ("disk.raw", "disk.raw.forebay", "disk.raw.forebay-journal", "pool"):
            tar.add(bed.path(name), name)


@test(forebay_only=True)
def what_the_first_version_left_is_served_on(bed):
    if os.environ.get("FOREBAY_KEEP"):
        make(bed, os.environ["FOREBAY_KEEP"])
        raise Skip("it was made")
    for name in sorted(os.listdir(KEPT)):
        with tarfile.open(os.path.join(KEPT, name)) as tar:
            tar.extractall(bed.directory)
        move(bed)
        show = [bed.program, "pool", "show", bed.path("pool"), "--json"]
        left = json.loads(bed.run(show))["disks"][0]
        assert left["dirty_records"] == len(DIRTY) and left["ring"]["blocks"] > 0 and left["ring"]["closed"], left
        bed.run([bed.program, "pool", "check", bed.path("pool")])
        # The sidecar, too, is read: nobody can set the time of change of the files that were put here.
        disk = serve(bed, wait=False)
        refused = bed.run(disk.command, code=None)
        assert refused.returncode == 1 and "an old copy was put back" in refused.stderr, refused
        bed.run([bed.program, "disk", "resolve", "disk", "--pool", bed.path("pool"), "--use-log"])
        disk.start()
        handle = attach(disk)
        for _ in range(2):
            for block in range(128):
                assert bytes(handle.pread(BLOCK, block * BLOCK)) == expected(block), (name, block)
            command(bed, "disk", "flush", "disk")
        handle.shutdown()
        assert disk.stop() == 0
        with open(bed.path("disk.raw"), "rb") as image:
            assert image.read() == b"".join(expected(block) for block in range(128)), name
