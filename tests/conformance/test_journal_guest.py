"""Guests whose disk loses its daemon and its flash: the image, repaired from its journal, passes their file system's check."""
import os
import random
import time

import guest
from bed import MIB, eventually, free_port, test
from test_guest import KILLS, run
from test_journal import checked


def deaths(bed, file_system, size, write_cache):
    """Kills the daemon and deletes the flash under a guest; FOREBAY_GUEST_KILLS says how often."""
    image = bed.image("disk.raw", size, "holes")
    # So slow that strict order does not keep up with an emulated guest.
    disk = bed.disk("model:san?iops=2000&latency=100ms&inner=file:" + image, ram="16MiB",
                    flash=bed.path("pool") + ":64MiB", mode="write-back", nbd="127.0.0.1:%d" % free_port(),
                    extra=["--write-log", "16MiB", "--write-cache", write_cache])
    plain = list(disk.command)
    states = []

    def log():
        return disk.stats()["log"]

    def on_sync(word):
        if word == "killed":
            synced = log()["last_sequence"]
            eventually(lambda: log()["flushed_sequence"] >= synced, "what was synced is on primary storage", 60)
            windows = disk.stats()["counters"]["journal_windows"]
            eventually(lambda: disk.stats()["counters"]["journal_windows"] > windows, "a window more", 60)
            time.sleep(random.random())
            disk.kill()
            os.unlink(bed.path("pool"))
            states.append(checked(bed, image)["state"])
            checked(bed, image, repair=True, code=0)
        else:
            with open(image + ".forebay") as f:
                owner = next(line.split()[1] for line in f if line.startswith("disk "))
            disk.command[:] = plain + ["--take-over", owner]
            disk.start()
        return "done"

    run(KILLS, disk, size, on_sync, guest.PATIENCE, FS=file_system, ROUNDS=guest.kills(),
        CACHE="write back" if write_cache == "on" else "write through")
    print("the image was", states, flush=True)
    assert len(states) == guest.kills()
    guest.detach(bed, disk)
    guest.check(bed, file_system, image)


@test(timeout=guest.PATIENCE + 60)
def ext4_is_whole_after_the_loss_of_daemon_and_flash(bed):
    deaths(bed, "ext4", 96 * MIB, "off")


@test(timeout=guest.PATIENCE + 60)
def xfs_is_whole_after_the_loss_of_daemon_and_flash(bed):
    deaths(bed, "xfs", 320 * MIB, "off")
