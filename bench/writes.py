"""Durable writes, steady and in bursts."""
import json
import subprocess

from lab import Contestant, scenario


class RawFile:
    """fio on a preallocated file of the file system that the log is on, each write durable when it returns."""

    name = "raw O_DSYNC"

    def __init__(self, path, rw="randwrite", block="4k"):
        self.path, self.how = path, ["--rw=" + rw, "--bs=" + block]
        subprocess.run(["fallocate", "-l", "256M", path], check=True)
        # The whole file is written once first: later writes change no metadata.
        self.fio("--rw=write", "--bs=1m")

    def fio(self, *options):
        command = ["fio", "--name=raw", "--filename=" + self.path, "--ioengine=psync", "--direct=1", "--sync=dsync",
                   "--size=256m", "--output-format=json", "--percentile_list=50:99", *options]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def load(self, *options):
        seconds = options[options.index("--seconds") + 1]
        writes = self.fio(*self.how, "--time_based", "--runtime=%s" % seconds)["jobs"][0]["write"]
        latency = writes["clat_ns"]
        at = {float(key): value for key, value in latency["percentile"].items()}
        return {"iops": writes["iops"], "mean_us": latency["mean"] / 1e3, "p50_us": at[50.0] / 1e3,
                "p99_us": at[99.0] / 1e3}

    def stop(self):
        pass


class Writes(Contestant):
    """A contestant whose writes are measured."""

    def load(self, *options):
        result = super().load("--write-percent", 100, "--overwrite", *options)
        return {**result, **result["writes"]}


@scenario("durable 4 KiB writes: QD1 p50 <= 1.7 x raw O_DSYNC, QD32 >= 12 x its rate; "
          "write cache on: QD1 p50 <= 1.5 x a RAM hit")
def durable_writes(run):
    def disk(name, *options):
        # As the raw file: written once, so that no write changes metadata of the file system.
        flash = run.bed.path(name + ".flash")
        subprocess.run(["dd", "if=/dev/zero", "of=" + flash, "bs=16M", "count=208", "status=none", "conv=fsync"], check=True)
        return run.bed.disk("mem:256MiB", name=name, ram="320MiB", extra=[
            "--flash", flash + ":3GiB", "--write-log", "2GiB", "--mode", "write-back", "--grid-offset", "0", *options])

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
                "occupancy": log["occupied_bytes"] / log["capacity_bytes"]}

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
                result = contestant.load("--rate", rate, "--seconds", seconds)
                run.results.setdefault("%s, %s" % (what, name), []).append(result)
            contestant.stop()
    return {"base": "base", "better": "p99_us"}


class Sustained:
    """fio over NBD: durable random 4 KiB writes, 32 under way, faster than primary storage; measured with a full log."""

    name = "fio"

    def __init__(self, server):
        self.server = server

    def load(self, *options):
        seconds = options[options.index("--seconds") + 1]
        command = ["fio", "--name=sustained", "--ioengine=nbd", "--uri=" + self.server.uri, "--rw=randwrite", "--bs=4k",
                   "--iodepth=32", "--size=1g", "--time_based", "--ramp_time=%g" % seconds, "--runtime=%g" % seconds,
                   "--randrepeat=0", "--output-format=json", "--percentile_list=50:99"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        writes = json.loads(text[text.index("{"):])["jobs"][0]["write"]
        at = {float(key): value for key, value in writes["clat_ns"]["percentile"].items()}
        log = self.server.stats()["log"]
        return {"iops": writes["iops"], "mean_us": writes["clat_ns"]["mean"] / 1e3, "p50_us": at[50.0] / 1e3,
                "p99_us": at[99.0] / 1e3, "occupancy": log["occupied_bytes"] / log["capacity_bytes"]}


@scenario("32 durable writers of random 4 KiB for longer than the log has room: journaled >= 0.85 x throughput order, on storage of "
          "3 ms and 11,000/s and on an NBD server of 3 ms")
def destage_orders(run):
    def nbd(name):
        path = run.bed.path("server-%s.sock" % name)
        run.bed.other("nbdkit", ["nbdkit", "-f", "-t", "64", "-U", path, "--filter=delay", "memory", "2G",
                                 "rdelay=3ms", "wdelay=3ms"], "unix:" + path)
        return "nbd+unix:///?socket=" + path

    for i in run.rounds():
        for order in ("throughput", "journaled", "strict"):
            for storage in ("model", "NBD server"):
                name = "%s-%s-%d" % (storage.split()[0].lower(), order, i)
                more = ["--destage-order", order, "--write-log", "64MiB", "--write-cache", "off"]
                if storage == "model":
                    image = run.bed.image(name + ".raw", 1 << 30, "holes")
                    backend = "model:san?iops=11000&latency=3ms&inner=file:" + image
                else:
                    backend = nbd(name)
                    more += ["--destage-journal", nbd(name + "-journal")] if order == "journaled" else []
                disk = run.bed.disk(backend, name=name, ram="64MiB", mode="write-back", extra=[
                    "--flash", run.bed.path(name + ".flash") + ":256MiB", *more])
                run.measure(Sustained(disk), name="%s, %s" % (order, storage))
                disk.stop()
    return {"base": "throughput", "better": "iops"}
