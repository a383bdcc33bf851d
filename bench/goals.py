"""The goals of one host: each figure beside what it is measured against, in one run, with the goal and the last kept run."""
import re
import statistics
import subprocess
import time

from iscsi import TARGET, Iscsi
from lab import DISK_MIB, LOAD, MIB, Contestant, free_port, scenario
from results import last_kept
from vhost import Vhost
from writes import RawFile, Writes

# What, how it is loaded, beside which server, and the ratio that is wanted.
HITS = [
    ("vhost-user, polls, 4 KiB", "vhost", ["--block-size", "4KiB", "--wait", "poll"], "a thread per queue", 0.80),
    ("vhost-user, polls, 8 KiB", "vhost", ["--block-size", "8KiB", "--wait", "poll"], "a thread per queue", 0.85),
    ("vhost-user, sleeps, 4 KiB", "vhost", ["--block-size", "4KiB", "--wait", "block"], "a thread per queue", 0.85),
    ("vhost-user, sleeps, 8 KiB", "vhost", ["--block-size", "8KiB", "--wait", "block"], "a thread per queue", 0.85),
    ("… 2 queues, 4 KiB", "vhost", ["--block-size", "4KiB", "--wait", "block", "--queues", 2], "a thread per queue", 0.55),
    ("… 2 queues, 4 KiB", "vhost", ["--block-size", "4KiB", "--wait", "block", "--queues", 2], "one thread", None),
    ("NBD, 4 KiB", "nbd", ["--block-size", "4KiB"], "a thread per connection", 0.85),
    ("NBD, 8 KiB", "nbd", ["--block-size", "8KiB"], "a thread per connection", 0.90),
    ("… 3 connections, 4 KiB", "nbd", ["--block-size", "4KiB", "--connections", 3], "one thread", 0.85),
    ("… 3 connections, 8 KiB", "nbd", ["--block-size", "8KiB", "--connections", 3], "one thread", 0.85),
    ("… 3 connections, 4 KiB", "nbd", ["--block-size", "4KiB", "--connections", 3], "a thread per connection", None),
]
IDLE_DISKS, IDLE_MIB = 50, 16


@scenario("hits beside bare copying, durable writes beside raw ones, start and idle memory: each as its row says")
def goals(run):
    rows = {}
    for measure in (hits, durable, iscsi):
        measure(run, rows)
    for row in rows.values():
        row.update({key: statistics.median(row[key]) for key in ("forebay", "beside", "figure") if row.get(key)})
    for measure in (starts, idle):
        measure(run, rows)
    return {"figures": rows, "text": table(rows, last_kept("goals"))}


def note(rows, name, goal, forebay, beside=None, figure=None):
    """Takes one round's figures into a row."""
    row = rows.setdefault(name, {"goal": goal, "forebay": [], "beside": [], "figure": []})
    row["forebay"].append(forebay)
    if beside is not None:
        row["beside"].append(beside)
        row["figure"].append(forebay / beside)
    if figure is not None:
        row["figure"].append(figure)


def hits(run, rows):
    vhost, nbd = run.bed.path("goals.vhost"), "unix:" + run.bed.path("goals.sock")
    ours = run.bed.disk("mem:%dMiB" % DISK_MIB, name="goals", ram="%dMiB" % (DISK_MIB + 64), nbd=nbd, extra=[
        "--grid-offset", "0", "--vhost-user", vhost, "--queues", "2"])
    fill = Contestant("goals", [nbd], [ours])
    fill.load("--pattern", "each-once", "--requests", DISK_MIB * 128, "--block-size", "8KiB")
    contestants = {
        ("nbd", "forebay"): fill, ("vhost", "forebay"): Vhost("forebay", vhost, ours.process),
        ("nbd", "one thread"): run.bare("bare-one", 1, "--one-thread"),
        ("nbd", "a thread per connection"): run.bare("bare-each", 1),
        ("vhost", "one thread"): bare_vhost(run, "bare-one", "--one-thread"),
        ("vhost", "a thread per queue"): bare_vhost(run, "bare-each"),
    }
    for i in run.rounds():
        for what, kind, load, beside, goal in HITS:
            load = ["--depth", 32, "--seconds", run.options.seconds, "--warm-up", 0.2, *load]
            pair = ["forebay", beside]
            # Each is first in every other round.
            rate = {who: contestants[kind, who].load(*load)["iops"] for who in (pair if i % 2 else pair[::-1])}
            wanted = "≥ %.2f" % goal if goal else ""
            note(rows, "%s, beside %s" % (what, beside), wanted, rate["forebay"], rate[beside])


def bare_vhost(run, name, *options):
    socket = run.bed.path(name + ".vhost")
    process = run.bed.spawn([LOAD, "serve-vhost", socket, "--size", "%dMiB" % DISK_MIB, *options], stdout=subprocess.PIPE)
    process.stdout.readline()  # it says when it is ready
    return Vhost(name, socket, process)


