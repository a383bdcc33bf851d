"""iSCSI: libiscsi's tools and suites, qemu, CHAP, who may log in, aborts, initiators that break off."""
import glob
import os
import resource
import struct
import time

import iscsi
from bed import MIB, Skip, eventually, pattern, test
from iscsi import Initiator, url


def secret_file(bed, name, secret):
    path = bed.path(name)
    with open(path, "w") as f:
        f.write(secret + "\n")
    os.chmod(path, 0o600)
    return path


@test(forebay_only=True)
def discovery_lists_the_target_and_its_units(bed):
    disk = iscsi.start(bed)
    said = bed.run(["iscsi-ls", "-s", "iscsi://%s/" % iscsi.portal(disk)])
    assert "Target:%s" % iscsi.TARGET in said, said
    assert "Lun:0" in said and "DIRECT_ACCESS" in said, said
    assert "Size:99M" in said or "Size:100M" in said, said
    said = bed.run(["iscsi-inq", url(disk)])
    assert "FOREBAY" in said.upper(), said


@test(forebay_only=True)
def qemu_copies_an_image_in_and_out(bed):
    if not glob.glob("/usr/lib/*/qemu/block-iscsi.so"):
        raise Skip("qemu-block-extra is not installed")
    source = bed.image("source.raw", 32 * MIB)
    backend = bed.image("disk.raw", 32 * MIB, "holes")
    disk = iscsi.start(bed, "file:" + backend)
    bed.run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, url(disk)])
    bed.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", source, url(disk)])
    bed.run(["qemu-io", "-f", "raw", "-c", "write -P 7 1M 3M", "-c", "read -P 7 1M 3M",
             "-c", "write -z 8M 1M", "-c", "read -P 0 8M 1M", "-c", "discard 16M 2M",
             "-c", "aio_write -P 9 20M 1M", "-c", "aio_read 4M 1M", "-c", "aio_flush",
             "-c", "flush", url(disk)])
    assert disk.stop() == 0
    with open(backend, "rb") as f:
        f.seek(20 * MIB)
        assert f.read(MIB) == b"\x09" * MIB, "what was written is on primary storage"
        f.seek(0)
        assert f.read(MIB) == pattern(0, MIB)


@test(forebay_only=True)
def one_disk_is_the_same_over_iscsi_and_nbd(bed):
    disk = iscsi.start(bed)
    bed.run(["qemu-io", "-f", "raw", "-c", "write -P 5 0 1M", url(disk)])
    bed.run(["qemu-io", "-f", "raw", "-c", "read -P 5 0 1M", "-c", "write -P 6 512k 1M", disk.uri])
    bed.run(["qemu-io", "-f", "raw", "-c", "read -P 6 512k 1M", "-c", "read -P 5 0 512k", url(disk)])


@test(forebay_only=True)
def digests_are_computed_and_checked(bed):
    disk = iscsi.start(bed)
    for digests in ("header-digest=crc32c", "header-digest=none"):
        bed.run(["qemu-io", "--image-opts", "-c", "write -P 3 0 1M",
                 "-c", "read -P 3 0 1M", qemu_options(disk, digests)])
    one = Initiator(disk)
    assert one.login(HeaderDigest="CRC32C", DataDigest="CRC32C") == 0
    one.has_digests = True
    one.ready()
    data = pattern(0, 65536)
    write = struct.pack(">BBIBHB", 0x2a, 0, 8, 0, 128, 0)
    for piece in (data, b""):  # all of it with the command, or asked for
        tag = one.command(write, write=65536, data=piece)
        header, _ = one.receive()
        if header[0] == 0x31:
            one.send(iscsi.DATA_OUT, 0x80, tag=tag, fields={20: header[20:24]}, data=data)
            header, _ = one.receive()
        assert header[0] == 0x21 and header[3] == 0, header.hex()
        assert one.read(8, 128) == data, "from the cache, with a digest over its slots"
    # A digest that is wrong: the connection ends, nothing is written, others do not notice.
    one.spoil = True
    one.command(write, write=65536, data=bytes(65536))
    try:
        one.receive()
        assert False, "an answer to data with a wrong digest"
    except (EOFError, ConnectionError):
        pass
    other = Initiator(disk)
    assert other.login() == 0
    other.ready()
    assert other.read(8, 128) == data


