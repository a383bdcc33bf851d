"""Limits of a disk: what clients get, what others do not lose, and what is told of it."""
import threading
import time

import nbd
from bed import test
from test_reload import Served, client, disk, images
from test_settings import settings, told


class Reader(threading.Thread):
    """Reads one block again and again, a hit each time."""

    def __init__(self, bed, name):
        super().__init__()
        self.handle, self.count, self.ends = client(bed, name), 0, False
        self.start()

    def run(self):
        while not self.ends:
            self.handle.pread(4096, 0)
            self.count += 1

    def stop(self):
        self.ends = True
        self.join()
        self.handle.shutdown()


def rate(readers, seconds=1):
    """Reads per second of all of them."""
    before, began = sum(reader.count for reader in readers), time.monotonic()
    time.sleep(seconds)
    return (sum(reader.count for reader in readers) - before) / (time.monotonic() - began)


def expect_rate(readers, limit, burst):
    """A second's reads are what the limit allows; fewer only while the client had no CPU."""
    rate(readers, 0.3)
    rates = []
    while len(rates) < 10:
        rates.append(rate(readers))
        # 10 ms may be late.
        assert rates[-1] <= limit * (1.03 + burst), (limit, rates)
        if rates[-1] >= limit * 0.95:
            return
    raise AssertionError((limit, rates))


@test(forebay_only=True)
def a_disk_gets_what_its_limits_allow_and_no_more(bed):
    images(bed, "a", "b")
    served = Served(bed, disk(bed, "a", "iops-limit = 500\n"), disk(bed, "b"))
    readers = [Reader(bed, "a") for _ in range(8)]
    other = Reader(bed, "b")
    expect_rate(readers, 500, 0.1)
    # At work: another limit, both, none.
    told(bed, served, "set", "a", "--iops-limit", "2000")
    expect_rate(readers, 2000, 0.1)
    told(bed, served, "set", "a", "--bandwidth-limit", "4MiB", "--limit-burst", "0s")
    expect_rate(readers, 1024, 0)
    shown = settings(bed, served)
    assert (shown["bandwidth-limit"]["value"], shown["iops-limit"]["origin"]) == ("4MiB", "online"), shown
    free = rate([other])
    told(bed, served, "set", "a", "--bandwidth-limit", "0", "--iops-limit", "0")
    assert any(rate(readers) > 2500 for _ in range(10)) and free > 200
    statistics = served.stats("a")
    assert statistics["counters"]["requests_limited"] > 1000, statistics["counters"]
    split = statistics["time"]["read"]
    assert split["limit_ns"] > split["total_ns"] // 2, split
    for reader in [*readers, other]:
        reader.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def requests_that_are_held_are_answered_when_the_disk_ends(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a", 'bandwidth-limit = "4KiB"\n'))
    handle = client(bed, "a")
    answered = []
    handle.pread(16384, 0)
    buffers = [nbd.Buffer(16384) for _ in range(4)]
    for at, buffer in enumerate(buffers):
        handle.aio_pread(buffer, at * 16384, completion=lambda error: answered.append(error.value) or 1)
    while not served.stats("a")["counters"]["requests_limited"] == 4:
        pass
    assert answered == []
    process = threading.Thread(target=lambda: answered.append(served.server.stop()))
    process.start()
    while len(answered) < 5:
        try:
            handle.poll(10)
        except nbd.Error:
            break
    process.join()
    assert answered == [0, 0, 0, 0, 0], answered
