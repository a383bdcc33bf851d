"""Everything at once: settings that change, disks that come, grow and go, kills, and clients that verify all of it."""
import collections
import os
import random
import subprocess
import threading
import time

import nbd
from bed import KIB, MIB, eventually, pattern, test
from test_crash import Recorder
from test_reload import Served, client, disk
from test_resize import lengthen
from test_write_back_restarts import kill_start

# `make soak` goes on for an hour. Another seed is another run, though never the same one twice: the machine has its say.
SECONDS = float(os.environ.get("FOREBAY_SOAK_SECONDS", "60"))
SEED = int(os.environ.get("FOREBAY_SOAK_SEED", "2013"))
SIZE, SIZE_MAX = 16 * MIB, 24 * MIB
BLOCK = 4 * KIB
IN_FLIGHT = 8
RAM = "2MiB", "3MiB", "8MiB", "16MiB"

# What each disk begins with.
DISKS = {
    "a": 'flash = "%s:24MiB"\nmode = "write-back"\nwrite-log = "6MiB"\nflash-admission = "always"\n',
    "b": 'flash = "%s:24MiB"\nmode = "write-back"\nwrite-log = "6MiB"\ndestage-order = "window"\n'
         'destage-barrier = "flush"\n',
    "c": 'flash = "%s:24MiB"\nflash-admission = "always"\nbypass-sequential = "off"\n',
}
# What changes with a guest at work.
CHANGES = {
    "ram": RAM,
    "policy": ("lru", "fifo", "s3fifo", "auto"),
    "flash-admission": ("always", "history"),
    "bypass-sequential": ("64MiB", "off", "256KiB"),
    "max-destage-rate": ("1MiB", "64MiB"),
    "backend-timeout": ("20s", "60s"),
    "on-timeout": ("fail", "wait"),
    "iops-limit": ("0", "500", "5000"),
    "bandwidth-limit": ("0", "8MiB"),
    "ram-reservation": ("1MiB", "2MiB"),
    "flash-reservation": ("1MiB", "2MiB"),
    # With these the disk is opened again.
    "recorder": ("0", "4MiB"),
    "block-size": ("4KiB", "8KiB", "16KiB"),
    "destage-order": ("strict", "window", "journaled"),
    "write-log": ("4MiB", "6MiB"),
    "flash-limit": ("24MiB", "32MiB"),
    "flash": ("%s:16MiB", "%s:24MiB"),
}
# A hold that was begun a moment ago keeps a disk from being opened again.
HELD = "destaging is held by 'disk quiesce'"
MODES = {
    "a": ("write-back", "write-through", "write-around", "pass-through", "monitor"),
    "b": ("write-back", "write-only", "write-through"),
    "c": ("write-through", "write-around", "pass-through"),
}