def events(bed, disk):
    return bed.run([bed.program, "events", "--control", bed.path(disk.name + ".control")])


def qemu_options(disk, more):
    return "driver=iscsi,transport=tcp,portal=%s,target=%s,lun=0,%s" % (
        iscsi.portal(disk), iscsi.TARGET, more)


@test(forebay_only=True)
def initiators_prove_who_they_are_with_chap(bed):
    options = ["--chap-user", "user", "--chap-secret-file", secret_file(bed, "s", "twelve bytes or more"),
               "--mutual-chap-user", "us", "--mutual-chap-secret-file",
               secret_file(bed, "m", "another long secret")]
    disk = iscsi.start(bed, extra=options)
    bed.run(["iscsi-inq", url(disk, user="user%twelve bytes or more")])
    for user in (None, "user%twelve bytes or less", "other%twelve bytes or more"):
        assert bed.run(["iscsi-inq", url(disk, user=user)], code=None).returncode != 0, user
    for algorithm in ("5", "7", "5,7"):
        assert Initiator(disk).chap("user", b"twelve bytes or more", algorithm) == 0
        assert Initiator(disk).chap("user", b"something else here", algorithm) == 0x0201
    assert Initiator(disk).login() == 0x0201, "a login that leaves CHAP out"
    assert "compare CHAP users and secrets" in events(bed, disk)


@test(forebay_only=True)
def only_listed_initiators_log_in(bed):
    disk = iscsi.start(bed, extra=["--initiator", "iqn.2026-01.org.example:raw"])
    assert Initiator(disk).login() == 0
    assert Initiator(disk, name="iqn.2026-01.org.example:other").login() == 0x0202
    assert Initiator(disk, target="iqn.2026-01.org.example:none").login() == 0x0203
    reported = events(bed, disk)
    assert "'iqn.2026-01.org.example:other' may not log in: the target is not for it" in reported, reported
    assert "there is no target of the name" in reported
    for number in range(50):
        Initiator(disk, name="iqn.2026-01.org.example:" + "x" * number).login()
    assert events(bed, disk).count("may not log in") <= 10, "an initiator fills the event log"
    said = bed.run(["iscsi-ls", "-i", "iqn.2026-01.org.example:other",
                    "iscsi://%s/" % iscsi.portal(disk)], code=None)
    assert iscsi.TARGET not in said.stdout, "a target that it may not use is listed"


