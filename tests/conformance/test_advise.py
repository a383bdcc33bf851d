"""Advice for a disk that runs, and for a trace; what was expected of it is held against what happens."""
import json
import os

from ab import SAN, Ab, hit_ratio, settings_of
from bed import GIB, MIB, eventually, test
from test_shown import events
from test_write_back import attach, disk_command
from traces import skewed, write_requests

SLOW = "model:san?latency=500us&inner=file:"
BLOCK = 8192
HOT = 150  # blocks that nearly all reads go to


def advise(bed, disk, *more, code=0):
    out = disk_command(bed, disk, "advise", disk.name, "--json", *more, code=code)
    return json.loads(out) if code == 0 else out


def shown(bed, disk):
    return json.loads(disk_command(bed, disk, "show", disk.name, "--json"))["advice"]


def read_some(bed, disk, count):
    """Nine of ten of the same blocks, the others anywhere."""
    h = attach(disk)
    for _ in range(count):
        hot = bed.random.random() < 0.9
        block = bed.random.randrange(HOT) * 7 if hot else bed.random.randrange(60 * MIB // BLOCK)
        h.pread(BLOCK, block * BLOCK)
    h.shutdown()


def with_options(bed, image, options, name="disk"):
    return bed.disk(SLOW + image, ram=None, name=name, extra=options)


@test(forebay_only=True, alone=True)
def a_disk_in_monitor_mode_is_advised_from_what_it_was_asked_and_measured(bed):
    image, page = bed.image("disk.raw", 64 * MIB, "holes"), bed.path("advice.html")
    disk = bed.disk(SLOW + image, ram="0", mode="monitor")
    assert "was not asked for anything yet" in bed.run(
        [bed.program, "disk", "advise", "disk", "--ram", "1GiB", "--control", bed.path("disk.control")], code=None).stderr
    read_some(bed, disk, 3000)
    told = advise(bed, disk, "--ram", "32MiB", "--html", page)
    plan, advice = told["advice"]["plan"], told["advice"]
    assert told["recorded"] == told["beside"]["observed"] == 3000 and told["beside"]["is_alike"], told
    assert 0.5e6 <= advice["latencies"]["backend"]["mean_ns"] < 5e6, "as it was measured"
    low, high = plan["hit_ratio_range"]
    assert 0.8 < low < high and HOT * BLOCK <= plan["ram"] <= 32 * MIB, plan
    text = disk_command(bed, disk, "advise", "disk", "--ram", "32MiB", "--ram-latency", "20us")
    assert "of RAM at" in text and "all 3,000 requests since the start" in text and "kept advice" not in text, text
    with open(page) as f:
        assert "all 3,000 requests since the start" in f.read()
    # Without a cache, and nobody saying how much there could be.
    result = bed.run([bed.program, "disk", "advise", "disk", "--control", bed.path("disk.control")], code=None)
    assert result.returncode == 1 and "say how much --ram or --flash" in result.stderr, result.stderr


@test(forebay_only=True)
def a_recording_that_is_not_like_the_whole_makes_an_advice_uncertain(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    # The recorder has the last 2048 requests.
    disk = bed.disk(SLOW + image, ram="0", mode="monitor", extra=["--recorder", "64KiB"])
    h = attach(disk)
    for n in range(6000):
        h.pread(BLOCK, n % 500 * 9 * BLOCK)
    for n in range(2048):
        h.pread(BLOCK, n % 64 * 9 * BLOCK)
    h.shutdown()
    told = advise(bed, disk, "--ram", "1MiB")
    beside = told["beside"]
    assert told["recorded"] == beside["recorded"] == 2048 and beside["observed"] == 8048, told
    assert not beside["is_alike"] and beside["all_hit_ratio"] < 0.3 < 0.9 < beside["recorded_hit_ratio"][0], beside
    low, high = told["advice"]["plan"]["hit_ratio_range"]
    assert low < 0.5 and high > 0.9, "it may be as the whole, or as the recording"
    assert "too short, or of an unusual time" in disk_command(bed, disk, "advise", "disk", "--ram", "1MiB")


@test(forebay_only=True, alone=True)
def what_was_advised_is_held_against_what_happens_over_restarts(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = bed.disk(SLOW + image, ram="0", mode="monitor")
    read_some(bed, disk, 2000)
    told = advise(bed, disk, "--ram", "32MiB", "--keep")
    kept = told["kept"]
    assert kept["stage"]["kind"] == "not-in-force" and "mode monitor" in kept["stage"]["difference"], kept
    assert kept["prediction"]["hit_ratio_range"] == told["advice"]["plan"]["hit_ratio_range"]
    assert "not as advised: mode monitor" in disk_command(bed, disk, "show", "disk")
    assert disk.stop() == 0

    disk = with_options(bed, image, told["advice"]["options"])
    assert shown(bed, disk)["kept"]["stage"] == {"kind": "warming-up", "reads": 0, "of": 2000}
    read_some(bed, disk, 2000)
    assert shown(bed, disk)["kept"]["stage"]["kind"] == "counting"
    read_some(bed, disk, 1500)
    kept = shown(bed, disk)["kept"]
    low, high = kept["prediction"]["hit_ratio_range"]
    judgement = kept["judgement"]
    assert judgement["reads"] == 1500 and low - 0.02 <= judgement["hit_ratio"] <= high + 0.02, kept
    # On a busy machine primary storage is slower than it was; then that is the reason.
    assert judgement["outcome"] in ("as-predicted", "better") or "took" in judgement["because"][0], judgement
    text = disk_command(bed, disk, "show", "disk")
    assert "of 1,500 reads hit" in text and "predicted" in text.split("what came of it")[1], text
    assert disk.stop() == 0

    # It goes on: what was counted stands, and a cold cache has to become warm again.
    disk.start()
    again = shown(bed, disk)["kept"]
    assert (again["since_ms"], again["judgement"]["reads"]) == (kept["since_ms"], 1500), again
    assert again["stage"]["kind"] == "warming-up"
    # Something else is asked for: the advice is not what it was.
    h = attach(disk)
    for n in range(9000):
        h.pread(BLOCK, n % 3000 * BLOCK)
        if n == 3000:
            assert shown(bed, disk)["kept"]["stage"]["kind"] == "counting", "the cache is full"
    worse = shown(bed, disk)["kept"]["judgement"]
    assert worse["outcome"] == "worse" and any("other things" in why for why in worse["because"]), worse
    disk_command(bed, disk, "drop-cache", "disk")
    assert shown(bed, disk)["kept"]["stage"]["kind"] == "warming-up"
    assert "no advice is kept" in disk_command(bed, disk, "advise", "disk", "--forget")
    assert shown(bed, disk) == {"kept": None, "trouble": None}


@test(forebay_only=True)
def a_kept_advice_that_cannot_be_read_is_told_of_and_keeps_nothing_from_working(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = bed.disk(SLOW + image, ram="0", mode="monitor")
    read_some(bed, disk, 1000)
    advise(bed, disk, "--ram", "32MiB", "--keep")
    assert disk.stop() == 0
    [name] = [name for name in os.listdir(bed.path("state")) if name.endswith(".advice")]
    path = os.path.join(bed.path("state"), name)
    with open(path) as f:
        good = f.read()
    for bad, why in (("", "no kept advice"), ("\x00" * 5000, "no kept advice"), ("9" * (2 << 20), "longer than"),
                     (good.replace('"version":1', '"version":7'), "version 7"), (good[:-9], "no kept advice")):
        with open(path, "w") as f:
            f.write(bad)
        disk.start()
        assert attach(disk).pread(512, 0) == bytes(512)
        trouble = shown(bed, disk)["trouble"]
        assert why in trouble and path in trouble, trouble
        assert any(path in text for text in events(bed, disk))
        assert disk.stop() == 0
        with open(path) as f:
            assert f.read() == bad, "it is left as it is"
    disk.start()
    read_some(bed, disk, 1000)
    assert advise(bed, disk, "--ram", "32MiB", "--keep")["trouble"] is None
    with open(path) as f:
        assert json.load(f)["version"] == 1
    # The control socket takes no nonsense.
    status, text = post(disk, bed.path("disk.control"), json.loads(good)["prediction"] | {"hit_ratio_range": [3, 2]})
    assert status == 409 and "cannot be" in text, (status, text)
    status, text = post(disk, bed.path("disk.control"), {"hello": 1})
    assert status >= 400 and "missing field" in text, (status, text)
    eventually(lambda: shown(bed, disk)["kept"], "the good one is still kept")


def post(disk, control, what):
    """POSTs JSON to the disk's advice: status, text."""
    import http.client
    import socket
    connection = http.client.HTTPConnection("forebay")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(control)
    body = json.dumps(what)
    connection.request("POST", "/v1/disks/%s/advice" % disk.name, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@test(forebay_only=True)
def what_has_no_identity_keeps_no_advice(bed):
    disk = bed.disk("model:san?latency=500us&inner=mem:64MiB", ram="0", mode="monitor")
    read_some(bed, disk, 1000)
    command = [bed.program, "disk", "advise", "disk", "--ram", "32MiB", "--keep", "--control", bed.path("disk.control")]
    result = bed.run(command, code=None)
    assert result.returncode == 1 and "has no identity" in result.stderr, result.stderr


@test(forebay_only=True, alone=True)
def an_ab_on_the_modelled_san_lands_where_it_was_predicted(bed):
    out = bed.path("without.json")
    requests = skewed(bed.random, 1500, per_second=250, size=4 * GIB, places=250, region=128 * MIB, share=0.85)
    trace = write_requests(bed.path("skewed.msr"), requests)
    bed.run([bed.program, "trace", "replay", trace, "--target", SAN % (4 * GIB), "--overwrite", "--json", out])
    with open(out) as f:
        san = json.load(f)["runs"][0]["reads"]["mean_ns"]
    told = json.loads(bed.run([bed.program, "trace", "advise", trace, "--ram", "2560KiB", "--backend-latency",
                               "%dns" % san, "--json"]))["disks"][0]
    plan = told["plan"]
    [low, high], [fast, slow] = plan["hit_ratio_range"], plan["read_mean_range_ns"]
    assert high - low < 0.35 and slow < san / 2, plan
    ab = Ab(bed, trace, 4 * GIB, settings_of(told["options"], bed.path("pool")), "ab")
    hits, mean = hit_ratio(ab.warm), ab.warm["reads"]["mean_ns"]
    assert low <= hits <= high, (low, hits, high)
    assert fast <= mean <= slow, (fast, mean, slow)
    # With an empty cache it is the low end of the range.
    assert abs(hit_ratio(ab.cold) - plan["hit_ratio"]) < 0.03, (hit_ratio(ab.cold), plan["hit_ratio"])
