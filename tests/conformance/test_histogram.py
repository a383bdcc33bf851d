"""The histograms of a trace, counted here in another way."""
import json

from bed import test

LENGTHS = [512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384, 32768, 49152, 65535, 65536, 81920, 131072, 262144, 524288]
FAR = [1, 2, 4, 6, 8, 16, 32, 64, 128, 500, 1000, 5000, 10000, 50000, 100000, 500000]
DISTANCES = [-limit for limit in reversed(FAR)] + [0] + FAR
TIMES = [1, 10, 100, 500, 1000, 5000, 15000, 30000, 50000, 100000]
OUTSTANDING = [1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64]


def bucketed(numbers, limits):
    counts = [0] * (len(limits) + 1)
    for number in numbers:
        place = 0
        while place < len(limits) and number > limits[place]:
            place += 1
        counts[place] += 1
    return [[limit, count] for limit, count in zip(limits + limits[-1:], counts)]


def read_msr(path):
    """(time in 100 ns, op, first byte, length, latency in 100 ns) by device."""
    devices = {}
    with open(path) as f:
        for line in f:
            ticks, host, disk, op, offset, length, response = line.strip().split(",")
            request = (int(ticks), op.lower(), int(offset), int(length), int(response))
            devices.setdefault((host, int(disk)), []).append(request)
    return list(devices.values())


def count(requests):
    """In vscsiStats' order: the numbers of each histogram, and its limits."""
    def of(kind):
        return [request for request in requests if kind in ("all", request[1])]

    def distance(before, after):
        return after[2] // 512 - (before[2] + before[3] - 1) // 512

    def closest(n):
        before = requests[max(0, n - 16):n]
        return min((distance(other, requests[n]) for other in reversed(before)), key=abs)

    def outstanding(some):
        timed = [(at, at + response) for at, _, _, _, response in some if response]
        return [1 + sum(end > at for _, end in timed[:n]) for n, (at, _) in enumerate(timed)]

    kinds = ["all", "read", "write"]
    histograms = [([request[3] for request in of(kind)], LENGTHS) for kind in kinds]
    histograms += [([distance(a, b) for a, b in zip(of(kind), of(kind)[1:])], DISTANCES) for kind in kinds]
    histograms += [([closest(n) for n in range(1, len(requests))], DISTANCES)]
    histograms += [([request[4] // 10 for request in of(kind) if request[4]], TIMES) for kind in kinds]
    histograms += [(outstanding(of(kind)), OUTSTANDING) for kind in kinds]
    histograms += [([(b[0] - a[0]) // 10 for a, b in zip(of(kind), of(kind)[1:])], TIMES) for kind in kinds]
    return histograms


def compare(bed, trace):
    """Counts all devices of a trace in the format of MSR in both ways."""
    told = json.loads(bed.run([bed.program, "trace", "histogram", "--format", "msr", trace, "--json"]))
    expected = read_msr(trace)
    assert [device["device"] for device in told] == list(range(len(expected)))
    for device, requests in zip(told, expected):
        assert len(device["histograms"]) == 16
        for histogram, (numbers, limits) in zip(device["histograms"], count(requests)):
            name = histogram["name"]
            assert histogram["buckets"] == bucketed(numbers, limits), name
            assert histogram["count"] == len(numbers), name
            if numbers:
                assert (histogram["min"], histogram["max"]) == (min(numbers), max(numbers)), name
                mean = abs(sum(numbers)) // len(numbers)
                assert abs(histogram["mean"]) == mean, name
            else:
                assert histogram["min"] is histogram["max"] is histogram["mean"] is None, name


@test(forebay_only=True)
def histograms_of_a_trace_equal_an_independent_count(bed):
    random = bed.random
    trace = bed.path("trace.msr")
    at, end = 0, {}
    with open(trace, "w") as f:
        for n in range(3000):
            at += random.choice([0, 1, 9, 10, 11, 99, 5000, 100000, 2000000])
            disk = random.choice([0, 0, 0, 1])
            length = 512 * random.choice([1, 2, 7, 8, 9, 16, 64, 127, 128, 129, 512, 2048])
            sequential = random.random() < 0.4
            offset = end.get(disk, 0) if sequential else 512 * random.randrange(1 << random.randrange(1, 30))
            end[disk] = offset + length
            response = random.choice([0, 3, 10, 999, 1000, 5001, 300000, 2000000])
            f.write("%d,host,%d,%s,%d,%d,%d\n" % (at, disk, random.choice(["Read", "Write"]), offset, length, response))
    compare(bed, trace)
