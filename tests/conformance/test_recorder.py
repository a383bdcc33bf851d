"""What a live disk was asked: its recording is what was sent, and says what it lacks."""
import json
import os
import signal
import socket
import subprocess

import nbd

from bed import KIB, MIB, eventually, pattern, test
from test_histogram import compare
from test_write_back import attach

SMALL = ["--recorder", "64KiB"]  # 2048 requests
SMALL_REQUESTS = 2048
BLOCK_REQUESTS = 16384  # of .fbt


def control(bed, disk):
    return ["--control", bed.path(disk.name + ".control")]


class Recording:
    """`forebay trace record` under way: what is sent from here on is in it."""

    def __init__(self, bed, disk, name="out.fbt", extra=()):
        self.path, self.bed = bed.path(name), bed
        self.part = self.path + ".part"
        command = [bed.program, "trace", "record", disk.name, "-o", self.path, "--json", *extra, *control(bed, disk)]
        self.process = bed.spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # It knows where it begins before it makes the file.
        eventually(lambda: os.path.exists(self.part), "the recording begins")

    def end(self, how=signal.SIGINT, code=0):
        if how:
            self.process.send_signal(how)
        out, error = self.process.communicate(timeout=60)
        print(out, error, flush=True)
        assert self.process.returncode == code, error
        return json.loads(out) if out else None, error


def requests_of(bed, path, *more):
    """(op, first byte, length) of a trace, in its order; the path of the same trace in MSR's format."""
    msr = path + ".msr"
    bed.run([bed.program, "trace", "convert", path, msr, *more])
    with open(msr) as f:
        fields = [line.strip().split(",") for line in f]
    return [(field[3].lower(), int(field[4]), int(field[5])) for field in fields], msr


def send(bed, h, count, size):
    """Sends reads and writes, one after the other; what was sent."""
    sent, end = [], 0
    for n in range(count):
        length = 512 * bed.random.choice([1, 3, 8, 8, 16, 33, 128])
        offset = end if bed.random.random() < 0.4 else 512 * bed.random.randrange(size // 512)
        offset = min(offset, size - length)
        end = offset + length
        if bed.random.random() < 0.3:
            h.pwrite(pattern(offset, length, n), offset)
            sent.append(("write", offset, length))
        else:
            h.pread(length, offset)
            sent.append(("read", offset, length))
        if n % 50 == 0:
            h.flush()
    return sent


@test(forebay_only=True)
def a_recording_is_what_was_sent(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), ram="4MiB")
    h = attach(disk)
    send(bed, h, 100, size)
    recording = Recording(bed, disk)
    sent = send(bed, h, 2000, size)
    h.trim(64 * KIB, 0)
    said, _ = recording.end()
    assert (said["recorded"], said["dropped"], said["unanswered"]) == (len(sent), 0, 0), said
    assert said["passed_over"] == 41, said
    recorded, msr = requests_of(bed, recording.path)
    assert recorded == sent
    compare(bed, msr)
    info = json.loads(bed.run([bed.program, "trace", "info", recording.path, "--json"]))
    reads = [length for op, _, length in sent if op == "read"]
    assert (info["reads"], info["read_bytes"]) == (len(reads), sum(reads)), info
    histograms = json.loads(bed.run([bed.program, "trace", "histogram", recording.path, "--json"]))
    for histogram in histograms[0]["histograms"]:
        if histogram["name"] in ("latency of IOs in Microseconds (us)", "IO lengths of commands"):
            assert histogram["count"] == len(sent), histogram


def send_together(bed, h, count, size, outstanding=32):
    """Reads and writes of 512 bytes to 64 KiB, so many at a time."""
    waiting = set()
    for n in range(count):
        length = 512 * bed.random.choice([1, 8, 8, 8, 16, 128])
        offset = min(512 * int(size // 512 * bed.random.random() ** 3), size - length)
        if n % 4 == 3:
            waiting.add(h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(pattern(offset, length, n))), offset))
        else:
            waiting.add(h.aio_pread(nbd.Buffer(length), offset))
        while len(waiting) >= outstanding or waiting and n == count - 1:
            h.poll(-1)
            waiting = {cookie for cookie in waiting if not h.aio_command_completed(cookie)}


@test(forebay_only=True)
def requests_that_are_outstanding_together_are_all_recorded(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), mode="monitor", ram=None)
    h = attach(disk)
    recording = Recording(bed, disk)
    send_together(bed, h, 3000, size)
    said, _ = recording.end()
    assert (said["recorded"], said["dropped"], said["unanswered"]) == (3000, 0, 0), said
    _, msr = requests_of(bed, recording.path)
    compare(bed, msr)


