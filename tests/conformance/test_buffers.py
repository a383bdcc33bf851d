"""Memory of requests: it goes back to the host after a burst, and is used again."""
import random
import threading

import nbd

from bed import MIB, eventually, pattern, test
from test_hostile import memory_of

COUNT = 40
# What a disk may take besides, for its lists and its threads.
SLACK = 4 * MIB
# Memory of the destager and of staged records, which a log has for good from the first time that all of it is used.
OF_LOG = 6 * MIB


def together(h, data=None):
    """COUNT requests of 1 MiB that are under way together: they write `data`, or else this is what they read."""
    buffers = [nbd.Buffer.from_bytearray(bytearray(data[n])) if data else nbd.Buffer(MIB) for n in range(COUNT)]
    ask = h.aio_pwrite if data else h.aio_pread
    cookies = [ask(buffer, n * MIB) for n, buffer in enumerate(buffers)]
    while cookies:
        h.poll(-1)
        cookies = [cookie for cookie in cookies if not h.aio_command_completed(cookie)]
    return [bytes(buffer.to_bytearray()) for buffer in buffers]


def client(disk):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    return h


def bursts(disk, for_good):
    h, other = client(disk), client(disk)
    is_over, wrong = threading.Event(), []

    def small():
        at, version = 60 * MIB, 0
        while not is_over.wait(0.01):
            version += 1
            other.pwrite(pattern(at, 16384, version), at)
            if bytes(other.pread(16384, at)) != pattern(at, 16384, version):
                wrong.append(version)
    load = threading.Thread(target=small)
    load.start()
    try:
        # Small requests fill the RAM tier and touch what the disk holds for good: none of that is memory of a burst. Their
        # order is that of no stream, which would pass the cache by.
        for at in random.Random(1).sample(range(0, 8 * MIB, 16384), 512):
            h.pwrite(pattern(at, 16384, 2), at)
            h.pread(16384, at)
        ram = disk.stats()["ram"]
        assert ram is None or ram["slots_used"] == ram["slots"], ram
        before = memory_of(disk)
        for version in (3, 4):
            data = [pattern(n * MIB, MIB, version) for n in range(COUNT)]
            together(h, data)
            assert together(h) == data
            assert memory_of(disk) > before + 16 * MIB, "it was to be a burst"
            eventually(lambda: memory_of(disk) < before + for_good + SLACK, "its memory goes back", 60)
            assert together(h) == data
    finally:
        is_over.set()
        load.join()
    assert not wrong, wrong


@test(forebay_only=True)
def memory_of_a_burst_goes_back_to_the_host_and_is_used_again(bed):
    image = bed.image("disk.raw", 64 * MIB)
    bursts(bed.disk("file:" + image, mode="pass-through", ram="0"), 0)


@test(forebay_only=True)
def memory_of_a_burst_goes_back_to_the_host_from_a_log_as_well_and_on_epoll(bed):
    image = bed.image("disk.raw", 64 * MIB)
    bursts(bed.disk("file:" + image, mode="write-back", ram="4MiB", flash=bed.path("pool") + ":200MiB",
                         extra=["--write-log", "160MiB", "--reactor", "epoll"]), OF_LOG)
