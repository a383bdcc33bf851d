"""Replays as fast as possible, beside fio on the same target."""
import json
import random
import subprocess

from lab import DISK_MIB, FOREBAY, MIB, scenario

DEPTH = 32
BLOCK = 4096


class Fio:
    """Random reads by fio's own engine for the target."""

    def __init__(self, name, engine):
        self.name, self.engine = name, engine

    def load(self, seconds):
        command = ["fio", "--name=fio", *self.engine, "--rw=randread", "--bs=4k", "--iodepth=%d" % DEPTH,
                   "--size=%dm" % DISK_MIB, "--time_based", "--runtime=%g" % seconds, "--norandommap", "--randrepeat=0",
                   "--output-format=json", "--percentile_list=50:99"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        # fio may talk before its result.
        reads = json.loads(text[text.index("{"):])["jobs"][0]["read"]
        at = {float(key): value for key, value in reads["lat_ns"].get("percentile", reads["clat_ns"]["percentile"]).items()}
        return {"iops": reads["iops"], "mean_us": reads["lat_ns"]["mean"] / 1e3, "p99_us": at[99.0] / 1e3}


class Replay:
    """The same by a trace of random reads."""

    def __init__(self, name, trace, target):
        self.name, self.trace, self.target = name, trace, target

    def load(self, seconds):
        command = [FOREBAY, "trace", "replay", self.trace, "--target", self.target, "--as-fast-as-possible",
                   "--queue-depth", str(DEPTH), "--loop", "1000", "--duration", "%dms" % (seconds * 1000), "--json", "-"]
        run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["runs"][0]
        return {"iops": run["iops"], "mean_us": run["reads"]["mean_ns"] / 1e3, "p99_us": run["reads"]["p99_ns"] / 1e3}


@scenario("random 4 KiB reads, QD32, as fast as possible: >= 80 % of fio on the same target")
def replay_beside_fio(run):
    trace = run.bed.path("reads.fbt")
    text = run.bed.path("reads.msr")
    with open(text, "w") as f:
        for n in range(200_000):
            f.write("%d,host,0,Read,%d,%d,0\n" % (n, random.randrange(DISK_MIB * MIB // BLOCK) * BLOCK, BLOCK))
    run.bed.run([FOREBAY, "trace", "convert", text, trace])
    image, memory = run.bed.image("image", DISK_MIB * MIB, "random"), run.file("image")
    subprocess.run(["sync", image], check=True)
    # Half of the CPUs' work is then the server's, on both sides.
    socket = run.bed.path("memory.sock")
    run.bed.other("nbdkit", ["nbdkit", "-f", "-U", socket, "memory", "%dM" % DISK_MIB], "unix:" + socket)
    uri = "nbd+unix:///?socket=" + socket
    contestants = [
        (Fio("fio", ["--ioengine=io_uring", "--direct=1", "--filename=" + image]), "file by io_uring"),
        (Replay("replay", trace, "file:" + image), "file by io_uring"),
        (Fio("fio", ["--ioengine=io_uring", "--filename=" + memory]), "file on tmpfs"),
        (Replay("replay", trace, "file:" + memory), "file on tmpfs"),
        (Fio("fio", ["--ioengine=nbd", "--uri=" + uri]), "nbdkit memory"),
        (Replay("replay", trace, uri + "&connections=1"), "nbdkit memory"),
    ]
    for _ in run.rounds():
        for contestant, what in contestants:
            run.results.setdefault("%s, %s" % (contestant.name, what), []).append(contestant.load(run.options.seconds))
    return {"base": "fio", "better": "iops"}
