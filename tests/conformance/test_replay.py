"""Replays of traces: what they refuse, what they find, and how they end."""
import json
import signal

from bed import MIB, eventually, test
from traces import write_msr, write_requests


def replay(bed, trace, target, *more, **options):
    return bed.run([bed.program, "trace", "replay", trace, "--target", target, *more], **options)


def runs(bed, trace, target, *more):
    """The one run of the results."""
    results = json.loads(replay(bed, trace, target, "--json", "-", *more))
    assert (results["schema"], results["version"], len(results["runs"])) == ("forebay-replay", 1, 1)
    return results["runs"][0]


@test(forebay_only=True)
def every_pace_issues_all_requests_of_a_trace(bed):
    trace = write_msr(bed, "t.msr", 2000)
    for pace in ([], ["--speed", "4"], ["--as-fast-as-possible"], ["--dependent", "--speed", "4"],
                 ["--dependent", "--as-fast-as-possible"], ["--as-fast-as-possible", "--loop", "3"]):
        run = runs(bed, trace, "mem:4MiB", "--verify", *pace)
        count = run["reads"]["count"] + run["writes"]["count"]
        assert count == 2000 * run["passes"], pace
        assert run["verified"]["checked"] > 0 and run["ended_by"] == "trace"
        assert sum(s["reads"]["count"] for s in run["slices"]) == run["reads"]["count"]
        # Those that have a time of their own say how late they were.
        timed = "--as-fast-as-possible" not in pace
        assert run["lag"]["count"] == (2000 if timed else 0), pace


@test(forebay_only=True)
def a_target_that_holds_data_is_refused_without_consent_and_untouched(bed):
    trace = write_msr(bed, "t.msr", 100)
    image = bed.image("disk.raw", 4 * MIB)
    with open(image, "rb") as f:
        before = f.read()
    result = replay(bed, trace, "file:" + image, code=None)
    assert result.returncode == 1 and "--overwrite" in result.stderr
    with open(image, "rb") as f:
        assert f.read() == before
    replay(bed, trace, "file:" + image, "--overwrite", "--speed", "100")
    # A sparse file is empty, until it is written to.
    scratch = bed.image("scratch.raw", 4 * MIB, "holes")
    replay(bed, trace, "file:" + scratch, "--speed", "100")
    replay(bed, trace, "file:" + scratch, "--speed", "100", code=1)


@test(forebay_only=True)
def a_target_smaller_than_the_trace_is_refused_unless_it_is_wrapped(bed):
    trace = write_msr(bed, "t.msr", 200)
    result = replay(bed, trace, "mem:1MiB", "--as-fast-as-possible", code=None)
    assert result.returncode == 1 and "--wrap" in result.stderr
    run = runs(bed, trace, "mem:1MiB", "--as-fast-as-possible", "--wrap", "--verify")
    assert run["wrapped"] > 0


@test(forebay_only=True)
def verify_finds_writes_that_storage_acknowledged_and_lost(bed):
    trace = write_msr(bed, "t.msr", 2000, places=16)
    lying = "fault:seed=4&rule=drop,p=0.02&inner=mem:4MiB"
    fast = ["--as-fast-as-possible", "--queue-depth", "4"]
    replay(bed, trace, lying, *fast)
    result = replay(bed, trace, lying, "--verify", *fast, code=None)
    assert result.returncode == 1 and "stale" in result.stdout, result.stdout
    assert "sectors are not what was written" in result.stderr


@test(forebay_only=True)
def a_disk_in_every_mode_verifies_over_several_connections(bed):
    trace = write_msr(bed, "t.msr", 4000, places=2048)
    for mode in ("write-through", "write-back", "pass-through"):
        image = bed.image(mode + ".raw", 32 * MIB, "holes")
        caches = mode != "pass-through"
        log = ["--write-log", "64MiB"] if mode == "write-back" else []
        disk = bed.disk("file:" + image, mode=mode, name=mode, ram="8MiB" if caches else None,
                        flash=bed.path(mode + ".flash") + ":256MiB" if caches else None, extra=log)
        target = disk.uri + "&connections=4"
        run = runs(bed, trace, target, "--as-fast-as-possible", "--verify")
        assert run["errors"] == 0
        assert run["verified"]["checked"] > 10000
        disk.stop()


@test(forebay_only=True)
def an_interrupt_ends_with_what_was_measured(bed):
    trace = write_msr(bed, "t.msr", 1000, interval_us=1000000)
    out, disk = bed.path("out.json"), bed.disk("mem:4MiB")
    replaying = bed.spawn([bed.program, "trace", "replay", trace, "--target", disk.uri, "--overwrite", "--json", out])
    eventually(lambda: sum(disk.stats()["counters"][what] for what in ("reads", "writes")) > 0, "the replay has begun")
    replaying.send_signal(signal.SIGINT)
    assert replaying.wait(timeout=30) == 0
    with open(out) as f:
        run = json.load(f)["runs"][0]
    assert run["ended_by"] == "interrupt"
    assert run["reads"]["count"] + run["writes"]["count"] < 1000


@test(forebay_only=True)
def a_dependent_replay_needs_latencies(bed):
    trace = bed.path("t.iolog")
    with open(trace, "w") as f:
        f.write("fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n0 /dev/sda read 0 4096\n9 /dev/sda read 0 4096\n")
    result = replay(bed, trace, "mem:4MiB", "--dependent", code=None)
    assert result.returncode == 2 and "has no latency" in result.stderr


@test(forebay_only=True)
def runs_in_front_of_the_backend_of_a_disk_need_consent(bed):
    image, pool, config = bed.image("disk.raw", 8 * MIB), bed.path("pool"), bed.path("with.toml")
    trace = write_requests(bed.path("t.msr"), [(0.001, "Read", 8192 * n, 8192) for n in range(100)])
    with open(config, "w") as f:
        f.write('state-dir = "%s"\n[[disk]]\nname = "ab"\nbackend = "mem:1MiB"\nram = "1MiB"\nflash = "%s:8MiB"\n'
                % (bed.path("state"), bed.path("pool-of-ab")))
    ab = [bed.program, "trace", "ab", trace, "--backend", "file:" + image, "--config", config]
    disk = bed.disk("file:" + image, ram="1MiB", flash=pool + ":8MiB")
    assert disk.stop() == 0
    with open(image + ".forebay") as f:
        sidecar = f.read()
    said = bed.run(ab, code=None)
    assert said.returncode == 1 and "belongs to the disk 'disk'" in said.stderr and "--overwrite" in said.stderr, said
    with open(image + ".forebay") as f:
        assert f.read() == sidecar
    disk.start()
    assert "another disk" not in bed.run([bed.program, "events", "disk", "--control", bed.path("disk.control")])
    assert disk.stop() == 0
    bed.run([*ab, "--overwrite"])
    bed.run(ab)  # it is nobody's now
