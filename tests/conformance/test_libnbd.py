"""The protocol, request by request, with libnbd."""
import errno

from bed import KIB, MIB, pattern, test
import nbd


def client(disk, *, structured=True, contexts=(), export=""):
    h = nbd.NBD()
    h.set_export_name(export)
    h.set_request_structured_replies(structured)
    for context in contexts:
        h.add_meta_context(context)
    h.set_strict_mode(0)  # lets requests out that libnbd would refuse itself
    h.connect_uri(disk.uri_of(export))
    return h


def open_disk(bed, size=8 * MIB, fill="pattern", **options):
    image = bed.image("disk.raw", size, fill)
    return image, bed.disk("file:" + image, **options)


def error_of(call):
    try:
        call()
    except nbd.Error as error:
        return error.errnum
    raise AssertionError("an error was expected")


@test
def simple_and_structured_replies_carry_the_same_bytes(bed):
    _, disk = open_disk(bed)
    for structured in (False, True):
        h = client(disk, structured=structured)
        assert h.get_structured_replies_negotiated() == structured
        for at, length in ((0, 512), (512, 4096), (12288, 70000 // 512 * 512), (MIB - 512, 2 * MIB)):
            assert bytes(h.pread(length, at)) == pattern(at, length), (structured, at, length)
        h.shutdown()


@test
def a_read_with_df_comes_as_one_chunk(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    assert h.can_df()
    chunks = []
    h.pread_structured(128 * KIB, 4096, lambda buf, at, status, err: chunks.append((at, bytes(buf))),
                       nbd.CMD_FLAG_DF)
    assert chunks == [(4096, pattern(4096, 128 * KIB))], [(at, len(data)) for at, data in chunks]


@test
def chunks_of_a_structured_read_cover_it_once(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    h.pread(4096, 64 * KIB)  # part of what follows is now cached
    seen = {}
    h.pread_structured(256 * KIB, 0, lambda buf, at, status, err: seen.update({at: bytes(buf)}))
    assert b"".join(seen[at] for at in sorted(seen)) == pattern(0, 256 * KIB)


@test
def unaligned_requests_of_one_sector_work_everywhere(bed):
    image, disk = open_disk(bed, block_size="64KiB")
    h = client(disk)
    expect = bytearray(pattern(0, 8 * MIB))
    for i in range(600):
        at = bed.random.randrange(8 * MIB // 512) * 512
        length = min(512 * bed.random.choice([1, 1, 3, 9, 130]), 8 * MIB - at)
        if i % 2:
            data = bed.random.randbytes(length)
            h.pwrite(data, at)
            expect[at:at + length] = data
        else:
            assert bytes(h.pread(length, at)) == bytes(expect[at:at + length]), (at, length)
    h.flush()
    with open(image, "rb") as f:
        assert f.read() == bytes(expect)


@test
def requests_of_32_mib_are_served(bed):
    _, disk = open_disk(bed, 64 * MIB, "holes", ram="48MiB")
    h = client(disk)
    data = bed.random.randbytes(32 * MIB)
    h.pwrite(data, 4 * MIB + 512)
    assert bytes(h.pread(32 * MIB, 4 * MIB + 512)) == data
    assert bytes(h.pread(MIB, 4 * MIB + 512)) == data[:MIB]


@test
def fua_and_flush_reach_the_file(bed):
    image, disk = open_disk(bed)
    h = client(disk)
    assert h.can_fua() and h.can_flush()
    h.pwrite(pattern(MIB, 64 * KIB, 1), MIB, nbd.CMD_FLAG_FUA)
    h.pwrite(pattern(2 * MIB, 64 * KIB, 2), 2 * MIB)
    h.flush()
    with open(image, "rb") as f:
        f.seek(MIB)
        assert f.read(64 * KIB) == pattern(MIB, 64 * KIB, 1)
        f.seek(2 * MIB)
        assert f.read(64 * KIB) == pattern(2 * MIB, 64 * KIB, 2)


@test
def zeroes_are_read_after_zero_with_every_flag(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    flags = [0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA]
    for i, flag in enumerate(flags):
        at = (i + 1) * MIB + 512
        h.pread(64 * KIB, at)  # cached before
        h.zero(64 * KIB, at, flag)
        assert bytes(h.pread(64 * KIB, at)) == bytes(64 * KIB), flag
        assert bytes(h.pread(512, at + 64 * KIB)) == pattern(at + 64 * KIB, 512), flag
    if h.can_fast_zero():
        # Either it is done, or it is refused at once and nothing has changed.
        try:
            h.zero(MIB, 6 * MIB, nbd.CMD_FLAG_FAST_ZERO)
            assert bytes(h.pread(MIB, 6 * MIB)) == bytes(MIB)
        except nbd.Error as error:
            assert error.errnum == errno.ENOTSUP
            assert bytes(h.pread(MIB, 6 * MIB)) == pattern(6 * MIB, MIB)


@test
def writes_after_trim_are_read_back_and_neighbours_stay(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    assert h.can_trim()
    h.pread(MIB, MIB)
    h.trim(64 * KIB, MIB + 64 * KIB)
    h.trim(512, MIB + 512)
    assert bytes(h.pread(512, MIB)) == pattern(MIB, 512)
    assert bytes(h.pread(62 * KIB, MIB + 1024)) == pattern(MIB + 1024, 62 * KIB)
    assert bytes(h.pread(64 * KIB, MIB + 128 * KIB)) == pattern(MIB + 128 * KIB, 64 * KIB)
    h.pwrite(pattern(MIB + 64 * KIB, 4096, 3), MIB + 64 * KIB)
    assert bytes(h.pread(4096, MIB + 64 * KIB)) == pattern(MIB + 64 * KIB, 4096, 3)


@test
def cache_prefetches_and_changes_nothing(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    if not h.can_cache():
        assert not bed.is_forebay
        return
    h.cache(MIB, 2 * MIB + 512)
    assert bytes(h.pread(MIB, 2 * MIB)) == pattern(2 * MIB, MIB)
    if bed.is_forebay:
        assert error_of(lambda: h.cache(4096, 8 * MIB)) == errno.EINVAL


@test
def block_status_covers_what_was_asked_from_its_start(bed):
    image, disk = open_disk(bed, fill="holes")
    h = client(disk, contexts=["base:allocation"])
    assert h.can_meta_context("base:allocation")
    h.pwrite(pattern(MIB, 64 * KIB), MIB)
    h.flush()

    def status(length, at, flags=0):
        found = []
        h.block_status(length, at, lambda context, offset, entries, err: found.extend(entries), flags)
        return list(zip(found[::2], found[1::2]))

    entries = status(4 * MIB, 0)
    assert entries[0] == (MIB, 3), entries  # a hole that reads as zeroes
    at, written = 0, 0
    for length, flags in entries:
        if flags == 0:
            written += length
            assert MIB <= at and at + length <= MIB + 64 * KIB, entries
        at += length
    assert written == 64 * KIB, entries
    (length, flags), = status(4 * MIB, 0, nbd.CMD_FLAG_REQ_ONE)
    assert flags == 3 and 0 < length <= 4 * MIB


@test
def what_lies_outside_the_disk_is_refused_and_the_session_goes_on(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    size = h.get_size()
    assert error_of(lambda: h.pread(512, size)) == errno.EINVAL
    assert error_of(lambda: h.pread(4096, size - 512)) == errno.EINVAL
    assert error_of(lambda: h.pwrite(bytes(4096), size - 512)) in (errno.EINVAL, errno.ENOSPC)
    assert error_of(lambda: h.trim(4096, size)) in (errno.EINVAL, errno.ENOSPC)
    assert error_of(lambda: h.zero(4096, (1 << 63) - 512)) in (errno.EINVAL, errno.ENOSPC)
    assert error_of(lambda: h.pread(512, (1 << 64) - 512)) == errno.EINVAL
    assert bytes(h.pread(512, size - 512)) == pattern(size - 512, 512)


@test(forebay_only=True)
def a_request_that_is_not_of_whole_sectors_is_refused_and_the_session_goes_on(bed):
    _, disk = open_disk(bed)
    h = client(disk)
    assert h.get_block_size(nbd.SIZE_MINIMUM) == 512
    assert error_of(lambda: h.pread(100, 0)) == errno.EINVAL
    assert error_of(lambda: h.pwrite(bytes(512), 100)) == errno.EINVAL
    assert bytes(h.pread(512, 0)) == pattern(0, 512)


@test
def many_requests_in_flight_all_come_back_with_their_own_data(bed):
    _, disk = open_disk(bed, 32 * MIB)
    h = client(disk)
    buffers, done = [], []
    for i in range(2000):
        at = bed.random.randrange(32 * MIB // 4096) * 4096
        buffer = nbd.Buffer(4096)
        buffers.append((at, buffer))
        h.aio_pread(buffer, at, lambda err, i=i: (done.append((i, err)), 1)[1])
        while h.aio_in_flight() > 256:
            h.poll(-1)
    while h.aio_in_flight():
        h.poll(-1)
    assert len(done) == 2000 and not any(err for _, err in done)
    for at, buffer in buffers:
        assert bytes(buffer.to_bytearray()) == pattern(at, 4096), at


@test
def what_one_connection_wrote_another_reads(bed):
    _, disk = open_disk(bed)
    one, two = client(disk), client(disk, structured=False)
    assert one.can_multi_conn()
    for i in range(300):
        at = bed.random.randrange(8 * MIB // 4096) * 4096
        two.pread(4096, at)  # the other one has it cached
        one.pwrite(pattern(at, 4096, i), at)
        assert bytes(two.pread(4096, at)) == pattern(at, 4096, i), (i, at)
        one, two = two, one
    two.flush()


@test
def overlapping_writes_in_flight_end_as_one_of_them_in_every_sector(bed):
    image, disk = open_disk(bed, block_size="8KiB")
    handles = [client(disk), client(disk)]
    for round_ in range(20):
        sent = []
        for i in range(40):
            h = handles[i % 2]
            at = 4096 * bed.random.randrange(16)
            length = 512 * bed.random.randrange(1, 64)
            version = round_ * 1000 + i + 1
            buffer = nbd.Buffer.from_bytearray(bytearray(pattern(at, length, version)))
            sent.append((at, length, version, buffer))
            h.aio_pwrite(buffer, at, lambda err: 1)
        for h in handles:
            while h.aio_in_flight():
                h.poll(-1)
        from_server = bytes(handles[0].pread(256 * KIB, 0))
        handles[0].flush()
        with open(image, "rb") as f:
            assert f.read(256 * KIB) == from_server, "cache and primary storage differ"
        for at in range(0, 128 * KIB, 512):
            sector = from_server[at:at + 512]
            version = int.from_bytes(sector[8:16], "little")
            assert sector == pattern(at, 512, version), "torn sector at %d" % at


@test(forebay_only=True)
def a_read_only_disk_refuses_writes(bed):
    image = bed.image("disk.raw", 8 * MIB)
    disk = bed.disk("file:" + image, extra=["--read-only"])
    h = client(disk)
    assert h.is_read_only()
    assert error_of(lambda: h.pwrite(bytes(512), 0)) == errno.EPERM
    assert error_of(lambda: h.trim(512, 0)) == errno.EPERM
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096)


@test(forebay_only=True)
def a_disk_is_found_by_its_name_and_no_other(bed):
    _, disk = open_disk(bed)
    assert bytes(client(disk, export="disk").pread(512, 0)) == pattern(0, 512)
    try:
        client(disk, export="nobody")
    except nbd.Error as error:
        assert "nobody" in str(error) or error.errnum == errno.ENOENT, error
    else:
        raise AssertionError("an unknown export was served")
