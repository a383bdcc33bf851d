"""On-disk formats of another version: told apart from damage, and left as they are for the program that knows them."""
import os
import re

from bed import MIB, pattern, test
import nbd

PAGE = 4096


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def checksum(page):
    """Of all of a page, taken with its own bytes as zeroes."""
    return crc32c(page[:8] + bytes(4) + page[12:]).to_bytes(4, "little")


def set_version(path, offsets, version):
    """Pages as a program of another version would write them: with a checksum that is right."""
    with open(path, "r+b") as f:
        for offset in offsets:
            f.seek(offset)
            page = bytearray(f.read(PAGE))
            assert page[8:12] == checksum(page), "it is a whole page"
            page[12:14] = version.to_bytes(2, "little")
            page[8:12] = checksum(page)
            f.seek(offset)
            f.write(page)


def superblocks(path):
    with open(path, "rb") as f:
        data = f.read(2 * MIB)
    return [at for at in range(0, len(data), PAGE) if data[at:at + 8] == b"FOREBAY\0"]


@test(forebay_only=True)
def a_pool_of_a_later_version_is_refused_and_opens_again_where_it_came_from(bed):
    image, flash = bed.image("disk.raw", 16 * MIB, "holes"), bed.path("flash")
    disk = bed.disk("file:" + image, mode="write-back", flash=flash + ":64MiB")
    bed.run([bed.program, "disk", "pause", "disk", "--control", bed.path("disk.control")])
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, MIB), 0)
    h.shutdown()
    assert disk.stop() == 0

    both = superblocks(flash)
    assert len(both) == 2, both
    set_version(flash, both, 2)
    with open(flash, "rb") as f:
        before = f.read()
    for command in [disk.command, [bed.program, "pool", "show", flash], [bed.program, "pool", "check", flash]]:
        refused = bed.run(command, code=None)
        assert refused.returncode != 0
        assert re.search(r"format 2, this one knows 1. Use that version", refused.stderr), refused.stderr
    with open(flash, "rb") as f:
        assert f.read() == before, "nothing is changed"
    assert os.path.getsize(image) == 16 * MIB

    set_version(flash, both, 1)
    disk.start()
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(MIB, 0)) == pattern(0, MIB)