def durable(run, rows):
    flash = run.bed.path("durable.flash")
    subprocess.run(["dd", "if=/dev/zero", "of=" + flash, "bs=16M", "count=80", "status=none", "conv=fsync"], check=True)
    server = run.bed.disk("mem:256MiB", name="durable", ram="320MiB", extra=[
        "--flash", flash + ":1GiB", "--write-log", "768MiB", "--mode", "write-back", "--grid-offset", "0",
        "--write-cache", "off"])
    ours, raw = Writes("durable", [server.listen], [server]), RawFile(run.bed.path("raw"))
    appends = RawFile(run.bed.path("appends"), "write", "128k")
    for _ in run.rounds():
        options = ["--block-size", "4KiB", "--seconds", run.options.seconds]
        many, beside = ours.load("--depth", 32, *options), appends.load(*options)
        note(rows, "durable writes, 4 KiB, QD32, beside raw appends of 32", "≥ 180,000/s", many["iops"],
             32 * beside["iops"])
        used = many["server_cpu_us_per_request"]
        note(rows, "… CPU", "≤ 4 µs", used, figure=used)
        one, beside = ours.load("--depth", 1, *options), raw.load(*options)
        note(rows, "… QD1, p50, beside raw O_DSYNC", "≤ 1.40", one["p50_us"], beside["p50_us"])
    server.stop()


def iscsi(run, rows):
    portal = "127.0.0.1:%d" % free_port()
    server = run.bed.disk("mem:%dMiB" % DISK_MIB, name="iscsi", ram="%dMiB" % (DISK_MIB + 64), extra=[
        "--grid-offset", "0", "--iscsi", portal, "--iscsi-target", TARGET + "forebay"])
    Contestant("iscsi", [server.listen], [server]).load(
        "--pattern", "each-once", "--requests", DISK_MIB * 128, "--block-size", "8KiB")
    unit = Iscsi("forebay", "iscsi://%s/%sforebay/0" % (portal, TARGET), server.process)
    for _ in run.rounds():
        result = unit.load("--client", "iscsi-perf", "--seconds", 1)
        note(rows, "iSCSI, 8 KiB, QD32", "", result["iops"])
        used = result["server_cpu_us_per_request"]
        note(rows, "… CPU of iSCSI", "≤ 2.5 µs", used, figure=used)
    server.stop()


def starts(run, rows):
    for size in ("256MiB", "4GiB", "8GiB"):
        seconds = []
        for i in run.rounds():
            server = run.bed.disk("mem:16GiB", name="start-%s-%d" % (size, i), ram=size, wait=False)
            began = time.monotonic()
            server.process = run.bed.spawn(server.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            server.wait_for_line()
            seconds.append(time.monotonic() - began)
            server.stop()
        median = statistics.median(seconds)
        rows["ready with --ram " + size] = {"goal": "≤ 0.50 s", "forebay": median, "figure": median}


def idle(run, rows):
    """Memory beside the caches, a disk: of disks that nobody has attached to."""
    text = ""
    for i in range(IDLE_DISKS):
        image = run.bed.image("idle-%d.raw" % i, 64 * MIB, "holes")
        text += '[[disk]]\nname = "idle%d"\nbackend = "file:%s"\nram = "%dMiB"\n' % (i, image, IDLE_MIB)
    listen = "unix:" + run.bed.path("idle.sock")
    server = run.bed.serve(text + '[[nbd]]\nlisten = "%s"\n' % listen, [listen])
    before, now = None, memory_mib(server.process.pid)
    while now != before:  # cache memory comes after the start
        time.sleep(1)
        before, now = now, memory_mib(server.process.pid)
    beside = now / IDLE_DISKS - IDLE_MIB
    rows["memory of an idle disk beside its cache"] = {"goal": "≤ 3 MiB", "forebay": beside, "figure": beside}
    server.stop()


def memory_mib(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return round(int(re.search(r"^Pss: +(\d+) kB", f.read(), re.M).group(1)) / 1024)


def table(rows, kept):
    def written(number):
        if number is None or number == []:
            return ""
        return format(round(number), ",") if number >= 1000 else "%.2f" % number

    before = kept.get("summary", {})
    head = "kept " + kept["date"] if kept else ""
    line = "  %-58s %11s %11s %8s  %-12s %s"
    lines = [line % ("", "Forebay", "beside", "ratio", "wanted", head)]
    for name, row in rows.items():
        then = before.get(name, {})
        lines.append(line % (name, written(row["forebay"]), written(row.get("beside")),
                             "%.2f" % row["figure"] if row.get("beside") else "", row["goal"],
                             written(then.get("figure") or then.get("forebay"))))
    return "\n".join(lines)