def of_disk(bed, disk, command, *words, code=0):
    return bed.run([bed.program, "disk", command, disk.name, *words, *control(bed, disk)], code=code)


@test(forebay_only=True)
def live_histograms_are_those_of_a_recording(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), ram="4MiB")
    h = attach(disk)
    result = of_disk(bed, disk, "histogram", code=None)
    assert result.returncode == 1 and "--start" in result.stderr, result.stderr
    of_disk(bed, disk, "histogram", "--start")
    send_together(bed, h, 500, size)
    recording = Recording(bed, disk)
    of_disk(bed, disk, "histogram", "--reset")
    send(bed, h, 500, size)
    send_together(bed, h, 3000, size)
    said, _ = recording.end()
    assert said["recorded"] == 3500, said
    of_disk(bed, disk, "histogram", "--start")  # goes on
    live = json.loads(of_disk(bed, disk, "histogram", "--json"))
    assert live == json.loads(bed.run([bed.program, "trace", "histogram", recording.path, "--json"]))
    assert all(histogram["count"] > 0 for histogram in live[0]["histograms"])
    outstanding = next(h for h in live[0]["histograms"] if h["name"].startswith("number of outstanding IOs"))
    assert outstanding["max"] > 8, outstanding
    csv = of_disk(bed, disk, "histogram", "--csv")
    assert csv == bed.run([bed.program, "trace", "histogram", recording.path, "--csv"]) and csv.count("Histogram:") == 16
    assert "counted for" in of_disk(bed, disk, "histogram")
    of_disk(bed, disk, "histogram", "--stop")
    of_disk(bed, disk, "histogram", code=1)
    h.pread(4096, 0)


def compare_curves(live, told):
    """The live one counts the distances of the same blocks, in steps of 3 %."""
    for what in ("policy", "block_size", "granule_size", "method", "share", "grid_offset", "grid_moved", "footprint",
                 "touched"):
        assert live[what] == told[what], (what, live[what], told[what])
    assert len(live["points"]) == len(told["points"]) > 0
    for mine, other in zip(live["points"], told["points"]):
        assert mine["cache_size"] == other["cache_size"]
        for ratio in ("miss_ratio", "read_hit_ratio"):
            assert abs(mine[ratio] - other[ratio]) < 0.005, (ratio, mine, other)


@test(forebay_only=True)
def the_live_curve_is_that_of_a_recording(bed):
    size = 16 * MIB
    sizes = ["--cache-size", "64KiB,1MiB,3MiB,8MiB,16MiB"]
    for mode, ram in (("monitor", None), ("write-through", "4MiB")):
        image = bed.image(mode + ".raw", size)
        disk = bed.disk("file:" + image, mode=mode, ram=ram, name=mode, extra=["--grid-offset", "0"])
        h = attach(disk)
        recording = Recording(bed, disk, mode + ".fbt")
        send_together(bed, h, 4000, size)
        recording.end()
        live = json.loads(of_disk(bed, disk, "mrc", "--json", *sizes))
        fixed = ["--block-size", "8KiB", "--grid-offset", "0", "--sample", "0.125"]
        told = json.loads(bed.run([bed.program, "trace", "mrc", recording.path, "--json", *fixed, *sizes]))
        compare_curves(live["curves"][0], told["curves"][0])
        ratios = [point["miss_ratio"] for point in live["curves"][0]["points"]]
        assert ratios == sorted(ratios, reverse=True) and ratios[0] > ratios[-1] > 0, ratios
        assert "the disk touches" in of_disk(bed, disk, "mrc")
        shown = json.loads(of_disk(bed, disk, "show", "--json"))["expected"][0]["points"]
        footprint = live["curves"][0]["footprint"]
        cache = footprint // 4 if mode == "monitor" else 4 * MIB
        assert [point["cache_size"] for point in shown][1] == cache // 8192 * 8192, shown
        assert "reads would hit" in of_disk(bed, disk, "show")


