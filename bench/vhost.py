"""A virtual machine's RAM hits."""
import json
import subprocess

from lab import DISK_MIB, LOAD, Contestant, scenario


class Vhost:
    """A vhost-user-blk device under the client without a guest."""

    def __init__(self, name, socket, process):
        self.name, self.socket, self.process = name, socket, process

    def load(self, *options):
        options = list(options)
        if "--threads" in options:  # a queue has a thread
            at = options.index("--threads")
            del options[at:at + 2]
        command = [LOAD, "vhost", "--json", "--socket", self.socket, "--server-pid",
                   str(self.process.pid), "--region", "%dMiB" % DISK_MIB]
        result = subprocess.run(command + list(map(str, options)), capture_output=True, text=True, timeout=60)
        if result.returncode:
            raise RuntimeError("%s: %s" % (self.name, result.stderr.strip()))
        return json.loads(result.stdout)

    def stop(self):
        """Its server ends with the test bed."""


@scenario("a virtual machine's RAM hits, QD32, 4 and 8 KiB, 1 and 2 queues, a client that polls and one that sleeps: "
          ">= 4 x qemu-storage-daemon on tmpfs with aio=io_uring, >= 0.6 x a device that only copies")
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
    copying = run.bed.path("bare.vhost")
    bare = run.bed.spawn([LOAD, "serve-vhost", copying, "--size", "%dMiB" % DISK_MIB], stdout=subprocess.PIPE)
    bare.stdout.readline()  # it says when it is ready
    contestants = [Vhost("forebay", socket, ours.process), Vhost("qemu-storage-daemon", other, peer.process),
                   Vhost("bare copy", copying, bare)]
    for _ in run.rounds():
        for queues in (1, 2):
            for size in ("4KiB", "8KiB"):
                for wait in ("poll", "block"):
                    for contestant in contestants:
                        run.measure(contestant, "--block-size", size, "--depth", 32, "--queues", queues, "--wait", wait,
                                    name="%s, %s, %d queues, %s" % (contestant.name, size, queues, wait))
    return {"base": "forebay", "better": "iops"}
