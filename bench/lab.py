"""Scenarios, the servers that they measure, and what a run of one has."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.append(os.path.join(ROOT, "tests", "conformance"))

from bed import MIB, Bed, free_port  # noqa: E402,F401

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
        command = [LOAD, "load", "--json"]
        if "--connections" not in options:
            command += ["--connections", str(self.connections)]
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
            fill = ["--pattern", "each-once", "--write-percent", 100, "--overwrite", "--block-size", "64KiB"]
            contestant.load(*fill, "--requests", DISK_MIB * 16 // connections)
        return contestant

    def bare(self, name, connections, *options):
        path = self.bed.path(name + ".sock")
        command = [LOAD, "serve", "unix:" + path, "--size", "%dMiB" % DISK_MIB, *options]
        return Contestant(name, ["unix:" + path], [self.bed.other("bare", command, "unix:" + path)], connections)