@test(forebay_only=True)
def a_recording_and_histograms_go_on_when_a_disk_is_opened_again(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), ram="4MiB", extra=["--shards", "2"])
    h = attach(disk)
    of_disk(bed, disk, "histogram", "--start")
    recording = Recording(bed, disk)
    send(bed, h, 500, size)
    of_disk(bed, disk, "move-shard")
    sent = send(bed, h, 3000, size)
    of_disk(bed, disk, "set", "--block-size", "16KiB")
    sent += send(bed, h, 300, size)
    said, _ = recording.end()
    assert said["recorded"] + said["dropped"] == 3800 and said["passed_over"] == 76, said
    recorded, _ = requests_of(bed, recording.path)
    assert len(recorded) == said["recorded"] and recorded[-300:] == sent[-300:], said
    # What nobody had fetched by then is gone, and counted.
    stopped = Recording(bed, disk, "stopped.fbt")
    stopped.process.send_signal(signal.SIGSTOP)
    lost = send(bed, h, 500, size)
    of_disk(bed, disk, "move-shard")
    sent = send(bed, h, 3000, size)
    stopped.process.send_signal(signal.SIGCONT)
    said, _ = stopped.end()
    # A question that it had asked before it stopped was answered yet, with what came first.
    recorded, _ = requests_of(bed, stopped.path)
    fetched = len(recorded) - len(sent)
    assert 0 <= fetched < len(lost) and recorded == lost[:fetched] + sent, said
    assert (said["recorded"], said["dropped"]) == (len(recorded), len(lost) - fetched), said
    histograms = json.loads(of_disk(bed, disk, "histogram", "--json"))[0]["histograms"]
    of_all = [it["count"] for it in histograms if it["name"] in ("latency of IOs in Microseconds (us)", "IO lengths of commands")]
    assert of_all == [7300, 7300], of_all


@test(forebay_only=True)
def the_flight_recorder_has_the_last_requests(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), extra=SMALL)
    sent = send(bed, attach(disk), 3000, size)
    out = bed.path("last.fbt")
    said = json.loads(bed.run([bed.program, "trace", "record", "disk", "--last", "-o", out, "--json", *control(bed, disk)]))
    assert (said["recorded"], said["dropped"]) == (SMALL_REQUESTS, 0), said
    recorded, _ = requests_of(bed, out)
    assert recorded == sent[-SMALL_REQUESTS:]
    shown = disk.stats()["recorder"]
    assert (shown["requests"], shown["observed"], shown["bytes"]) == (SMALL_REQUESTS, 3000, 64 * KIB), shown


@test(forebay_only=True)
def what_a_stopped_recording_misses_is_counted(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), extra=SMALL)
    h = attach(disk)
    recording = Recording(bed, disk)
    sent = send(bed, h, 500, size)
    recording.process.send_signal(signal.SIGSTOP)
    sent += send(bed, h, 5000, size)
    recording.process.send_signal(signal.SIGCONT)
    said, _ = recording.end()
    assert said["dropped"] > 0 and said["recorded"] + said["dropped"] == len(sent), said
    recorded, _ = requests_of(bed, recording.path)
    assert len(recorded) == said["recorded"] and recorded[-SMALL_REQUESTS:] == sent[-SMALL_REQUESTS:]


def recorded_beyond_a_block(bed, disk, h):
    """A recording that has written a block, and what was sent."""
    recording, sent = Recording(bed, disk), []
    for n in range(BLOCK_REQUESTS + 1000):
        offset = 4096 * bed.random.randrange(4096)
        h.pread(4096, offset)
        sent.append(("read", offset, 4096))
    def has_block():
        # A file may have grown by a part of what is being written.
        said = bed.run([bed.program, "trace", "info", recording.part], code=None).stderr
        return "cut off" in said and ": 0 requests came before" not in said
    eventually(has_block, "a block is written")
    return recording, sent


@test(forebay_only=True)
def a_killed_recording_is_readable_up_to_its_last_whole_block(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size))
    h = attach(disk)
    recording, sent = recorded_beyond_a_block(bed, disk, h)
    recording.process.kill()
    recording.process.wait()
    assert not os.path.exists(recording.path)
    result = bed.run([bed.program, "trace", "info", recording.part], code=None)
    assert result.returncode == 1 and "cut off" in result.stderr, result.stderr
    recorded, _ = requests_of(bed, recording.part, "--skip-bad")
    assert recorded and len(recorded) % BLOCK_REQUESTS == 0 and recorded == sent[:len(recorded)]
    # Nobody writes over what it left, nor remembers it otherwise.
    command = [bed.program, "trace", "record", disk.name, "-o", recording.path, *control(bed, disk)]
    result = bed.run(command, code=None)
    assert result.returncode == 1 and "out.fbt.part is there" in result.stderr, result.stderr
    again = Recording(bed, disk, "again.fbt")
    h.pread(4096, 0)
    assert again.end()[0]["recorded"] == 1