@test(forebay_only=True)
def a_unit_that_is_named_is_the_same_over_a_pool_that_is_made_anew(bed):
    image, pool = bed.image("disk.raw", 16 * MIB), bed.path("pool")

    def identity(*extra):
        """What a run on a new pool tells initiators: the serial number, and page 83h."""
        disk = iscsi.start(bed, "file:" + image, flash=pool + ":64MiB", extra=extra)
        one = Initiator(disk)
        assert one.login() == 0
        one.ready()
        pages = [one.inquiry(page) for page in (0x80, 0x83)]
        said = bed.run([bed.program, "events", "--control", bed.path("disk.control")])
        one.close()
        assert disk.stop() == 0
        os.unlink(pool)
        return pages[0][4:].decode(), pages, said

    serial, first, said = identity()
    uuid = "-".join(serial[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    assert "was served as" not in said, said
    other, _, said = identity()
    assert other != serial and "was served as disk " + uuid in said, (uuid, said)
    _, named, _ = identity("--unit-id", uuid)
    assert named == first, "the same unit"


@test(forebay_only=True)
def a_newer_login_of_the_same_port_ends_the_older_session(bed):
    disk = iscsi.start(bed)
    old, other, new = Initiator(disk), Initiator(disk, isid=2), Initiator(disk)
    assert old.login() == other.login() == 0
    old.ready()
    assert new.login() == 0
    try:
        old.receive()
        assert False, "the older session goes on"
    except (EOFError, ConnectionError):
        pass
    new.ready()
    other.ready()


@test(forebay_only=True)
def tasks_are_aborted_and_others_are_not(bed):
    disk = iscsi.start(bed)
    one, other = Initiator(disk), Initiator(disk, isid=2)
    assert one.login() == other.login() == 0
    one.ready()
    other.ready()
    write = struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 16, 0)

    def begin(initiator):
        """A write that waits for its data."""
        tag = initiator.command(write, write=8192)
        header, _ = initiator.receive()
        assert header[0] == 0x31, header.hex()
        return tag, header[20:24]

    def data(initiator, tag, transfer_tag):
        initiator.send(iscsi.DATA_OUT, 0x80, tag=tag, fields={20: transfer_tag, 40: 0},
                       data=b"A" * 8192)

    def manage(function, tag=0xffffffff):
        saved = one.tag
        one.send(iscsi.TASK, 0x80 | function, tag=9000 + function, fields={20: tag})
        one.tag = saved
        header, _ = one.receive()
        assert header[0] == 0x22, header.hex()
        return header[2]

    tag, asked = begin(one)
    assert manage(1, tag) == 0, "ABORT TASK"
    assert manage(1, tag) == 1, "the task is gone"
    data(one, tag, asked)
    one.ready()
    assert one.read(0, 16) == bytes(8192), "an aborted write is not written"
    for function in (2, 4, 5, 6):
        tag, asked = begin(one)
        theirs, theirs_asked = begin(other)
        assert manage(function) == 0, function
        data(one, tag, asked)
        data(other, theirs, theirs_asked)
        if function == 2:  # ABORT TASK SET is about one's own
            header, _ = other.receive()
            assert header[0] == 0x21 and header[3] == 0, header.hex()
            expected = b"A" * 8192
        if function in (4, 5):  # Others are told of each; a reset of the target is told by a unit attention alone.
            header, _ = other.receive()
            assert header[0] == 0x21 and header[3] == 0x40, header.hex()
            assert struct.unpack_from(">I", header, 16)[0] == theirs, header.hex()
        one.ready()
        other.ready()
        assert one.read(0, 16) == expected, function
    assert manage(3) == 5 and manage(8) == 4, "functions that there are not"


def set_write_cache(initiator, on):
    caching = bytes(4) + bytes([8, 18, 4 if on else 0]) + bytes(17)
    assert initiator.status([0x15, 0x10, 0, 0, len(caching), 0], write=len(caching), data=caching) == 0


@test(forebay_only=True)
def a_write_that_came_before_the_write_cache_was_turned_off_is_durable_as_well(bed):
    disk = iscsi.start(bed, extra=["--write-cache", "on"])
    one = Initiator(disk)
    assert one.login() == 0
    one.ready()

    def flushes():
        return disk.stats()["counters"]["backend_flushes"]

    def written_around(between):
        """How many flushes of primary storage a write adds between whose command and data something happens."""
        tag = one.command(struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 16, 0), write=8192)
        header, _ = one.receive()
        assert header[0] == 0x31, header.hex()
        between()
        before = flushes()
        one.send(iscsi.DATA_OUT, 0x80, tag=tag, fields={20: header[20:24], 40: 0}, data=b"A" * 8192)
        header, _ = one.receive()
        assert header[0] == 0x21 and header[3] == 0, header.hex()
        return flushes() - before

    assert written_around(lambda: None) == 0
    assert written_around(lambda: set_write_cache(one, False)) == 1


@test(forebay_only=True)
def turning_the_write_cache_off_waits_for_a_write_that_is_under_way(bed):
    slow = "fault:rule=delay,time=2s,op=write,times=3&inner=file:" + bed.image("disk.raw", 16 * MIB)
    disk = iscsi.start(bed, slow, extra=["--write-cache", "on"])
    other = Initiator(disk)
    assert other.login() == 0
    # The write is answered, aborted, or its initiator is gone.
    for round, end in enumerate(("answered", "aborted", "gone")):
        other.ready()
        set_write_cache(other, True)
        one = Initiator(disk, isid=2)
        assert one.login(ImmediateData="Yes") == 0
        one.ready()
        before = disk.stats()["counters"]
        begun = time.monotonic()
        tag = one.command(struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 8, 0), write=4096, data=b"A" * 4096)
        eventually(lambda: disk.stats()["counters"]["backend_writes"] == round + 1, "primary storage has it")
        assert time.monotonic() - begun < 2, "too slow a machine: the write has ended"
        if end == "aborted":
            one.send(iscsi.TASK, 0x81, fields={20: tag})
            assert one.receive()[0][2] == 0
        elif end == "gone":
            one.close()
        set_write_cache(other, False)
        assert time.monotonic() - begun > 2, "the flush overtook the write"
        assert disk.stats()["counters"]["backend_flushes"] == before["backend_flushes"] + 1
        if end == "answered":
            header, _ = one.receive()
            told = header[0], header[3], struct.unpack_from(">I", header, 16)[0]
            assert told == (0x21, 0, tag), header.hex()
        one.close()


