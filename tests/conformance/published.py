"""What was published of host flash caches, in kind, over the modelled SAN: traces made up, replayed through the daemon.

A hit ratio in the eighties made reads two to four times faster. A database read at random gained nothing until all of it fitted: of
a transaction that needs many pages the slowest counts, and with a part of the pages cached that is still one of primary storage.
"""
from ab import Ab
from bed import GIB, MIB
from traces import random_set, skewed, write_requests

SIZE = 4 * GIB
BLOCK = 8192
PAGES = 200  # of the database
# What a hit ratio is worth is asked here, not how a policy comes to it: of so few requests `auto` hits three points more or less.
SKEWED = {"ram": "2624KiB", "block-size": "8KiB", "grid-offset": "0", "policy": "s3fifo"}


def hot_region(bed, count=1000):
    """Four of five reads in a hot region that the cache about holds."""
    requests = skewed(bed.random, count, per_second=250, size=SIZE, places=250, region=128 * MIB, share=0.8)
    trace = write_requests(bed.path("hot-region.msr"), requests)
    return Ab(bed, trace, SIZE, SKEWED, "hot-region")


class Database:
    """Reads of all pages alike, with a cache of a part of them."""

    def __init__(self, bed, count=500):
        self.bed = bed
        requests = random_set(bed.random, count, per_second=150, size=SIZE, places=PAGES)
        self.trace = write_requests(bed.path("database.msr"), requests)

    def with_cache(self, part):
        """`part` of the pages fit."""
        kib = int(PAGES * part) * BLOCK // 1024
        settings = {"ram": "%dKiB" % kib, "block-size": "8KiB", "grid-offset": "0", "policy": "lru"}
        return Ab(self.bed, self.trace, SIZE, settings, "database-%d" % kib)
