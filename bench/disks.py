"""What a host of many disks costs while nobody asks for anything."""
import os
import statistics
import subprocess
import time

from goals import memory_mib
from iscsi import cpu_seconds
from lab import MIB, scenario

COUNT, RAM_MIB = 500, 16
LOOKED_AT = 20  # seconds
SHAPES = {
    "RAM": "",
    "and flash": 'flash = "%(flash)s:64MiB"\n',
    "and flash, write-back": 'flash = "%(flash)s:64MiB"\nmode = "write-back"\n',
}


@scenario("500 disks of 16 MiB of RAM, 64 MiB of flash from one pool: ready in 10 s, at most 2 GiB beside the caches, 1 % of a CPU and "
          "6 descriptors a disk")
def many_disks(run):
    figures = {name: {} for name in SHAPES}
    for i in run.rounds():
        for name, lines in SHAPES.items():
            for what, value in measured(run, "%d-%s" % (i, name.replace(", ", "-").replace(" ", "-")), lines).items():
                figures[name].setdefault(what, []).append(value)
    rows = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in figures.items()}
    return {"figures": rows, "text": table(rows)}


def measured(run, name, lines):
    """One daemon: what it costs to start, and then to be there."""
    folder = run.bed.path(name)
    os.mkdir(folder)
    text = "state-dir = \"%s\"\nhttp = \"off\"\nshards = 2\n" % folder
    flash = os.path.join(folder, "flash")
    for i in range(COUNT):
        image = os.path.join(folder, "%d.raw" % i)
        with open(image, "wb") as f:
            f.truncate(64 * MIB)
        text += '[[disk]]\nname = "disk%d"\nbackend = "file:%s"\nram = "%dMiB"\n' % (i, image, RAM_MIB)
        text += lines % {"flash": flash}
    listen = "unix:" + os.path.join(folder, "nbd.sock")
    config = os.path.join(folder, "forebay.toml")
    with open(config, "w") as f:
        f.write(text + '[[nbd]]\nlisten = "%s"\n' % listen)
    began = time.monotonic()
    said = os.path.join(folder, "said")
    with open(said, "w") as log:
        process = run.bed.spawn([run.bed.program, "serve", "--config", config], stdout=subprocess.PIPE, stderr=log)
    if not any(b"ready" in line for line in process.stdout):
        with open(said) as log:
            raise RuntimeError("%s ended: %s" % (name, log.read()[-500:]))
    out = {"ready, s": time.monotonic() - began}
    before, now = None, memory_mib(process.pid)
    while now != before:  # cache memory comes after the start
        time.sleep(2)
        before, now = now, memory_mib(process.pid)
    used, at = cpu_seconds(process.pid), time.monotonic()
    time.sleep(LOOKED_AT)
    out["CPU, %"] = 100 * (cpu_seconds(process.pid) - used) / (time.monotonic() - at)
    out["memory beside the caches, MiB"] = memory_mib(process.pid) - COUNT * RAM_MIB
    out["descriptors a disk"] = len(os.listdir("/proc/%d/fd" % process.pid)) / COUNT
    process.terminate()
    process.communicate()
    for file in os.listdir(folder):
        path = os.path.join(folder, file)
        if os.path.isfile(path):
            os.unlink(path)
    return out


def table(rows):
    names = list(rows)
    lines = [" %-32s" % "" + "".join("%24s" % name for name in names)]
    for what in rows[names[0]]:
        lines.append(" %-32s" % what + "".join("%24.2f" % rows[name][what] for name in names))
    return "\n".join(lines)