@test(forebay_only=True)
def an_initiator_that_breaks_off_anywhere_harms_nobody(bed):
    disk = iscsi.start(bed)
    good = Initiator(disk)
    assert good.login() == 0
    good.ready()
    for cut in (1, 47, 48, 60, 100):
        one = Initiator(disk, isid=3)
        text = b"InitiatorName=iqn.2026-01.org.example:raw\0SessionType=Normal\0"
        one.send(iscsi.LOGIN, 0x87, tag=0, data=text, cut=cut)
        one.close()
    write = struct.pack(">BBIBHB", 0x2a, 0, 0, 0, 128, 0)
    for cut in (1, 47, 48, 1000, 32000):
        one = Initiator(disk, isid=4)
        assert one.login(ImmediateData="Yes", FirstBurstLength="65536") == 0
        one.ready()
        one.command(write, write=65536, data=b"B" * 32768, cut=cut)
        one.close()
    for cut in (1, 48, 1000):
        one = Initiator(disk, isid=5)
        assert one.login() == 0
        one.ready()
        tag = one.command(write, write=65536)
        header, _ = one.receive()
        one.send(iscsi.DATA_OUT, 0x80, tag=tag, fields={20: header[20:24]}, data=b"C" * 65536, cut=cut)
        one.close()
    one = Initiator(disk, isid=6)
    assert one.login() == 0
    one.ready()
    for _ in range(100):  # answers that nobody reads
        one.command(struct.pack(">BBIBHB", 0x28, 0, 0, 0, 2048, 0), read=MIB)
    assert good.read(0, 128) == bytes(65536), "a write that broke off was written"
    one.close()
    eventually(lambda: disk.stats()["connections"] == 1, "only the good one is left")


@test(forebay_only=True)
def an_initiator_that_dies_at_any_step_of_its_login_harms_nobody(bed):
    options = ["--chap-user", "user", "--chap-secret-file", secret_file(bed, "s", "twelve bytes or more")]
    disk = iscsi.start(bed, extra=options)
    good = Initiator(disk)
    assert good.chap("user", b"twelve bytes or more") == 0
    good.ready()
    for steps in range(5):
        one = Initiator(disk, isid=3)
        if steps > 0:
            assert one.login_step(0, None, {**one.names(), "AuthMethod": "CHAP"})[0] == 0
        if steps > 1:
            assert one.login_step(0, None, {"CHAP_A": "7"})[0] == 0
        if steps > 2:
            assert one.login_step(0, 1, {"CHAP_N": "user", "CHAP_R": "0x" + "00" * 32})[0] == 0x0201
        if steps > 3:
            one = Initiator(disk, isid=3)
            assert one.chap("user", b"twelve bytes or more") == 0  # through, and gone at once
        one.close()
    for taken in (0, 1, 47, 48, 49, 4096, 60000):
        one = Initiator(disk, isid=3)
        assert one.chap("user", b"twelve bytes or more") == 0
        one.ready()
        one.command(struct.pack(">BBIBHB", 0x28, 0, 0, 0, 2048, 0), read=MIB)
        one.exactly(taken)  # of the data that it asked for
        one.close()
    assert good.read(0, 128) == bytes(65536)
    eventually(lambda: disk.stats()["connections"] == 1, "only the good one is left")


def many(bed, count):
    return bed.serve(CONFIG % (bed.path("serve.control"), iscsi.TARGET, count), ["unix:" + bed.path("none")])


CONFIG = """
control = "%s"
[[disk]]
name = "disk"
backend = "mem:16MiB"
ram = "16MiB"
[[iscsi]]
listen = ["127.0.0.1:0"]
target = "%s"
connections-max = %d
"""


@test(forebay_only=True)
def initiators_beyond_the_limit_are_told_so_and_may_come_again(bed):
    disk = many(bed, 3)
    inside = [Initiator(disk, isid=n) for n in range(3)]
    assert [one.login() for one in inside] == [0, 0, 0]
    assert Initiator(disk, isid=9).login() == 0x0302
    flood = [Initiator(disk, isid=9) for _ in range(200)]  # they say nothing
    inside[0].ready()
    for one in flood:
        one.close()
    inside[0].close()
    eventually(lambda: Initiator(disk, isid=9).login() == 0, "there is room again")


