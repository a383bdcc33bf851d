"""Settings that change again and again while a client verifies what it reads: nothing fails, and nothing takes long."""
import http.client
import json
import random
import socket
import threading
import time

import nbd
from bed import MIB, eventually, pattern, test
from test_reload import Served, client, disk

SIZE = 32 * MIB
BLOCK = 4096
# How often each setting changes.
CHANGES = 20
# What each setting changes between.
KINDS = {
    "ram": ["24MiB", "2MiB", "8MiB", "3MiB", "16MiB"],
    "mode": ["write-through", "write-around", "pass-through", "write-back"],
    "policy": ["lru", "fifo", "s3fifo", "auto"],
    "flash-admission": ["always", "history"],
    "bypass-sequential": ["64MiB", "off", "1MiB"],
    "max-destage-rate": ["1MiB", "64MiB", "0"],
    "backend-timeout": ["2s", "30s"],
}


class Control(http.client.HTTPConnection):
    """The control socket of a daemon."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def set(self, name, **settings):
        body = json.dumps({key.replace("_", "-"): value for key, value in settings.items()})
        self.request("POST", "/v1/disks/%s/set" % name, body, {"content-type": "application/json"})
        answer = self.getresponse()
        said = json.loads(answer.read())
        assert answer.status == 200 and all(change["error"] is None for change in said["changes"]), said


class Verifier(threading.Thread):
    """Reads and writes at random places that only it uses; notes how long each took."""

    def __init__(self, handle, seed, part):
        super().__init__()
        self.handle, self.chance, self.blocks = handle, random.Random(seed), list(part)
        self.versions = dict.fromkeys(self.blocks, 0)
        self.times, self.error, self.ends = [], None, False
        self.start()

    def run(self):
        try:
            while not self.ends:
                # Some come back often, so that there is something to keep.
                few = len(self.blocks) // 8 if self.chance.random() < 0.7 else len(self.blocks)
                block = self.blocks[self.chance.randrange(few)]
                offset, began = block * BLOCK, time.perf_counter()
                if self.chance.random() < 0.3:
                    self.versions[block] += 1
                    self.handle.pwrite(pattern(offset, BLOCK, self.versions[block]), offset)
                else:
                    read = self.handle.pread(BLOCK, offset)
                    assert bytes(read) == pattern(offset, BLOCK, self.versions[block]), "block %d" % block
                self.times.append(time.perf_counter() - began)
        except (nbd.Error, AssertionError) as error:
            self.error = error

    def stop(self):
        self.ends = True
        self.join()
        assert self.error is None, self.error


def p99(times):
    return sorted(times)[len(times) * 99 // 100] * 1000


@test(forebay_only=True)
def each_setting_changes_twenty_times_while_a_client_verifies(bed):
    bed.image("a.raw", SIZE)
    more = 'flash = "%s:64MiB"\nmode = "write-back"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", more))
    control = Control(served.control)
    verifier = Verifier(client(bed, "a"), 7, range(SIZE // BLOCK))
    eventually(lambda: len(verifier.times) > 2000, "requests are answered")
    for kind, values in KINDS.items():
        # Both hear a request of the control socket 20 times: what is compared is the change.
        at = len(verifier.times)
        for turn in range(CHANGES):
            seen = len(verifier.times)
            control.set("a", **{kind: values[-1]})
            eventually(lambda: len(verifier.times) > seen + 25, "requests are answered")
        quiet, at = verifier.times[at:], len(verifier.times)
        for turn in range(CHANGES):
            seen = len(verifier.times)
            control.set("a", **{kind: values[turn % len(values)]})
            eventually(lambda: len(verifier.times) > seen + 25 or verifier.error, "requests are answered")
        during = verifier.times[at:]
        print("%s: p99 %.2f ms without changes, %.2f ms during %d of them, longest %.2f ms" % (
            kind, p99(quiet), p99(during), CHANGES, max(during) * 1000), flush=True)
        assert verifier.error is None, (kind, verifier.error)
    control.set("a", ram="24MiB", mode="write-through")
    verifier.stop()
    for block, version in verifier.versions.items():
        offset = block * BLOCK
        assert bytes(verifier.handle.pread(BLOCK, offset)) == pattern(offset, BLOCK, version), block
    verifier.handle.shutdown()
    assert served.server.stop() == 0
    with open(bed.path("a.raw"), "rb") as f:
        for block, version in verifier.versions.items():
            assert f.read(BLOCK) == pattern(block * BLOCK, BLOCK, version), block
