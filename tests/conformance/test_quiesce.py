"""`disk quiesce`: who holds destaging, and whether primary storage stood still all the time."""
import json
import subprocess

from bed import MIB, eventually, pattern, test
import nbd
from test_dead_flash import die, mortal_flash
from test_write_back import attach, write_blocks


def write_back(bed, **more):
    return bed.disk("file:" + bed.image("db.raw", 16 * MIB), flash=bed.path("pool") + ":64MiB",
                    mode="write-back", extra=["--write-log", "16MiB"], **more)


def quiesce(bed, *words, code=0):
    command = [bed.program, "disk", "quiesce", "disk", "--control", bed.path("disk.control"), *words]
    came = bed.run(command, code=None)
    assert came.returncode == code, (words, came.returncode, came.stdout, came.stderr)
    return came.stdout if code == 0 else came.stderr


@test(timeout=60)
def only_one_holds_destaging_and_ends_its_own_hold(bed):
    disk = write_back(bed)
    first = json.loads(quiesce(bed, "--for", "1m", "--json"))["hold"]
    assert "held already" in quiesce(bed, code=1), "a second one would end the first"
    quiesce(bed, "--end", "--hold", str(first))
    second = json.loads(quiesce(bed, "--for", "1m", "--json"))["hold"]
    assert second != first
    assert "not held any more" in quiesce(bed, "--end", "--hold", str(first), code=1)
    assert disk.stats()["log"]["limited_by"] in ("held", "nothing")
    quiesce(bed, "--end", "--hold", str(second))
    assert "destaging is not held" in quiesce(bed, "--end", code=1)
    assert disk.stop() == 0


@test(timeout=60)
def destaging_that_was_paused_stays_so_and_the_end_of_a_hold_says_that(bed):
    disk = write_back(bed)
    at = ["--control", bed.path("disk.control")]
    bed.run([bed.program, "disk", "pause", "disk", *at])
    quiesce(bed, "--for", "1m")
    assert "stays paused: 'forebay disk resume disk'" in quiesce(bed, "--end")
    assert "stays paused" in bed.run([bed.program, "events", "disk", *at])
    bed.run([bed.program, "disk", "resume", "disk", *at])
    quiesce(bed, "--for", "1m")
    assert "destaging goes on" in quiesce(bed, "--end")
    assert disk.stop() == 0


@test(timeout=60)
def a_mode_without_the_log_ends_the_hold_and_that_is_told(bed):
    disk = write_back(bed)
    quiesce(bed, "--for", "1m")
    bed.run([bed.program, "disk", "set", "disk", "--mode", "write-through", "--wait", "--control",
             bed.path("disk.control")])
    assert "not held any more" in quiesce(bed, "--end", code=1)
    assert "nothing to hold" in quiesce(bed) and "nothing to hold" in quiesce(bed, "--end")
    assert disk.stop() == 0


@test(timeout=60)
def times_that_make_no_sense_are_refused(bed):
    disk = write_back(bed)
    for words in (["--for", "0s"], ["--for", "11m"], ["--for", "1ns"], ["--timeout", "0s"], ["--timeout", "1h"]):
        assert "from 1ms to 10m" in quiesce(bed, *words, code=1), words
    assert disk.stop() == 0


@test(timeout=120, forebay_only=True)
def flash_that_dies_ends_the_hold_and_the_guest_goes_on(bed):
    image = bed.image("db.raw", 16 * MIB)
    with mortal_flash(bed) as (device, trigger):
        disk = bed.disk("file:" + image, flash=device + ":16MiB", mode="write-back",
                        extra=["--write-log", "4MiB"])
        h = attach(disk)
        write_blocks(h, range(20))
        quiesce(bed, "--for", "10m")
        die(trigger)
        try:
            h.pwrite(pattern(0, 4096, 99), 0, nbd.CMD_FLAG_FUA)
        except nbd.Error:
            pass
        eventually(lambda: disk.stats()["mode_actual"] == "write-through", "the log is drained from memory")
        h.pwrite(pattern(4096, 4096, 99), 4096)
        assert "not held any more" in quiesce(bed, "--end", code=1)
        assert "its write log failed" in quiesce(bed, code=1)
        h.shutdown()
        disk.stop()


@test(timeout=120, forebay_only=True)
def flash_that_dies_ends_a_hold_that_still_waits(bed):
    slow = "model:san?iops=4&latency=250ms&inner=file:" + bed.image("db.raw", 16 * MIB)
    with mortal_flash(bed) as (device, trigger):
        disk = bed.disk(slow, flash=device + ":16MiB", mode="write-back", extra=["--write-log", "4MiB"])
        h = attach(disk)
        write_blocks(h, range(0, 160, 8))
        eventually(lambda: disk.stats()["log"]["outstanding"] > 0, "a batch is on its way")
        command = [bed.program, "disk", "quiesce", "disk", "--control", bed.path("disk.control"), "--timeout", "2m"]
        waits = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: disk.stats()["log"]["limited_by"] == "held", "destaging is held")
        assert waits.poll() is None, "primary storage was to be busy"
        die(trigger)
        try:
            h.pwrite(pattern(0, 4096, 99), 0, nbd.CMD_FLAG_FUA)
        except nbd.Error:
            pass
        eventually(lambda: disk.stats()["mode_actual"] == "write-through", "the log is drained from memory", 60)
        _, told = waits.communicate(timeout=10)
        assert waits.returncode == 1 and "destaging goes on" in told, told
        h.shutdown()
        disk.stop()
