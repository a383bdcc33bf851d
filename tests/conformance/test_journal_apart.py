"""A destage journal on an export of its own: it goes away, or is somebody else's."""
import os
import threading

from bed import MIB, eventually, need_program, pattern, test
import nbd
from test_journal import BLOCKS, SAN, Sequence, served
from test_move_shard import move, shards
from test_primary import nbdkit
from test_reload import Served, disk


def with_journal(bed, image, uri, **more):
    extra = ["--write-log", "16MiB", "--destage-journal", uri, *more.pop("extra", [])]
    return bed.disk(SAN % image, flash=bed.path("pool") + ":64MiB", mode="write-back", extra=extra, **more)


def writes_to(bed, disk):
    sequence = Sequence(disk, bed.random)
    thread = threading.Thread(target=sequence.run, daemon=True)
    thread.start()
    eventually(lambda: disk.stats()["counters"]["journal_windows"] > 3, "windows go through the journal")
    return sequence, thread


def ends_whole(bed, disk, image, sequence, thread):
    """No write is missing, nor out of its order."""
    sequence.stop = True
    thread.join(30)
    bed.run([bed.program, "disk", "flush", "disk", "--control", bed.path("disk.control")])
    assert sequence.check(image) == len(sequence.writes)
    assert disk.stop() == 0


@test(timeout=120)
def without_its_journal_destaging_goes_on_in_order(bed):
    image = bed.image("db.raw", BLOCKS * 4096)
    journal = served(bed, "journal", bed.image("journal.raw", 64 * MIB, "holes"))
    disk = with_journal(bed, image, journal.uri + "&fence=0s", extra=["--backend-timeout", "2s"])
    sequence, thread = writes_to(bed, disk)
    journal.kill()
    eventually(lambda: "is not used any more" in disk.log(), "the journal is given up", 60)
    assert "the connection to the destage journal was lost" in disk.log()
    with open(image + ".forebay") as f:
        assert "journal" not in f.read(), "no later start believes what it has"
    before = sequence.acknowledged
    eventually(lambda: sequence.acknowledged > before + 100, "the guest goes on", 60)
    ends_whole(bed, disk, image, sequence, thread)


@test(timeout=120)
def a_journal_that_comes_back_in_time_is_used_again(bed):
    image, beside = bed.image("db.raw", BLOCKS * 4096), bed.image("journal.raw", 64 * MIB, "holes")
    journal = served(bed, "journal", beside)
    disk = with_journal(bed, image, journal.uri + "&fence=0s")
    sequence, thread = writes_to(bed, disk)
    journal.kill()
    eventually(lambda: "the connection to the destage journal was lost" in disk.log(), "the loss is told")
    journal.start()
    windows = disk.stats()["counters"]["journal_windows"]
    eventually(lambda: disk.stats()["counters"]["journal_windows"] > windows + 3, "it is used again", 60)
    ends_whole(bed, disk, image, sequence, thread)


@test(forebay_only=True, timeout=120)
def a_server_that_takes_one_connection_serves_a_disk_again_that_was_killed(bed):
    need_program("qemu-nbd")
    image, listen = bed.image("db.raw", 8 * MIB), bed.path("primary.sock")
    primary = bed.other("primary", ["qemu-nbd", "-t", "-f", "raw", "-k", listen, image], "unix:" + listen)
    disk = bed.disk(primary.uri + "&fence=0s", flash=bed.path("pool") + ":64MiB", mode="write-back",
                    extra=["--write-log", "16MiB", "--destage-journal", "file:" + bed.path("journal")])
    # No window of it goes through the journal.
    bed.run([bed.program, "disk", "pause", "disk", "--control", bed.path("disk.control")])
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    for at in range(0, MIB, 4096):
        h.pwrite(pattern(at, 4096, 3), at)
    h.flush()
    disk.kill()
    disk.start()
    again = nbd.NBD()
    again.connect_uri(disk.uri)
    assert bytes(again.pread(MIB, 0)) == pattern(0, MIB, 3)


