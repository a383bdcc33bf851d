"""`forebay top` and `forebay stats --watch` in a terminal of 80 × 24."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import nbd

from bed import MIB, Skip, test

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"  # the alternate screen


class Terminal:
    """A program in a terminal, and what its screen shows."""

    def __init__(self, bed, *command, columns=80, lines=24):
        try:
            import pyte
        except ImportError:
            raise Skip("python3-pyte is missing: make setup")
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.master, self.slave = pty.openpty()
        self.raw = b""
        self.size(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        print("$", " ".join(command), flush=True)
        # A session of its own, whose terminal this is.
        self.process = subprocess.Popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                        env={**os.environ, "TERM": "xterm-256color"})
        bed.processes.append(self.process)

    def size(self, columns, lines):
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            came = os.read(self.master, 65536)
            self.raw += came
            self.stream.feed(came)

    def until(self, condition, what, seconds=30):
        """Reads until the lines of the screen are as wanted; these."""
        end = time.monotonic() + seconds
        while not condition(self.screen.display):
            assert time.monotonic() < end, "not on the screen: %s\n%s" % (what, "\n".join(self.screen.display))
            self.read(0.1)
        return self.screen.display

    def shows(self, *words):
        return self.until(lambda lines: all(word in "\n".join(lines) for word in words), words)

    def wait(self):
        """The exit code of the program, which left the terminal as it was."""
        end = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end: %s" % "\n".join(self.screen.display)
            self.read(0.05)
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        assert self.raw.count(ENTER) == self.raw.count(LEAVE) == 1, self.raw[-300:]
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        return self.process.returncode


def serve(bed, *names):
    config = 'control = "%s"\n' % bed.path("serve.control")
    for name in names:
        config += '[[disk]]\nname = "%s"\nbackend = "mem:16MiB"\nram = "4MiB"\nnbd = ["unix:%s"]\n' % (
            name, bed.path(name + ".sock"))
    return bed.serve(config, ["unix:" + bed.path(names[0] + ".sock")])


def names(lines):
    return [line.split()[0] for line in lines[2:-1] if line.strip()]


def client(bed, disk):
    handle = nbd.NBD()
    handle.connect_uri("nbd+unix:///%s?socket=%s" % (disk, bed.path(disk + ".sock")))
    return handle


@test(forebay_only=True)
def top_sorts_filters_drills_down_follows_the_size_and_restores_the_terminal(bed):
    server = serve(bed, "db", "web", "mail")
    control = bed.path("serve.control")
    top = Terminal(bed, bed.program, "top", "--control", control, "--sort", "name", "--interval", "100ms")
    lines = top.until(lambda lines: names(lines) == ["db", "mail", "web"], "three disks by name")
    assert lines[0].startswith("forebay top: 3 disks, by name") and lines[23].startswith("q quit"), lines
    h = client(bed, "web")

    def has_load():
        for at in range(0, 4 * MIB, 65536):
            h.pread(65536, at)
        return "web" == names(top.screen.display)[0]

    top.type("s")
    top.shows("by iops")
    top.until(lambda lines: has_load(), "the busy disk comes first")
    top.type("r")
    top.until(lambda lines: names(lines)[-1] == "web", "reversed")
    top.type("/MA")
    top.until(lambda lines: names(lines) == ["mail"] and lines[23].startswith("filter: MA_"), "the filter while it is typed")
    top.type("\r")
    top.shows("with 'MA'", "/ filter")
    top.type("\x1b")
    top.until(lambda lines: len(names(lines)) == 3, "the filter is cleared")
    top.type("\x1b[F")  # End
    top.type("\r")
    top.shows("disk web: 16 MiB", "since the start", "guest reads", "primary storage connected", "Esc back")
    top.size(120, 40)
    lines = top.until(lambda lines: lines[39].startswith("Esc back"), "the disk on a larger screen")
    assert lines[1].startswith("disk web: 16 MiB"), lines
    top.type("\x1b")
    top.until(lambda lines: "WRITTEN/s" in lines[1] and len(names(lines)) == 3, "more columns")
    h.shutdown()
    bed.run([bed.program, "disk", "detach", "mail", "--control", control])
    top.until(lambda lines: sorted(names(lines)) == ["db", "web"], "the detached disk is gone")
    assert server.stop() == 0
    top.shows("NO ANSWER", "no disk is running")
    top.type("q")
    assert top.wait() == 0


@test(forebay_only=True)
def a_daemon_that_refuses_its_only_disk_is_shown(bed):
    control = bed.path("serve.control")
    server = bed.serve('control = "%s"\n[[disk]]\nname = "db"\nbackend = "file:%s"\nram = "1MiB"\nnbd = ["unix:%s"]\n'
                       '[[disk]]\nname = "web"\nbackend = "mem:1MiB"\nram = "1MiB"\nnbd = ["unix:%s"]\n'
                       % (control, bed.path("gone.raw"), bed.path("db.sock"), bed.path("web.sock")),
                       ["unix:" + bed.path("web.sock")])
    bed.run([bed.program, "disk", "detach", "web", "--control", control])
    said = bed.run([bed.program, "top", "--once", "--control", control])
    assert "REFUSED" in said, said
    said = bed.run([bed.program, "stats", "--control", control], code=None).stderr
    assert "no disk is served, not db, web: 'forebay disk list --control" in said, said
    assert server.stop() == 0


@test(forebay_only=True)
def top_restores_the_terminal_when_a_signal_ends_it(bed):
    server = serve(bed, "db")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        top = Terminal(bed, bed.program, "top", "--control", bed.path("serve.control"))
        top.shows("forebay top: 1 disk,")
        top.process.send_signal(number)
        assert top.wait() == 0, number
    top = Terminal(bed, bed.program, "top", "--control", bed.path("serve.control"))
    top.shows("forebay top: 1 disk,")
    top.type("\x03")
    assert top.wait() == 0
    assert server.stop() == 0


@test(forebay_only=True)
def top_answers_keys_while_a_daemon_hangs(bed):
    server = serve(bed, "db", "web")
    top = Terminal(bed, bed.program, "top", "--control", bed.path("serve.control"), "--interval", "100ms", "--sort", "name")
    top.until(lambda lines: names(lines) == ["db", "web"], "two disks")
    server.process.send_signal(signal.SIGSTOP)
    top.type("r")
    top.until(lambda lines: names(lines) == ["web", "db"], "reversed", seconds=5)
    server.process.send_signal(signal.SIGCONT)
    top.type("q")
    assert top.wait() == 0
    assert server.stop() == 0


@test(forebay_only=True)
def top_without_a_terminal_prints_one_table_and_no_daemon_is_an_error(bed):
    server = serve(bed, "db", "web")
    control = bed.path("serve.control")
    text = bed.run([bed.program, "top", "--control", control, "--interval", "100ms", "--sort", "name"], stdin=subprocess.DEVNULL)
    lines = text.splitlines()
    assert lines[0].split() == ["DISK", "IOPS", "HIT%", "GUEST", "FLASH", "PRIMARY", "USED%", "DIRTY", "STATE"], text
    assert [line.split()[0] for line in lines[1:]] == ["db", "web"] and "\x1b" not in text, text
    wrong = bed.run([bed.program, "top", "--interval", "0s"], code=None)
    assert wrong.returncode == 2 and "100ms to 1h are allowed" in wrong.stderr, wrong
    assert server.stop() == 0
    gone = bed.run([bed.program, "top", "--control", control], code=None)
    assert gone.returncode == 1 and "nobody listens on the control socket" in gone.stderr, gone


@test(forebay_only=True)
def stats_watch_shows_intervals_in_80_columns_of_an_alternate_screen(bed):
    disk = bed.disk("mem:16MiB")
    watch = Terminal(bed, bed.program, "stats", "disk", "--watch", "--control", bed.path("disk.control"))
    lines = watch.shows("disk disk: 16 MiB", "per second, now", "mean now")
    assert not any(line.endswith("…") for line in lines), lines
    h = nbd.NBD()
    h.connect_uri(disk.uri)

    def reads_now(lines):
        for at in range(0, MIB, 65536):
            h.pread(65536, at)
        line, = [line for line in lines if "per second, now" in line]
        return int(line.split()[3].replace(",", "")) > 0

    watch.until(reads_now, "reads in the last second")
    watch.type("q")
    assert watch.wait() == 0
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def stats_watch_goes_on_when_one_of_several_disks_is_detached(bed):
    server = serve(bed, "db", "web")
    control = bed.path("serve.control")
    watch = Terminal(bed, bed.program, "stats", "--watch", "--control", control)
    watch.shows("disk db: 16 MiB")
    bed.run([bed.program, "disk", "detach", "db", "--control", control])
    watch.shows("disk db: NO FIGURES: ", "disk db: 16 MiB")
    watch.type("q")
    assert watch.wait() == 0
    assert server.stop() == 0


@test(forebay_only=True, alone=True)
def five_hundred_disks_are_listed_within_50_ms_and_top_follows_them(bed):
    config = 'control = "%s"\n' % bed.path("serve.control")
    for number in range(500):
        config += '[[disk]]\nname = "d%03d"\nbackend = "mem:1MiB"\nram = "1MiB"\nrecorder = "0"\n' % number
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("all.sock")
    server = bed.serve(config, ["unix:" + bed.path("all.sock")])
    control, took = bed.path("serve.control"), []
    for _ in range(7):
        began = time.monotonic()
        said = subprocess.run([bed.program, "disk", "list", "--json", "--control", control], capture_output=True, check=True)
        took.append(time.monotonic() - began)
    disks = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(disks) == 500 and not any(disk["is_silent"] for disk in disks)
    print("disk list --json of 500 disks: %.0f ms" % (1000 * min(took)))
    is_measured = "/debug/" not in bed.program
    assert not is_measured or min(took) < 0.05, took
    top = Terminal(bed, bed.program, "top", "--control", control, "--sort", "name", "--interval", "200ms")
    top.shows("forebay top: 500 disks", "d000")
    began = time.monotonic()
    for _ in range(20):  # page after page, while figures come
        top.type("\x1b[6~")
    top.shows("d200")
    took = time.monotonic() - began
    print("20 pages of 500 disks: %.0f ms" % (1000 * took))
    assert not is_measured or took < 1, took
    top.type("q")
    assert top.wait() == 0
    assert server.stop() == 0
