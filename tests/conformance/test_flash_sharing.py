"""Flash that disks on one device share: who gains gets it, who needs it back has it back, a kill loses nothing."""
import random

import test_sharing
from bed import MIB, eventually, pattern, test
from test_reload import Served, client, disk
from test_settings import told

SIZE = test_sharing.SIZE
SHARES = 'flash-reservation = "2MiB"\nflash-limit = "40MiB"\nblock-size = "4KiB"\nflash = "%s:12MiB"\n'


def shared(bed, more=""):
    """Two disks that bring as much flash each, and hardly have RAM."""
    def of(name):
        bed.image(name + ".raw", SIZE)
        return disk(bed, name, SHARES % bed.path("flash") + more).replace('ram = "8MiB"', 'ram = "64KiB"')
    return [of("a"), of("b")]


def flash(served, name):
    return served.stats(name)["flash"]["slots"] * 4096 // MIB


@test(forebay_only=True, timeout=300)
def a_disk_gets_flash_that_another_does_not_need_and_gives_it_back(bed):
    served = Served(bed, *shared(bed))
    assert (flash(served, "a"), flash(served, "b")) == (12, 12)
    reader = test_sharing.Reader(bed, "a")

    def divided(least, most):
        a, b = flash(served, "a"), flash(served, "b")
        assert a + b <= 24 and b >= 2, (a, b)
        return least <= a <= most
    eventually(lambda: divided(17, 22), "the disk that reads has flash of the other", seconds=90)
    assert "it lends flash to others" in served.events() and "it gets flash of others" in served.events()
    # Back by command: what is lent out returns.
    told(bed, served, "set", "b", "--flash-reservation", "12MiB")
    eventually(lambda: divided(12, 12) and flash(served, "b") == 12, "it has back what it brought", seconds=90)
    reader.stop()
    assert "cannot share" not in served.events() and "checksum" not in served.events(), served.events()
    assert served.server.stop() == 0


@test(forebay_only=True, timeout=400)
def a_killed_disk_begins_with_the_flash_that_it_had_and_reads_what_is_there(bed):
    chance = random.Random(5)
    served = Served(bed, *shared(bed, 'mode = "write-back"\nwrite-log = "4MiB"\n'))
    written = {}

    def write(handle, count):
        for _ in range(count):
            offset, version = chance.randrange(SIZE // 4096) * 4096, chance.randrange(1, 256)
            handle.pwrite(pattern(offset, 4096, version), offset)
            written[offset] = version
        handle.flush()

    def check(handle, of):
        for block in chance.sample(range(SIZE // 4096), 1500):
            offset = block * 4096
            version = written.get(offset, 0) if of == "a" else 0
            assert bytes(handle.pread(4096, offset)) == pattern(offset, 4096, version), (of, offset)
    for turn in range(2):
        # Who reads gains, and next time the other one does.
        reads, other = "ab"[turn % 2], "ba"[turn % 2]
        before = flash(served, reads)
        handles = {name: client(bed, name) for name in "ab"}
        write(handles["a"], 200)

        def gets_more():
            check(handles[reads], reads)
            return flash(served, reads) > before
        eventually(gets_more, "the one that reads gets flash", seconds=90)
        had = flash(served, reads)
        served.server.kill()
        served.server.start()
        assert flash(served, reads) >= had and flash(served, reads) + flash(served, other) <= 16
        handles = {name: client(bed, name) for name in "ab"}
        for name in "ab":
            check(handles[name], name)
            assert served.stats(name)["counters"]["flash_checksum_errors"] == 0
            handles[name].shutdown()
    assert served.server.stop() == 0


@test(forebay_only=True)
def flash_that_cannot_be_shared_is_refused(bed):
    test_sharing.refused(bed, 'flash = "%s:16MiB"\n' % bed.path("flash"),
                         ("--flash-reservation", "17MiB", "is more than the 16MiB of --flash"),
                         ("--flash-limit", "15MiB", "is less than the 16MiB of --flash"),
                         ("--flash-reservation", "4KiB", "holds no block of 8KiB"),
                         ("--flash-shares", "0", "use 1 to 1000000"))


@test(forebay_only=True)
def a_limit_beyond_all_flash_is_as_much_as_there_is(bed):
    disks = [text.replace('"40MiB"', '"8TiB"') for text in shared(bed)]
    served = Served(bed, *disks)
    assert (flash(served, "a"), flash(served, "b")) == (12, 12)
    assert told(bed, served, "set", "a", "--block-size", "8KiB") == {"a": ("opened-again", None)}
    assert served.server.stop() == 0
    bed.run([bed.program, "serve", "--check", "--config", bed.path("forebay.toml")])
