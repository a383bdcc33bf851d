"""Reads over NBD: RAM hits, misses, and what passing through costs."""
from lab import Contestant, scenario

HIT = ["--block-size", "8KiB", "--depth", 32]


@scenario("three disks on two shards: >= 400,000 IOPS, p99 <= 1 ms, >= 1.5 x the better nbdkit, <= 2 µs CPU")
def ram_hits_of_three_disks(run):
    contestants = [
        run.forebay("forebay", 3, 2),
        run.nbdkit("nbdkit memory", "memory", 1, 3),
        run.nbdkit("nbdkit file", "file", 1, 3),
        run.nbdkit("3 x nbdkit memory", "memory", 3, 1),
        run.nbdkit("3 x nbdkit file", "file", 3, 1),
        run.bare("bare copy", 3),
    ]
    for _ in run.rounds():
        for contestant in contestants:
            run.measure(contestant, *HIT)
    return {"base": "forebay", "better": "iops"}


@scenario("one disk, one connection: >= 1.5 x the better nbdkit")
def ram_hits_of_one_disk(run):
    contestants = [
        run.forebay("forebay", 1, 1),
        run.nbdkit("nbdkit memory", "memory", 1, 1),
        run.nbdkit("nbdkit file", "file", 1, 1),
        run.bare("bare copy", 1),
    ]
    for _ in run.rounds():
        for contestant in contestants:
            run.measure(contestant, *HIT)
    return {"base": "forebay", "better": "iops"}


def cold_disk(run, backend, name, *options):
    """A disk with nothing in its cache."""
    server = run.bed.disk(backend, name=name, ram=None, extra=["--grid-offset", "0", *options])
    return Contestant(name, [server.listen], [server])


def cold_reads(run, backend):
    flash = run.bed.path("flash")
    modes = {
        "pass-through": ["--mode", "pass-through", "--ram", "0"],
        "write-through RAM": ["--ram", "64MiB"],
        "write-through RAM and flash": ["--ram", "64MiB", "--flash", flash + ":1GiB"],
    }
    for i in run.rounds():
        for j, (name, options) in enumerate(modes.items()):
            contestant = cold_disk(run, backend, "cold-%d-%d" % (i, j), *options)
            for depth in (1, 32):
                # No block is asked for twice: the second half of the order is still cold.
                run.measure(contestant, "--block-size", "8KiB", "--depth", depth, "--pattern", "each-once",
                            "--skip", 0 if depth == 1 else 1 << 17, name="%s, QD%d" % (name, depth))
            contestant.stop()
    return {"base": "pass-through", "better": "mean_us"}


@scenario("the miss path costs at most 5 % over pass-through in mean latency, at QD1 and QD32")
def cold_reads_of_a_1_ms_model(run):
    return cold_reads(run, "model:san?latency=1ms&inner=mem:2GiB")


@scenario("the same in front of an NBD server that takes 1 ms")
def cold_reads_of_a_1_ms_nbd_server(run):
    path = run.bed.path("slow.sock")
    slow = run.bed.other("slow", ["nbdkit", "-f", "-t", "64", "-U", path, "--filter=delay", "memory", "2G",
                                  "rdelay=1ms"], "unix:" + path)
    return cold_reads(run, slow.uri)


@scenario("pass-through adds at most 10 µs to the mean of nbdkit's file plugin on the same file, QD1")
def pass_through_beside_nbdkit_file(run):
    path = run.file("shared.raw")
    socket = run.bed.path("peer.sock")
    peer = run.bed.other("nbdkit", ["nbdkit", "-f", "-U", socket, "file", path], "unix:" + socket)
    # The same way to the file for both: the page cache.
    server = run.bed.disk("file:%s?direct=off" % path, name="pass-through", mode="pass-through", ram="0")
    contestants = [Contestant("forebay pass-through", [server.listen], [server]),
                   Contestant("nbdkit file", [peer.listen], [peer])]
    for _ in run.rounds():
        for contestant in contestants:
            for depth in (1, 32):
                run.measure(contestant, "--block-size", "8KiB", "--depth", depth,
                            name="%s, QD%d" % (contestant.name, depth))
    return {"base": "nbdkit file", "better": "mean_us"}
