"""The traces that the project keeps, which a real kernel and file system made (traces/README.md)."""
import json
import os

from bed import MIB, test
from test_histogram import compare

TRACES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "traces")
NAMES = ["pgbench", "build"]
# Where each trace has reads and writes of all kinds.
FIRST, REQUESTS = 10000, 4000


def stretch(bed, name):
    """Some requests from the middle of a trace, in the format of MSR."""
    whole, some = bed.path(name + ".all"), bed.path(name + ".msr")
    bed.run([bed.program, "trace", "convert", os.path.join(TRACES, name + ".fbt"), whole, "--to", "msr"])
    with open(whole) as f, open(some, "w") as out:
        for number, line in enumerate(f):
            if FIRST <= number < FIRST + REQUESTS:
                out.write(line)
    return some


@test(forebay_only=True)
def histograms_of_recorded_traces_equal_an_independent_count(bed):
    for name in NAMES:
        compare(bed, stretch(bed, name))


@test(forebay_only=True)
def recorded_traces_verify_through_a_write_back_disk_that_is_smaller_than_they_are(bed):
    for name in NAMES:
        trace = stretch(bed, name)
        info = json.loads(bed.run([bed.program, "trace", "info", trace, "--json"]))
        assert info["reads"] > 500 and info["writes"] > 100, info
        image = bed.image(name + ".raw", -(-info["span_bytes"] // MIB) * MIB, "holes")
        disk = bed.disk("file:" + image, mode="write-back", name=name, ram="8MiB",
                        flash=bed.path(name + ".flash") + ":96MiB", extra=["--write-log", "16MiB"])
        run = json.loads(bed.run([bed.program, "trace", "replay", trace, "--target", disk.uri, "--verify",
                                  "--as-fast-as-possible", "--json", "-"]))["runs"][0]
        assert run["reads"]["count"] + run["writes"]["count"] == REQUESTS and run["errors"] == 0, run
        assert run["verified"]["checked"] > 1000, run
        assert disk.stats()["counters"]["read_hits_ram"] > 0
        assert disk.stop() == 0
