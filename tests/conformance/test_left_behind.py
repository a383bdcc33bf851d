"""A disk that leaves the configuration file, and a daemon that ends before everything of it is destaged."""
import json

from bed import MIB, eventually, pattern, test
from test_reload import Served, client, disk, images


@test(forebay_only=True)
def a_disk_that_no_file_lists_any_more_and_that_was_not_destaged_is_told_of_at_each_start(bed):
    images(bed, "a", "b")
    back = 'mode = "write-back"\nflash = "%s:64MiB"\n' % bed.path("pool")
    slow = "model:san?iops=20&latency=50ms&inner=file:" + bed.path("b.raw")
    a, b = disk(bed, "a", back), disk(bed, "b", back, backend=slow)
    served = Served(bed, a, b)

    def told_since_start():
        events = [json.loads(line) for line in bed.run([
            bed.program, "events", "--json", "--control", served.control, *served.server.since()]).splitlines()]
        return [event["text"] for event in events if event["disk"] == "b" and event["severity"] == "error"]

    def health():
        command = [bed.program, "pool", "show", bed.path("pool"), "--json", "--control", served.control]
        return {it["name"]: it["faults"] for it in json.loads(bed.run(command))["disks"]}

    writer = client(bed, "b")
    for offset in range(0, MIB, 16384):
        writer.pwrite(pattern(offset, 4096, 7), offset)
    writer.shutdown()
    eventually(lambda: served.stats("b")["connections"] == 0, "its client has left")
    served.write(a)
    assert served.reload() == {"b": ("removed", None)}
    eventually(lambda: "it is being detached" in served.events(), "its end has begun")
    assert served.server.stop() == 0
    # It is not said that a start goes on with it.
    ended = [line for line in served.server.log().splitlines() if "ended: everything" in line][-1]
    assert "in the write log of b" in ended and "start again" not in ended, ended
    assert "disk 'b' is not listed any more, and was not destaged" in ended, ended
    for end in [served.server.stop, served.server.kill]:
        served.server.start()
        assert served.disks() == ["a"]
        eventually(told_since_start, "it is told of")
        [text] = told_since_start()
        for words in ["no configuration lists this disk", bed.path("pool"), slow, "KiB", "disk resolve b"]:
            assert words in text, "%r is not in: %s" % (words, text)
        assert health() == {"a": [], "b": ["no configuration lists it, and its write log is not destaged"]}
        end()
    # What it says to do helps.
    served.write(a, b)
    served.server.start()
    again = client(bed, "b")
    assert all(bytes(again.pread(4096, at)) == pattern(at, 4096, 7) for at in range(0, MIB, 16384))
    assert told_since_start() == [] and health() == {"a": [], "b": []}
    served.server.kill()
