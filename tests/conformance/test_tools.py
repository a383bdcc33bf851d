"""nbdinfo, nbdcopy, qemu-img, qemu-io."""
import json
import os

from bed import KIB, MIB, pattern, test


def open_disk(bed, size=16 * MIB, fill="pattern", **options):
    image = bed.image("disk.raw", size, fill)
    return image, bed.disk("file:" + image, **options)


@test
def nbdinfo_shows_size_and_what_the_export_can_do(bed):
    _, disk = open_disk(bed)
    info = json.loads(bed.run(["nbdinfo", "--json", disk.uri]))
    export = info["exports"][0]
    assert export["export-size"] == 16 * MIB
    assert info["structured"], "structured replies"
    for what in ("can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_cache"):
        assert export[what], what
    assert not export["is_read_only"]
    assert "base:allocation" in export["contexts"]


@test(forebay_only=True)
def nbdinfo_lists_every_disk_of_a_listener_by_name(bed):
    names = ["alpha", "beta"]
    socket = bed.path("all.sock")
    config = "[[nbd]]\nlisten = \"unix:%s\"\n" % socket
    for name in names:
        config += '[[disk]]\nname = "%s"\nbackend = "mem:%dMiB"\nram = "16MiB"\n' % (
            name, 32 + names.index(name))
    # Tables of arrays may come in any order.
    server = bed.serve(config, ["unix:" + socket])
    info = json.loads(bed.run(["nbdinfo", "--json", "--list", server.uri]))
    listed = {e["export-name"]: e["export-size"] for e in info["exports"]}
    assert listed == {"alpha": 32 * MIB, "beta": 33 * MIB}, listed
    for name, size in listed.items():
        assert int(bed.run(["nbdinfo", "--size", server.uri_of(name)])) == size
    bed.run(["nbdinfo", server.uri_of("gamma")], code=1)


@test
def nbdinfo_maps_holes_and_data_as_the_file_has_them(bed):
    image = bed.image("disk.raw", 4 * MIB, "holes")
    with open(image, "r+b") as f:
        f.seek(MIB)
        f.write(pattern(MIB, MIB))
    disk = bed.disk("file:" + image)
    extents = json.loads(bed.run(["nbdinfo", "--json", "--map", disk.uri]))
    data = [(e["offset"], e["length"]) for e in extents if e["type"] == 0]
    assert data == [(MIB, MIB)], extents
    assert sum(e["length"] for e in extents) == 4 * MIB


@test(forebay_only=True)
def nbdinfo_maps_what_the_cache_holds(bed):
    _, disk = open_disk(bed, block_size="64KiB", extra=["--bypass-sequential", "off"])

    def cached():
        extents = json.loads(bed.run(["nbdinfo", "--json", "--map=forebay:state", disk.uri]))
        assert sum(e["length"] for e in extents) == 16 * MIB
        return [(e["offset"], e["length"]) for e in extents if e["type"] & 1]

    assert cached() == [], "nothing is cached before the first read"
    bed.run(["qemu-io", "-r", "-f", "raw", "-c", "read 1M 64k", disk.uri])
    assert cached() == [(MIB, 64 * KIB)], cached()


@test
def nbdcopy_out_gives_the_bytes_of_the_file(bed):
    image, disk = open_disk(bed, 48 * MIB)
    copy = bed.path("copy.raw")
    bed.run(["nbdcopy", disk.uri, copy])
    bed.run(["cmp", image, copy])


@test
def nbdcopy_in_and_out_again_gives_the_same_bytes(bed):
    source = bed.image("source.raw", 48 * MIB, "random")
    image, disk = open_disk(bed, 48 * MIB, "holes")
    bed.run(["nbdcopy", "--flush", source, disk.uri])
    bed.run(["nbdcopy", disk.uri, bed.path("copy.raw")])
    bed.run(["cmp", source, bed.path("copy.raw")])
    bed.run(["cmp", source, image])


