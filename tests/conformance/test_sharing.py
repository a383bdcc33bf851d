"""RAM that disks share: who gains gets it, who needs it back has it back."""
import random
import threading

from bed import MIB, eventually, pattern, test
from test_reload import Served, client, disk
from test_settings import told

SIZE = 24 * MIB
SHARES = 'ram-reservation = "2MiB"\nram-limit = "40MiB"\nblock-size = "4KiB"\n'


class Reader(threading.Thread):
    """Reads at random places of a whole disk, and checks what it gets."""

    def __init__(self, bed, name):
        super().__init__()
        self.handle, self.chance, self.ends, self.error = client(bed, name), random.Random(7), False, None
        self.start()

    def run(self):
        try:
            while not self.ends:
                offset = self.chance.randrange(SIZE // 4096) * 4096
                assert bytes(self.handle.pread(4096, offset)) == pattern(offset, 4096), offset
        except AssertionError as error:
            self.error = error

    def stop(self):
        self.ends = True
        self.join()
        assert self.error is None, self.error
        self.handle.shutdown()


@test(forebay_only=True, timeout=300)
def a_disk_gets_ram_that_another_does_not_need_and_gives_it_back(bed):
    for name in "ab":
        bed.image(name + ".raw", SIZE)
    served = Served(bed, *(disk(bed, name, SHARES).replace('ram = "8MiB"', 'ram = "16MiB"') for name in "ab"))

    def ram(name):
        return served.stats(name)["ram"]["slots"] * 4096 // MIB

    def divided(a_min, a_max):
        a, b = ram("a"), ram("b")
        assert a + b <= 32, (a, b)
        return a_min <= a <= a_max and b >= 2
    reader = Reader(bed, "a")
    eventually(lambda: divided(24, 30), "the disk that reads has RAM of the other", seconds=60)
    assert "it lends RAM to others" in served.events() and "it gets RAM of others" in served.events()

    def missed():
        return served.stats("a")["counters"]["read_misses"]

    def hits_all():
        before, reads = missed(), served.stats("a")["counters"]["reads"]
        eventually(lambda: served.stats("a")["counters"]["reads"] > reads + 2000, "it reads")
        return missed() == before
    eventually(hits_all, "all of the disk is cached", seconds=60)
    # Back by command: what is lent out returns.
    told(bed, served, "set", "b", "--ram-reservation", "16MiB")
    eventually(lambda: divided(16, 16) and ram("b") == 16, "it has back what it brought", seconds=60)
    reader.stop()
    assert served.server.stop() == 0


@test(forebay_only=True, timeout=300)
def a_disk_whose_mode_keeps_no_reads_lends_its_ram(bed):
    for name in "ab":
        bed.image(name + ".raw", SIZE)
    log = 'mode = "write-only"\nflash = "%s:4MiB"\nwrite-log = "4MiB"\n' % bed.path("flash")
    disks = [disk(bed, name, SHARES + more).replace('ram = "8MiB"', 'ram = "16MiB"')
             for name, more in (("a", log), ("b", ""))]
    served = Served(bed, *disks)
    # Both ask for the same, and RAM serves one of them.
    readers = [Reader(bed, name) for name in "ab"]

    def ram(name):
        return served.stats(name)["ram"]["slots"] * 4096 // MIB
    eventually(lambda: ram("b") >= 24 and ram("a") < 16, "the one that keeps reads has RAM of the other", seconds=90)
    for reader in readers:
        reader.stop()
    shown = bed.run([bed.program, "disk", "show", "a", "--control", served.control])
    assert "(LRU; write-only keeps no reads)" in shown, shown
    assert served.server.stop() == 0


def refused(bed, more, *cases):
    """Each option with a size that a disk at work cannot have, and why not."""
    bed.image("a.raw", SIZE)
    served = Served(bed, disk(bed, "a", more))
    for option, size, why in cases:
        command = [bed.program, "disk", "set", "a", option, size, "--control", served.control]
        said = bed.run(command, code=None)
        assert said.returncode == 1 and why in said.stderr, said
    assert served.server.stop() == 0


@test(forebay_only=True)
def what_cannot_be_shared_is_refused(bed):
    refused(bed, "",
            ("--ram-reservation", "9MiB", "is more than --ram 8MiB"),
            ("--ram-limit", "7MiB", "is less than --ram 8MiB"),
            ("--ram-reservation", "4KiB", "holds no block of 8KiB"),
            ("--ram-shares", "0", "use 1 to 1000000"))