@test(forebay_only=True)
def a_recording_whose_disk_ends_says_so_and_is_whole(bed):
    disk = bed.disk("file:" + bed.image("disk.raw", 16 * MIB))
    recording, sent = recorded_beyond_a_block(bed, disk, attach(disk))
    disk.kill()
    said, error = recording.end(None, code=1)
    assert "ended early" in error and said["ended_early"], error
    recorded, _ = requests_of(bed, recording.path)
    assert said["recorded"] >= BLOCK_REQUESTS and recorded == sent[:said["recorded"]], said


def ask(bed, disk, path, method="GET"):
    """A raw request on the control socket: status, body."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        s.connect(bed.path(disk.name + ".control"))
        s.sendall(b"%s %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % (method.encode(), path.encode()))
        answer = b""
        while chunk := s.recv(1 << 20):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body or "null")


@test(forebay_only=True)
def whatever_is_asked_of_the_recorder_is_answered_and_bounded(bed):
    size = 16 * MIB
    disk = bed.disk("file:" + bed.image("disk.raw", size), extra=SMALL)
    h = attach(disk)
    send(bed, h, 3000, size)
    path = "/v1/disks/disk/records"
    for wrong in ("from=-1", "from=x", "from=18446744073709551616", "max=-1", "max=1e9", "unanswered=maybe", "upto=3",
                  "from=1&from=2"):
        status, body = ask(bed, disk, path + "?" + wrong)
        assert status == 400 and body["error"], (wrong, status, body)
    for strange in ("", "?max=18446744073709551615", "?from=0&max=999999999&unanswered=true"):
        status, body = ask(bed, disk, path + strange)
        assert (status, len(body["requests"]), body["first"]) == (200, SMALL_REQUESTS, 952), strange
    for beyond in ("?from=18446744073709551615", "?from=3000", "?max=0"):
        status, body = ask(bed, disk, path + beyond)
        assert (status, body["requests"], body["next"]) == (200, [], 3000), beyond
    for what in ("records", "histograms", "mrc"):
        assert ask(bed, disk, "/v1/disks/other/" + what)[0] == 404
    for wrong in ("sizes=-1", "sizes=x", "sizes=1,,x", "sizes=" + ",".join(["8192"] * 257), "size=1",
                  "sizes=18446744073709551616"):
        status, body = ask(bed, disk, "/v1/disks/disk/mrc?" + wrong)
        assert status == 400 and body["error"], (wrong, status, body)
    for strange in ("sizes=0", "sizes=1", "sizes=18446744073709551615", "sizes=", ""):
        status, body = ask(bed, disk, "/v1/disks/disk/mrc?" + strange)
        points = body["curves"][0]["points"]
        assert status == 200 and all(0 <= point["miss_ratio"] <= 1 for point in points), body
    assert ask(bed, disk, "/v1/disks/disk/histograms/begin", "POST")[0] == 404
    assert ask(bed, disk, "/v1/disks/disk/histograms/start")[0] == 405
    assert ask(bed, disk, "/v1/disks/disk/histograms")[0] == 409
    h.pread(4096, 0)


@test(forebay_only=True)
def a_recording_that_cannot_be_says_why(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, extra=["--recorder", "0"])
    attach(disk).pread(4096, 0)
    assert disk.stats()["recorder"] is None

    def fails(text, *words, code=1):
        out = bed.path("none.fbt")
        command = [bed.program, "trace", "record", *words, *control(bed, disk)]
        result = bed.run([word.replace("OUT", out) for word in command], code=None)
        assert result.returncode == code and text in result.stderr, (result.returncode, result.stderr)
        assert not os.path.exists(out)
    fails("no flight recorder", "disk", "--last", "-o", "OUT")
    fails("no disk 'other'", "other", "-o", "OUT")
    fails("cannot be used with", "disk", "--last", "--duration", "1s", "-o", "OUT", code=2)
    fails("does not tell the format", "disk", "-o", "OUT.txt", code=2)
    for wrong in ("1", "63KiB", "5GiB"):
        result = bed.run([bed.program, "run", "file:" + image, "--nbd", "unix:" + bed.path("x.sock"), "--recorder", wrong],
                         code=None)
        assert result.returncode == 2 and "recorder" in result.stderr, result.stderr
