"""RAM hits over iSCSI beside tgt, which exports a file on tmpfs."""
import os
import re
import subprocess
import time

from lab import DISK_MIB, Contestant, free_port, scenario

TARGET = "iqn.2026-01.bench:"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Processor time of a process and all its threads."""
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


class Iscsi:
    """A logical unit under iscsi-perf or qemu-img bench, whose own measure of time is taken."""

    def __init__(self, name, url, process):
        self.name, self.url, self.process = name, url, process

    def load(self, *options):
        options = dict(zip(options[::2], options[1::2]))
        seconds = float(options["--seconds"])
        used = cpu_seconds(self.process.pid)
        iops, count = (self.qemu_img if options["--client"] == "qemu-img bench" else self.iscsi_perf)(seconds)
        used = cpu_seconds(self.process.pid) - used
        return {"iops": iops, "server_cpu_us_per_request": used * 1e6 / count}

    def iscsi_perf(self, seconds):
        seconds = max(1, int(seconds))
        command = ["iscsi-perf", "-r", "-m", "32", "-b", "16", "-t", "%d" % seconds, self.url]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        found = re.findall(r"iops average (\d+)", text)
        if not found:
            raise RuntimeError("%s: %s" % (self.name, text[-500:]))
        return float(found[-1]), float(found[-1]) * seconds

    def qemu_img(self, seconds):
        count = int(20_000 * seconds)
        command = ["qemu-img", "bench", "-f", "raw", "-t", "none", "-c", str(count), "-d", "32", "-s", "8192",
                   "-S", "8192", self.url]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        return count / float(re.search(r"completed in ([\d.]+) seconds", text).group(1)), count

    def stop(self):
        """Its server ends with the test bed."""


def tgt(run, backing):
    """A tgtd of its own, with one logical unit."""
    portal = "127.0.0.1:%d" % free_port()
    about = {**os.environ, "TGT_IPC_SOCKET": run.bed.path("tgtd.%s.sock" % backing)}
    server = run.bed.spawn(["tgtd", "-f", "--iscsi", "portal=" + portal], env=about,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    admin = ["tgtadm", "--lld", "iscsi", "--op"]
    name = TARGET + backing
    steps = [["new", "--mode", "target", "--tid", "1", "-T", name],
             ["new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--bstype", backing, "-b",
              run.file("tgt-%s.raw" % backing)],
             ["bind", "--mode", "target", "--tid", "1", "-I", "ALL"]]
    for step in steps:
        for _ in range(100):
            done = subprocess.run(admin + step, env=about, capture_output=True, text=True)
            if done.returncode == 0:
                break
            time.sleep(0.1)  # it opens its socket a moment after it was started
        else:
            raise RuntimeError("tgtadm %s: %s" % (" ".join(step), done.stderr))
    return Iscsi("tgt " + backing, "iscsi://%s/%s/1" % (portal, name), server)


@scenario("RAM hits over iSCSI, 8 KiB, one session, QD32: >= 1.5 x tgt with its aio backing on tmpfs, at <= 1/3 of its "
          "CPU per I/O")
def iscsi_ram_hits(run):
    portal = "127.0.0.1:%d" % free_port()
    ours = run.bed.disk("mem:%dMiB" % DISK_MIB, name="iscsi", ram="%dMiB" % (DISK_MIB + 64), extra=[
        "--grid-offset", "0", "--iscsi", portal, "--iscsi-target", TARGET + "forebay"])
    # Every byte is in RAM before the first round.
    Contestant("iscsi", [ours.listen], [ours]).load(
        "--pattern", "each-once", "--requests", DISK_MIB * 128, "--block-size", "8KiB")
    contestants = [Iscsi("forebay", "iscsi://%s/%sforebay/0" % (portal, TARGET), ours.process),
                   tgt(run, "aio"), tgt(run, "null")]
    for _ in run.rounds():
        for client in ("iscsi-perf", "qemu-img bench"):
            for contestant in contestants:
                run.measure(contestant, "--client", client, name="%s, %s" % (contestant.name, client))
    return {"base": "forebay", "better": "iops"}