class Verifier(Recorder):
    """Reads and writes one disk at random, attaches again after a kill, and knows what each block may hold."""

    def __init__(self, soak, name):
        super().__init__(None, random.Random("%d %s" % (SEED, name)), SIZE // BLOCK)
        self.soak, self.name, self.reads, self.quiet, self.error = soak, name, 0, 0, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop and self.error is None:
            life = self.soak.life
            try:
                handle = client(self.soak.bed, self.name)
                self.sessions += 1
                self.write(handle)
            except (nbd.Error, ConnectionError) as error:
                if life == self.soak.life and not self.soak.is_down():
                    self.error = error
                time.sleep(0.01)
            except AssertionError as error:
                self.error = error

    def write(self, handle):
        busy = set()
        while not self.stop and self.error is None:
            while len(busy) < IN_FLIGHT:
                few = self.blocks // 8 if self.random.random() < 0.7 else self.blocks
                block = self.random.randrange(few)
                if block not in busy:
                    (self.send if self.random.random() < 0.4 else self.read)(handle, busy, block)
            self.quiet += handle.poll(100) == 0
            if handle.aio_is_dead() or handle.aio_is_closed():
                raise ConnectionError("the connection ended")
            # The disk has other things to do, and so has the machine.
            time.sleep(0.002)
        while handle.aio_in_flight():
            handle.poll(-1)
        handle.shutdown()

    def settle(self):
        """Waits until the client of a disk that stands still hears nothing for 100 ms. How many of its reads were answered."""
        before = self.quiet
        eventually(lambda: self.quiet > before + 1 or self.error, "no answer comes")
        return self.reads

    def read(self, handle, busy, block):
        busy.add(block)
        data = nbd.Buffer(BLOCK)

        def done(error):
            busy.discard(block)
            try:
                if error.value == 0:
                    self.is_one_of(block, bytes(data.to_bytearray()))
                    self.reads += 1
                else:
                    self.failed(error.value)
            except AssertionError as wrong:
                self.error = wrong
            return 1

        handle.aio_pread(data, block * BLOCK, done)

    def failed(self, error):
        """A request failed, which only the end of the daemon excuses."""
        if not self.soak.is_down():
            self.error = AssertionError("%s: a request failed: error %d" % (self.name, error))

    def is_one_of(self, block, data):
        """What a block holds is what was written; what it held once, it holds until the next write."""
        versions = self.check_block(block, data)
        if len(versions) == 1:
            self.acknowledged[block], self.sent[block] = versions.pop(), []


class Soak:
    """A daemon to which everything happens."""

    def __init__(self, bed):
        self.bed, self.chance, self.life = bed, random.Random(SEED), 0
        for name in "abcd":
            bed.image(name + ".raw", SIZE)
        self.done, self.refused, self.guest = collections.Counter(), collections.Counter(), {}
        self.files = {name: disk(bed, name, more % bed.path("pool")) for name, more in DISKS.items()}
        self.served = Served(bed, *self.files.values())
        self.verifiers = {name: Verifier(self, name) for name in DISKS}

    def is_down(self):
        return self.life % 2 == 1

    def down(self, how):
        self.life += 1
        how()
        self.sessions = {name: verifier.sessions for name, verifier in self.verifiers.items()}

    def up(self):
        self.served.server.start()
        self.life += 1
        for name, verifier in self.verifiers.items():
            is_back = lambda: verifier.sessions > self.sessions[name] or verifier.error
            eventually(is_back, "the client of %s is back" % name)

    def command(self, *words):
        return [self.bed.program, *words, "--control", self.served.control]

    def tell(self, *words, allowed=()):
        """A command, which succeeds, or fails with one of the reasons that it may have now."""
        said = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60)
        if said.returncode:
            reason = next((reason for reason in allowed if reason in said.stdout + said.stderr), None)
            assert reason, (words, said.returncode, said.stdout, said.stderr)
            self.refused["%s: %s" % (words[1], reason)] += 1
        return said.returncode == 0

    def settings(self):
        name = self.chance.choice(list(DISKS))
        words = ["disk", "set", name]
        for key in self.chance.sample(list(CHANGES), self.chance.randrange(3)):
            words += ["--" + key, self.chance.choice(CHANGES[key]).replace("%s", self.bed.path("pool"))]
        if len(words) == 3 or self.chance.random() < 0.3:
            words += ["--mode", self.chance.choice(MODES[name])]
        return words

    # ---- what happens

    def set(self):
        self.tell(*self.settings(), allowed=["for a disk with a write log", HELD])

    def reset(self):
        self.tell("disk", "reset", self.chance.choice(list(DISKS)), allowed=["nothing of that was changed", HELD])

    def reload(self):
        changed = dict(self.files)
        name = self.chance.choice(list(DISKS))
        changed[name] = changed[name].replace('"8MiB"', '"%s"' % self.chance.choice(RAM))
        self.served.write(*changed.values())
        self.tell("reload", allowed=[HELD])

    def drop_cache(self):
        self.tell("disk", "drop-cache", self.chance.choice(list(DISKS)))

    def pause(self):
        name = self.chance.choice("ab")
        if self.tell("disk", "pause", name, allowed=["has no write log"]):
            time.sleep(self.chance.random())
        self.tell("disk", "resume", name)

    def flush(self):
        self.tell("disk", "flush", self.chance.choice("abc"))

    def quiesce(self):
        self.tell("disk", "quiesce", self.chance.choice("ab"), "--for", "300ms", allowed=["is held already", "write log"])

    def grow(self):
        name = self.chance.choice("abc")
        image = self.bed.path(name + ".raw")
        size = os.path.getsize(image) + self.chance.choice([512, 4096, 65536])
        if size <= SIZE_MAX:
            lengthen(image, size)
            self.tell("disk", "resize", name)

    def add_and_remove(self):
        """A disk comes, has what was written to it when it was here before, and goes again."""
        if "d" not in self.served.disks():
            self.tell("disk", "add", "d", "file:" + self.bed.path("d.raw"), "--ram", "4MiB", "--mode", "write-back",
                      "--flash", self.bed.path("pool-of-d") + ":16MiB", "--nbd", "unix:" + self.bed.path("d.sock"))
        handle = client(self.bed, "d")
        for at, version in self.guest.items():
            assert bytes(handle.pread(BLOCK, at)) == pattern(at, BLOCK, version), ("d", at)
        for _ in range(50):
            at = self.chance.randrange(SIZE // BLOCK) * BLOCK
            self.guest[at] = self.guest.get(at, 0) + 1
            handle.pwrite(pattern(at, BLOCK, self.guest[at]), at)
        handle.shutdown()
        if self.chance.random() < 0.7:
            eventually(lambda: self.served.stats("d")["connections"] == 0, "its client has left")
            self.tell("disk", "remove", "d")

    def end_in_order(self):
        self.down(self.end)
        self.up()

    def end(self):
        assert self.served.server.stop() == 0

    def kill(self):
        self.down(self.served.server.kill)
        for _ in range(self.chance.randrange(3)):
            kill_start(self.served.server, 0.3 * self.chance.random() ** 2)
        self.up()

    def kill_while_settings_change(self):
        command = subprocess.Popen(self.command(*self.settings()), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.05 * self.chance.random())
        self.down(self.served.server.kill)
        command.wait(60)
        self.up()

    def run(self):
        end = time.monotonic() + SECONDS
        actions = {
            self.set: 20, self.reset: 2, self.reload: 3, self.drop_cache: 2, self.pause: 3, self.flush: 2, self.quiesce: 2,
            self.grow: 3, self.add_and_remove: 3, self.end_in_order: 2, self.kill: 3, self.kill_while_settings_change: 3,
        }
        while time.monotonic() < end:
            action, = self.chance.choices(list(actions), actions.values())
            print("%.1f %s" % (end - time.monotonic(), action.__name__), flush=True)
            action()
            self.done[action.__name__] += 1
            time.sleep(0.3 * self.chance.random())
            self.nobody_found_anything()
        self.finish()

    def nobody_found_anything(self):
        for name, verifier in self.verifiers.items():
            assert verifier.error is None, (name, verifier.error)

    def finish(self):
        """All is there, for clients and, after an end in order, on primary storage alone."""
        for name, verifier in self.verifiers.items():
            verifier.stop = True
            verifier.thread.join(60)
            assert not verifier.thread.is_alive(), "requests of %s were not answered" % name
        self.nobody_found_anything()
        for name, verifier in self.verifiers.items():
            handle = client(self.bed, name)
            verifier.check(lambda at, length: bytes(handle.pread(length, at)))
            handle.shutdown()
            self.tell("disk", "flush", name)
        self.end()
        for name, verifier in self.verifiers.items():
            with open(self.bed.path(name + ".raw"), "rb") as image:
                verifier.check(lambda at, length: os.pread(image.fileno(), length, at))
        print("%d writes, %d reads; done: %s; refused: %s" % (
            sum(verifier.version for verifier in self.verifiers.values()),
            sum(verifier.reads for verifier in self.verifiers.values()), dict(self.done), dict(self.refused)))


@test(forebay_only=True, timeout=180 + SECONDS)
def nothing_is_lost_while_everything_changes_and_the_daemon_is_killed(bed):
    Soak(bed).run()
