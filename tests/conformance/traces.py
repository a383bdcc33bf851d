"""Traces that tests make up, in the format of MSR."""


def write_msr(bed, name, requests, *, places=256, interval_us=200, latency_us=100):
    """Reads and writes of 8 KiB in random order; its path. Few places, so that reads come back to writes."""
    path, random = bed.path(name), bed.random
    with open(path, "w") as f:
        for n in range(requests):
            op = random.choice(["Read", "Write"])
            offset = 8192 * random.randrange(places)
            f.write("%d,host,0,%s,%d,8192,%d\n" % (n * interval_us * 10, op, offset, latency_us * 10))
    return path


def write_requests(path, requests):
    """Of (seconds since the one before, "Read" or "Write", first byte, length)."""
    now = 0.0
    with open(path, "w") as f:
        for apart, op, offset, length in requests:
            now += apart
            f.write("%d,host,0,%s,%d,%d,0\n" % (now * 1e7, op, offset, length))
    return path


def skewed(random, count, *, per_second, size, places, region, share, reads=0.95, block=8192):
    """Requests of one block; of them `share` go to `places` hot blocks, some hotter than others, that are strewn over `region`
    bytes in the middle of `size`, the rest anywhere."""
    start = (size - region) // 2 // block
    hot = [start + random.randrange(region // block) for _ in range(places)]
    for _ in range(count):
        is_hot = random.random() < share
        at = hot[int(places * random.random() ** 1.5)] if is_hot else random.randrange(size // block)
        op = "Read" if random.random() < reads else "Write"
        yield random.expovariate(per_second), op, at * block, block


def random_set(random, count, *, per_second, size, places, block=8192):
    """Reads of one block of `places`, strewn over `size` bytes; none is read more than another."""
    blocks = random.sample(range(size // block), places)
    for _ in range(count):
        yield random.expovariate(per_second), "Read", random.choice(blocks) * block, block