@test(timeout=120)
def a_journal_that_is_primary_storage_by_another_name_is_refused(bed):
    image = bed.image("db.raw", 64 * MIB, "holes")
    primary = served(bed, "primary", image)
    os.symlink(bed.path("primary.sock"), bed.path("other.sock"))
    other = "nbd+unix:///?socket=" + bed.path("other.sock")
    disk = bed.disk(primary.uri, flash=bed.path("pool") + ":64MiB", mode="write-back",
                    extra=["--write-log", "16MiB", "--destage-journal", other])
    assert "is primary storage itself" in disk.log(), disk.log()
    assert disk.stats()["log"]["order"] == "strict"
    assert disk.stop() == 0
    with open(image, "rb") as f:
        assert not any(f.read()), "nothing was written there"


@test(timeout=120)
def a_journal_whose_server_is_slow_at_its_opening_is_used(bed):
    beside, slow = bed.image("journal.raw", 64 * MIB, "holes"), bed.path("slow")
    # From when it is a journal on, a read of its superblock takes too long once.
    wait = "if [ -e %s ] && [ $4 -lt 8192 ]; then sleep 12; rm -f %s; fi; " % (slow, slow)
    read = "dd if=%s bs=64K count=$3 skip=$4 iflag=count_bytes,skip_bytes status=none" % beside
    write = "dd of=%s bs=64K seek=$4 oflag=seek_bytes conv=notrunc status=none; " % beside
    once = "[ -e %s.was ] || touch %s %s.was" % (slow, slow, slow)
    journal = nbdkit(bed, "eval", "get_size=echo %d" % (64 * MIB), "pread=" + wait + read,
                     "pwrite=" + write + once, "flush=exit 0")
    image = bed.image("db.raw", BLOCKS * 4096)
    disk = with_journal(bed, image, journal.uri + "&fence=0s")
    eventually(lambda: "the connection to the destage journal was lost" in disk.log(), "it was slow")
    sequence, thread = writes_to(bed, disk)
    assert disk.stats()["log"]["journal"]["is_used"]
    ends_whole(bed, disk, image, sequence, thread)


@test(timeout=120)
def a_journal_that_its_server_does_not_have_once_it_is_made_is_not_used(bed):
    # As a server that restarts between with another image: what is written there is gone.
    image, journal = bed.image("db.raw", BLOCKS * 4096), nbdkit(bed, "null", "64M", name="journal")
    disk = with_journal(bed, image, journal.uri)
    assert "in strict order, without a journal" in disk.log(), disk.log()
    assert "does not hold the destage journal" in disk.log(), disk.log()
    assert disk.stats()["log"]["order"] == "strict"
    assert disk.stop() == 0


@test(timeout=120)
def one_journal_is_not_used_by_two_disks(bed):
    journal = served(bed, "journal", bed.image("journal.raw", 64 * MIB, "holes"))
    first = with_journal(bed, bed.image("first.raw", BLOCKS * 4096), journal.uri, name="first")
    extra = ["--write-log", "16MiB", "--destage-journal", journal.uri]
    second = bed.disk(SAN % bed.image("second.raw", BLOCKS * 4096), name="second", mode="write-back",
                      flash=bed.path("second-pool") + ":64MiB", extra=extra)
    assert "is in use" in second.log() and second.stats()["log"]["order"] == "strict", second.log()
    assert second.stop() == 0
    assert first.stats()["log"]["journal"]["is_used"]
    assert first.stop() == 0
    second.start()
    assert "destage journal of another disk" in second.log(), second.log()
    assert second.stop() == 0


@test(forebay_only=True, timeout=120)
def a_disk_that_moves_or_is_opened_again_keeps_its_journal(bed):
    journal = served(bed, "journal", bed.image("journal.raw", 64 * MIB, "holes"))
    bed.image("a.raw", BLOCKS * 4096)
    more = 'flash = "%s:64MiB"\nmode = "write-back"\nwrite-log = "16MiB"\ndestage-journal = "%s&fence=0s"\n' % (
        bed.path("pool"), journal.uri)
    daemon = Served(bed, disk(bed, "a", more))

    def is_journaled():
        log = daemon.stats("a")["log"]
        return log["order"] == "journaled" and log["journal"]["is_used"]

    assert is_journaled()
    for _ in range(3):
        move(bed, daemon.control, "a", "--to", str(1 - shards(bed, daemon.control)["a"]))
        assert is_journaled(), daemon.events()
    for size in ("16KiB", "8KiB"):
        daemon.write(disk(bed, "a", more + 'block-size = "%s"\n' % size))
        assert daemon.reload() == {"a": ("opened-again", None)}
        assert is_journaled(), daemon.events()
    assert daemon.server.stop() == 0