@test
def nbdcopy_of_holes_keeps_the_target_sparse(bed):
    source = bed.image("source.raw", 32 * MIB, "holes")
    with open(source, "r+b") as f:
        f.write(pattern(0, MIB))
    image, disk = open_disk(bed, 32 * MIB)
    bed.run(["nbdcopy", "--flush", source, disk.uri])
    bed.run(["cmp", source, image])
    assert os.stat(image).st_blocks * 512 < 8 * MIB, "holes were written out"


@test
def qemu_img_reads_converts_and_compares(bed):
    image, disk = open_disk(bed, 24 * MIB)
    info = json.loads(bed.run(["qemu-img", "info", "--output=json", disk.uri]))
    assert info["virtual-size"] == 24 * MIB
    bed.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk.uri, bed.path("out.qcow2")])
    bed.run(["qemu-img", "compare", "-f", "qcow2", "-F", "raw", bed.path("out.qcow2"), image])
    bed.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", disk.uri, image])


@test
def qemu_img_converts_into_the_disk(bed):
    source = bed.image("source.raw", 24 * MIB, "random")
    image, disk = open_disk(bed, 24 * MIB)
    bed.run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, disk.uri])
    bed.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", source, disk.uri])
    disk.stop()
    bed.run(["cmp", source, image])


@test
def qemu_img_bench_finishes_with_many_in_flight(bed):
    _, disk = open_disk(bed)
    for more in (["-w"], ["-w", "--flush-interval=64"], []):
        bed.run(["qemu-img", "bench", "-f", "raw", "-c", "4000", "-d", "64", "-s", "4096", *more, disk.uri])


@test
def qemu_io_reads_back_every_pattern_it_wrote(bed):
    image, disk = open_disk(bed)
    commands = []
    # Sizes and offsets that straddle blocks of every size, and single sectors.
    for i, (at, length) in enumerate([(0, "512"), (512, "512"), (4096, "64k"), (130560, "1024"),
                                      (1048064, "1M"), (5000192, "3M"), (16776704, "512")]):
        commands += ["-c", "write -P %d %d %s" % (i + 1, at, length)]
    for i, (at, length) in enumerate([(0, "512"), (512, "512"), (4096, "64k"), (130560, "1024"),
                                      (1048064, "1M"), (5000192, "3M"), (16776704, "512")]):
        commands += ["-c", "read -P %d %d %s" % (i + 1, at, length)]
    out = bed.run(["qemu-io", "-f", "raw", "-t", "writeback", *commands, "-c", "flush", disk.uri])
    assert "verification failed" not in out
    out = bed.run(["qemu-io", "-f", "raw", "-r", "-c", "read -P 1 0 512", "-c", "read -P 5 1048064 1M", image])
    assert "verification failed" not in out


@test
def qemu_io_zeroes_and_discards(bed):
    image, disk = open_disk(bed)
    out = bed.run(["qemu-io", "-f", "raw", "-d", "unmap", "-t", "writeback",
                   "-c", "write -z 1M 1M", "-c", "read -P 0 1M 1M",
                   "-c", "write -z -u 3M 512k", "-c", "read -P 0 3M 512k",
                   "-c", "discard 5M 1M", "-c", "write -P 9 5M 64k", "-c", "read -P 9 5M 64k",
                   "-c", "flush", disk.uri])
    assert "verification failed" not in out
    with open(image, "rb") as f:
        f.seek(MIB)
        assert f.read(MIB) == bytes(MIB)
        assert f.read(512) == pattern(2 * MIB, 512), "zeroing went too far"


@test
def qemu_io_keeps_requests_in_flight_in_order_of_overlap(bed):
    _, disk = open_disk(bed)
    commands = []
    for i in range(1, 60):
        commands += ["-c", "aio_write -P %d %d 64k" % (i, 4096 * (i % 7))]
    out = bed.run(["qemu-io", "-f", "raw", "-t", "writeback", *commands, "-c", "aio_flush",
                   "-c", "write -P 77 0 128k", "-c", "read -P 77 0 128k", disk.uri])
    assert "verification failed" not in out