@test(forebay_only=True)
def a_read_that_waits_for_room_goes_before_writes_that_come_later(bed):
    disk = iscsi.start(bed)
    one = Initiator(disk)
    assert one.login() == 0
    one.ready()
    size = 8 * MIB  # two of them are all that a session may have under way

    def write(number):
        cdb = struct.pack(">BBIBHB", 0x2a, 0, number * size // 512, 0, size // 512, 0)
        return one.command(cdb, write=size)

    writes = [write(number) for number in range(3)]
    # No write has room beside it.
    read = one.command(struct.pack(">BBIBHB", 0x28, 0, 0, 0, 12 * MIB // 512, 0), read=12 * MIB)
    writes += [write(number) for number in range(3, 12)]
    ended = []
    while len(ended) < 13:
        header, _ = one.receive()
        tag, = struct.unpack_from(">I", header, 16)
        if header[0] == 0x31:
            assert read in ended or tag in writes[:3], "it came later: %d before %d" % (tag, read)
            at, count = struct.unpack_from(">II", header, 40)
            saved = one.tag
            for number, start in enumerate(range(0, count, 65536)):
                length = min(65536, count - start)
                fields = {20: header[20:24], 36: number, 40: at + start}
                one.send(iscsi.DATA_OUT, 0x80 if start + length == count else 0, tag=tag, fields=fields, data=bytes(length))
            one.tag = saved
        elif header[0] == 0x21 or header[1] & 1:
            assert header[3] == 0, header.hex()
            ended.append(tag)
    assert sorted(ended) == sorted([read] + writes)


@test(forebay_only=True, timeout=300)
def ten_thousand_connections_take_bounded_memory(bed):
    count, hard = 10000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < count + 1000:
        raise Skip("only %d files may be open" % hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    disk = many(bed, count)

    def resident():
        with open("/proc/%d/status" % disk.process.pid) as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024

    one = Initiator(disk, name="iqn.2026-01.org.example:0")
    assert one.login() == 0
    one.ready()
    one.read(0, 128)
    before = resident()
    others = []
    for n in range(1, count):
        others.append(Initiator(disk, name="iqn.2026-01.org.example:%d" % n))
        assert others[-1].login() == 0, n
        if n % 500 == 0:
            one.ready()
    each = (resident() - before) / len(others)
    print("%d bytes a connection" % each)
    assert each < 24 << 10, each
    # Who says nothing for long is asked, and these do not answer: the last ones are still there.
    for other in others[-count // 10::100]:
        other.ready()
    one.ready()
    assert one.read(0, 128) == bytes(65536)
    for other in others:
        other.close()
    one.ready()
    eventually(lambda: Initiator(disk).login() == 0, "there is room again")


@test(forebay_only=True)
def pdus_are_logged_without_their_data(bed):
    path = bed.path("pdus")
    disk = iscsi.start(bed, extra=["--iscsi-log", path])
    one = Initiator(disk)
    assert one.login(ImmediateData="Yes") == 0
    one.ready()
    assert one.write(8, b"\xa5" * 4096) == 0 and one.read(8, 8) == b"\xa5" * 4096
    assert disk.stop() == 0
    with open(path) as f:
        lines = f.read().splitlines()
    words = [line.split()[1:4] for line in lines]
    assert ["iqn.2026-01.org.example:raw,800000000001", ">", "Command"] in words, words
    for what in ("Response", "Data-In"):
        assert ["iqn.2026-01.org.example:raw,800000000001", "<", what] in words, words
    assert not any("a5a5" in line or "Login" in line for line in lines), "what is none of its business"
    assert os.stat(path).st_mode & 0o777 == 0o600


@test(forebay_only=True)
def hostile_lengths_cost_the_connection_alone(bed):
    disk = iscsi.start(bed)
    for fields in ({4: b"\0\xff\xff\xff"}, {4: b"\xff\0\0\0"}, {0: b"\x3f"}, {8: b"\xff" * 8}):
        one = Initiator(disk, isid=7)
        assert one.login() == 0
        one.send(iscsi.COMMAND, 0xe1, fields={**fields, 20: 0xffffffff, 32: b"\x2a" + b"\xff" * 15})
        one.close()
    bed.run(["iscsi-inq", url(disk)])
