#!/usr/bin/python3
"""Measures Forebay beside its peers and the limit, interleaved in one run.

    run.py [WHAT...] [--rounds 5] [--seconds 3] [--threads 1] [--quick] [--no-save] [--list]

Each round measures every contestant of a scenario once, one after the other, all with the same load
generator (crates/forebay-bench). Printed and kept are medians over the rounds, their spread, and
ratios within the same round. Results go to bench/runs/<date>-<what>.json with machine and command.
docs/benchmarks.md says what each scenario asks and what came out.
"""
import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests", "conformance"))

from bed import MIB, Bed  # noqa: E402

FOREBAY = os.environ.get("FOREBAY", os.path.join(ROOT, "target/release/forebay"))
LOAD = os.environ.get("FOREBAY_BENCH", os.path.join(ROOT, "target/release/forebay-bench"))
DISK_MIB = 256
SCENARIOS = {}


def scenario(goal):
    """Marks a function that takes a Run and measures; `goal` is what is wanted of it."""
    def mark(function):
        SCENARIOS[function.__name__.replace("_", "-")] = (function, goal)
        return function
    return mark


class Contestant:
    """Servers that are measured together: where they listen, and their processes."""

    def __init__(self, name, targets, servers, connections=1):
        self.name, self.targets, self.servers = name, targets, servers
        self.connections = connections

    def load(self, *options):
        command = [LOAD, "load", "--json", "--connections", str(self.connections)]
        for target in self.targets:
            command += ["--target", target]
        for server in self.servers:
            command += ["--server-pid", str(server.process.pid)]
        result = subprocess.run(command + list(map(str, options)), capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError("%s: %s" % (self.name, result.stderr.strip()))
        return json.loads(result.stdout)

    def stop(self):
        for server in self.servers:
            server.stop()


class Run:
    """One scenario's rounds and what they measured."""

    def __init__(self, bed, options):
        self.bed, self.options, self.results = bed, options, {}
        self.tmpfs = tempfile.mkdtemp(prefix="forebay-bench.", dir="/dev/shm")

    def rounds(self):
        for i in range(self.options.rounds):
            # Standard output belongs to the test bed meanwhile, which tells what it starts.
            print("  round %d of %d" % (i + 1, self.options.rounds), end="\r", file=sys.__stdout__, flush=True)
            yield i

    def measure(self, contestant, *options, name=None):
        more = ["--seconds", self.options.seconds, "--threads", self.options.threads]
        result = contestant.load(*more, *options)
        self.results.setdefault(name or contestant.name, []).append(result)

    def file(self, name):
        """A file of random bytes on tmpfs."""
        path = os.path.join(self.tmpfs, name)
        with open(path, "wb") as f:
            for _ in range(DISK_MIB):
                f.write(os.urandom(MIB))
        return path

    def close(self):
        self.bed.close()
        for name in os.listdir(self.tmpfs):
            os.unlink(os.path.join(self.tmpfs, name))
        os.rmdir(self.tmpfs)

    # ---- contestants

    def forebay(self, name, disks, shards):
        """Disks whose every byte is in RAM before the first round."""
        text = "shards = %d\n" % shards
        sockets = [self.bed.path("%s-%d.sock" % (name, i)) for i in range(disks)]
        for i, path in enumerate(sockets):
            text += ('[[disk]]\nname = "disk%d"\nbackend = "mem:%dMiB"\nram = "%dMiB"\nblock-size = "8KiB"\n'
                     'grid-offset = "0"\nnbd = ["unix:%s"]\n' % (i, DISK_MIB, DISK_MIB + 64, path))
        server = self.bed.serve(text, ["unix:" + sockets[0]])
        contestant = Contestant(name, ["unix:" + s for s in sockets], [server])
        contestant.load("--pattern", "each-once", "--requests", DISK_MIB * 128, "--block-size", "8KiB")
        return contestant

    def nbdkit(self, name, plugin, processes, connections):
        servers = []
        for i in range(processes):
            path = self.bed.path("%s-%d.sock" % (name.replace(" ", "-"), i))
            arguments = ["memory", "%dM" % DISK_MIB] if plugin == "memory" else ["file", self.file(name + str(i))]
            servers.append(self.bed.other("nbdkit", ["nbdkit", "-f", "-U", path, *arguments], "unix:" + path))
        contestant = Contestant(name, [s.listen for s in servers], servers, connections)
        if plugin == "memory":  # else its pages would not exist
            fill = ["--pattern", "each-once", "--write-percent", 100, "--block-size", "64KiB"]
            contestant.load(*fill, "--requests", DISK_MIB * 16 // connections)
        return contestant

    def bare(self, name, connections):
        path = self.bed.path(name + ".sock")
        command = [LOAD, "serve", "unix:" + path, "--size", "%dMiB" % DISK_MIB]
        return Contestant(name, ["unix:" + path], [self.bed.other("bare", command, "unix:" + path)], connections)


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


class Vhost:
    """A vhost-user-blk device under the client without a guest."""

    def __init__(self, name, socket, server):
        self.name, self.socket, self.server = name, socket, server

    def load(self, *options):
        options = list(options)
        if "--threads" in options:  # a queue has a thread
            at = options.index("--threads")
            del options[at:at + 2]
        command = [LOAD, "vhost", "--json", "--socket", self.socket, "--server-pid",
                   str(self.server.process.pid), "--region", "%dMiB" % DISK_MIB]
        result = subprocess.run(command + list(map(str, options)), capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError("%s: %s" % (self.name, result.stderr.strip()))
        return json.loads(result.stdout)

    def stop(self):
        self.server.stop()


@scenario("a virtual machine's RAM hits, QD32, 4 and 8 KiB, 1 and 2 queues, a client that polls and one that sleeps: "
          ">= 4 x qemu-storage-daemon on tmpfs with aio=io_uring")
def vhost_ram_hits(run):
    socket = run.bed.path("forebay.vhost")
    ours = run.bed.disk("mem:%dMiB" % DISK_MIB, name="vhost", ram="%dMiB" % (DISK_MIB + 64), extra=[
        "--grid-offset", "0", "--vhost-user", socket, "--queues", "2"])
    # Every byte is in RAM before the first round.
    Contestant("vhost", [ours.listen], [ours]).load(
        "--pattern", "each-once", "--requests", DISK_MIB * 128, "--block-size", "8KiB")
    other, path = run.bed.path("qsd.vhost"), run.file("qsd.raw")
    nbd = run.bed.path("qsd.sock")
    peer = run.bed.other("qsd", [
        "qemu-storage-daemon", "--blockdev", "driver=file,node-name=file,aio=io_uring,filename=" + path,
        "--export", "type=vhost-user-blk,id=vhost,node-name=file,writable=on,num-queues=2,"
        "addr.type=unix,addr.path=" + other, "--nbd-server", "addr.type=unix,addr.path=" + nbd], "unix:" + nbd)
    contestants = [Vhost("forebay", socket, ours), Vhost("qemu-storage-daemon", other, peer)]
    for _ in run.rounds():
        for queues in (1, 2):
            for size in ("4KiB", "8KiB"):
                for wait in ("poll", "block"):
                    for contestant in contestants:
                        run.measure(contestant, "--block-size", size, "--depth", 32, "--queues", queues, "--wait", wait,
                                    name="%s, %s, %d queues, %s" % (contestant.name, size, queues, wait))
    return {"base": "forebay", "better": "iops"}


class RawFile:
    """fio on a preallocated file of the file system that the log is on, each write durable when it returns."""

    name = "raw O_DSYNC"

    def __init__(self, path):
        self.path = path
        subprocess.run(["fallocate", "-l", "256M", path], check=True)
        self.fio("write", 4)

    def fio(self, rw, seconds):
        command = ["fio", "--name=raw", "--filename=" + self.path, "--ioengine=psync", "--direct=1", "--sync=dsync",
                   "--bs=4k", "--size=256m", "--rw=" + rw, "--output-format=json", "--percentile_list=50:99"]
        # The whole file is written once first: later writes change no metadata.
        command += ["--bs=1m"] if rw == "write" else ["--time_based", "--runtime=%s" % seconds]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def load(self, *options):
        seconds = options[options.index("--seconds") + 1]
        writes = self.fio("randwrite", seconds)["jobs"][0]["write"]
        latency = writes["clat_ns"]
        at = {float(key): value for key, value in latency["percentile"].items()}
        return {"iops": writes["iops"], "mean_us": latency["mean"] / 1e3, "p50_us": at[50.0] / 1e3,
                "p99_us": at[99.0] / 1e3}

    def stop(self):
        pass


class Writes(Contestant):
    """A contestant whose writes are measured."""

    def load(self, *options):
        result = super().load("--write-percent", 100, *options)
        return {**result, **result["writes"]}


@scenario("durable 4 KiB writes: QD1 p50 <= 1.7 x raw O_DSYNC, QD32 >= 12 x its rate; "
          "write cache on: QD1 p50 <= 1.5 x a RAM hit")
def durable_writes(run):
    def disk(name, *options):
        flash = run.bed.path(name + ".flash") + ":3GiB"
        return run.bed.disk("mem:256MiB", name=name, ram="320MiB", extra=[
            "--flash", flash, "--write-log", "2GiB", "--mode", "write-back", "--grid-offset", "0", *options])

    durable, cached = disk("durable", "--write-cache", "off"), disk("cached", "--write-cache", "on")
    raw = RawFile(run.bed.path("raw"))
    contestants = [
        (raw, 1, raw.name + ", QD1"),
        (Writes("forebay durable", [durable.listen], [durable]), 1, "forebay durable, QD1"),
        (Writes("forebay durable", [durable.listen], [durable]), 32, "forebay durable, QD32"),
        (Writes("forebay cached", [cached.listen], [cached]), 1, "forebay write cache on, QD1"),
        (Contestant("RAM hit", [cached.listen], [cached]), 1, "forebay RAM hit, QD1"),
    ]
    for _ in run.rounds():
        for contestant, depth, name in contestants:
            run.measure(contestant, "--block-size", "4KiB", "--depth", depth, name=name)
    return {"base": raw.name, "better": "p50_us"}


class Burst:
    """fio over NBD: so many durable random 4 KiB writes per second, at most 32 under way."""

    def __init__(self, name, server):
        self.name, self.server = name, server

    def load(self, *options):
        rate, seconds = (options[options.index(word) + 1] for word in ("--rate", "--seconds"))
        command = ["fio", "--name=burst", "--ioengine=nbd", "--uri=" + self.server.uri, "--rw=randwrite", "--bs=4k",
                   "--iodepth=32", "--rate_iops=%d" % rate, "--size=1g", "--time_based", "--runtime=%g" % seconds,
                   "--randrepeat=0", "--output-format=json", "--percentile_list=50:99"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        # fio may talk before its result.
        writes = json.loads(text[text.index("{"):])["jobs"][0]["write"]
        latency = writes["clat_ns"]
        at = {float(key): value for key, value in latency["percentile"].items()}
        log = self.server.stats()["log"]
        return {"iops": writes["iops"], "mean_us": latency["mean"] / 1e3, "p50_us": at[50.0] / 1e3,
                "p99_us": at[99.0] / 1e3, "longest_ms": latency["max"] / 1e6, "limited_by": log["limited_by"],
                "occupancy": log["dirty_bytes"] / log["capacity_bytes"]}

    def stop(self):
        self.server.stop()


@scenario("bursts of 15,000 durable 4 KiB writes/s at QD32 on storage that takes 11,000/s at 3 ms: p99 <= 2 x that of "
          "250/s while the log has room; slowed, never stopped, when it is full")
def burst(run):
    logs = {"window, 2 GiB log": ("window", "2GiB"), "window, 128 MiB log": ("window", "128MiB"),
            "strict, 2 GiB log": ("strict", "2GiB")}
    for i in run.rounds():
        for j, (name, (order, size)) in enumerate(logs.items()):
            disk = "burst-%d-%d" % (i, j)
            flash = run.bed.path(disk + ".flash") + ":3GiB"
            server = run.bed.disk("model:san?iops=11000&latency=3ms&inner=mem:1GiB", name=disk, ram="64MiB", extra=[
                "--flash", flash, "--write-log", size, "--mode", "write-back", "--destage-order", order,
                "--write-cache", "off"])
            contestant = Burst(name, server)
            for what, rate, seconds in (("base", 250, 5), ("burst", 15000, 20), ("base again", 250, 5)):
                result = contestant.load("--rate", rate, "--seconds", min(seconds, run.options.seconds * 4))
                run.results.setdefault("%s, %s" % (what, name), []).append(result)
            contestant.stop()
    return {"base": "base", "better": "p99_us"}


# ---- results

def value(result, key):
    return result[key] if key in result else result.get("reads", {}).get(key)


def summary(run, shape):
    """Medians, spreads and ratios to the base within the same round."""
    out = {}
    for name, results in run.results.items():
        row = {}
        for key in ("iops", "mean_us", "p50_us", "p99_us", "server_cpu_us_per_request",
                    "client_cpu_us_per_request"):
            values = [value(r, key) for r in results if value(r, key) is not None]
            if values:
                row[key] = {"median": round(statistics.median(values), 2), "min": min(values), "max": max(values)}
        depth = name.partition(", ")[2]
        base = shape["base"] + (", " + depth if depth else "")
        if base in run.results and base != name:
            key = shape["better"]
            pairs = zip(run.results[base], results)
            ratios = [value(b, key) / value(r, key) for b, r in pairs] if key == "iops" else \
                [value(r, key) / value(b, key) for b, r in pairs]
            row["ratio"] = {"median": round(statistics.median(ratios), 3),
                            "min": round(min(ratios), 3), "max": round(max(ratios), 3)}
        out[name] = row
    return out


def show(rows, shape):
    what = "%s / this" % shape["base"] if shape["better"] == "iops" else "this / %s" % shape["base"]
    print("  %-34s %12s %21s %9s %9s %9s  %s" % (
        "", "IOPS", "(min - max)", "mean µs", "p99 µs", "CPU µs", what))
    for name, row in rows.items():
        iops, cpu = row["iops"], row.get("server_cpu_us_per_request")
        ratio = row.get("ratio")
        print("  %-34s %12s %21s %9.1f %9.1f %9s  %s" % (
            name, format(round(iops["median"]), ","),
            "(%s - %s)" % (format(round(iops["min"]), ","), format(round(iops["max"]), ",")),
            row["mean_us"]["median"], row["p99_us"]["median"],
            "%.2f" % cpu["median"] if cpu else "",
            "%.2f (%.2f - %.2f)" % (ratio["median"], ratio["min"], ratio["max"]) if ratio else ""))


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "?")
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) // 1024
    return {"cpu": model, "cpus": os.cpu_count(), "memory_mib": memory, "kernel": os.uname().release,
            "load_average_before": os.getloadavg()}


def commit():
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="scenarios whose name has one of these words; default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads of the load generator")
    parser.add_argument("--quick", action="store_true", help="two short rounds, nothing kept")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.no_save = 2, 0.5, True
    chosen = {n: s for n, s in SCENARIOS.items() if not options.what or any(w in n for w in options.what)}
    if options.list or not chosen:
        print("\n".join("%-34s %s" % (n, goal) for n, (_, goal) in SCENARIOS.items()))
        return 0 if options.list else 2
    for name, (function, goal) in chosen.items():
        print("%s\n  wanted: %s" % (name, goal))
        about = machine()
        with tempfile.TemporaryDirectory(prefix="forebay-bench.") as directory:
            with open(os.path.join(directory, "log"), "w") as log, contextlib.redirect_stdout(log):
                run = Run(Bed(directory, "forebay", FOREBAY), options)
                try:
                    shape = function(run)
                finally:
                    run.close()
        rows = summary(run, shape)
        print(" " * 40, end="\r")
        show(rows, shape)
        if not options.no_save:
            save(name, goal, about, options, rows, run.results)
    return 0


def save(name, goal, about, options, rows, results):
    path = os.path.join(HERE, "runs", "%s-%s.json" % (datetime.date.today().isoformat(), name))
    command = "bench/run.py %s --rounds %d --seconds %g --threads %d" % (
        name, options.rounds, options.seconds, options.threads)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump({"what": name, "wanted": goal, "date": datetime.date.today().isoformat(), "commit": commit(),
                   "command": command, "machine": about, "summary": rows, "rounds": results}, f, indent=1)
        f.write("\n")
    print("  kept in %s" % os.path.relpath(path, ROOT))


if __name__ == "__main__":
    sys.exit(main())
