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
