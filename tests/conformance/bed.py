"""What a test stands on: a folder, servers that end with it, clients, checks.

A test is a function with a sentence for a name, marked with @test, that takes a Bed. It fails by
raising; it leaves by raising Skip when this machine cannot run it.
"""
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import time

TESTS = []
SKIP_CODE = 77
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
START_MAX = 30.0  # seconds until a server must be ready, generous for a busy machine
STOP_MAX = 60.0


class Skip(Exception):
    """This machine cannot run the test; the text says why."""


class Test:
    def __init__(self, function, forebay_only, alone, timeout):
        self.function, self.forebay_only = function, forebay_only
        self.alone, self.timeout = alone, timeout
        self.name = function.__name__.replace("_", " ")
        self.area = function.__module__.removeprefix("test_")

    def words(self):
        return self.area + " " + self.name


def test(function=None, *, forebay_only=False, alone=False, timeout=180):
    """Marks a test. `forebay_only`: it does not hold for other NBD servers; `alone`: it measures time, so nothing
    else runs beside it."""
    if function is None:
        return lambda f: test(f, forebay_only=forebay_only, alone=alone, timeout=timeout)
    TESTS.append(Test(function, forebay_only, alone, timeout))
    return function


def eventually(condition, what, seconds=START_MAX):
    """Asks again until `condition()` is true: every 10 ms at first, every 250 ms after 12 s. Its value."""
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - began
        assert waited < seconds, "not within %g s: %s" % (seconds, what)
        # A long wait asks less often, so that other tests have the CPU.
        time.sleep(min(max(0.01, waited / 50), 0.25))


def pattern(offset, length, version=0):
    """Bytes that say where they belong: each 512-byte sector begins with its offset and version."""
    out = bytearray()
    for at in range(offset, offset + length, 512):
        head = at.to_bytes(8, "little") + version.to_bytes(8, "little")
        out += head + bytes([(at // 512 + version * 7) % 251]) * 496
    return bytes(out)


def server_logs(directory):
    """The ends of what the servers in a test's folder said."""
    text = ""
    for name in sorted(os.listdir(directory)):
        if name.endswith(".server-log"):
            with open(os.path.join(directory, name), errors="replace") as f:
                text += "\n--- %s\n%s" % (name, "".join(f.readlines()[-30:]))
    return text


def unmount_below(directory):
    with open("/proc/mounts") as f:
        mounts = [line.split()[1] for line in f]
    for mount in reversed(mounts):
        if mount.startswith(directory + "/"):
            subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL)


def remove_staging(directory, program):
    """A disk that was killed in write-back leaves files on tmpfs for the next run, which a test does not have."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as f:
            if f.read(8) != b"FOREBAY\0":
                continue
        shown = subprocess.run([program, "pool", "show", path, "--json"], capture_output=True)
        disks = json.loads(shown.stdout)["disks"] if shown.returncode == 0 else []
        for disk in disks:
            for kind in ["staging", "trail"]:
                left = on_tmpfs("forebay-%s.%s" % (disk["uuid"], kind))
                if os.path.exists(left):
                    os.unlink(left)


def on_tmpfs(name):
    """Where Forebay has a file that outlives it and not the host."""
    return "/dev/shm/forebay-%d/%s" % (os.geteuid(), name)


class Bed:
    def __init__(self, directory, server, forebay):
        self.directory, self.server, self.program = directory, server, forebay
        self.is_forebay = server == "forebay"
        self.processes, self.servers, self.counter = [], [], 0
        self.random = random.Random(2013)
        self.prefix = []  # what Forebay's command line is handed to

    def path(self, name):
        return os.path.join(self.directory, name)

    def image(self, name, size, fill="pattern"):
        """A file of `size` bytes: "pattern" (see `pattern`), "random" or "holes"."""
        path = self.path(name)
        with open(path, "wb") as f:
            for at in range(0, size if fill != "holes" else 0, MIB):
                length = min(MIB, size - at)
                f.write(pattern(at, length) if fill == "pattern" else self.random.randbytes(length))
            f.truncate(size)
        return path

    # ---- servers

    def disk(self, backend, *, ram="64MiB", flash=None, mode=None, block_size=None, name="disk",
             nbd=None, extra=(), wait=True):
        """A disk on `backend` (a URI) served on a unix socket.

        The stand-in serves the file or the memory of the URI and ignores the rest.
        """
        self.counter += 1
        nbd = nbd or "unix:" + self.path("%s.sock" % name)
        if self.is_forebay:
            command = [*self.prefix, self.program, "run", backend, "--name", name, "--nbd", nbd,
                       "--control", self.path(name + ".control"),
                       "--state-dir", self.path("state")]
            for option, value in (("--ram", ram), ("--flash", flash), ("--mode", mode),
                                  ("--block-size", block_size)):
                if value:
                    command += [option, value]
            command += extra
        else:
            command = stand_in(backend, nbd, name)
        server = Server(self, name, command, nbd, ready="ready" if self.is_forebay else None)
        self.servers.append(server)
        if wait:
            server.start()
        return server

    def serve(self, config, listeners):
        """`forebay serve` with the text of a configuration file; tests run side by side, and only one could have the HTTP port."""
        path = self.path("forebay.toml")
        with open(path, "w") as f:
            http = "" if config.startswith("http =") else 'http = "off"\n'
            f.write('state-dir = "%s"\n' % self.path("state") + http + config)
        server = Server(self, "serve", [*self.prefix, self.program, "serve", "--config", path],
                        listeners[0], ready="ready")
        self.servers.append(server)
        server.start()
        return server

    def other(self, name, command, listen):
        """A server of somebody else, as primary storage or for comparison."""
        server = Server(self, name, command, listen, ready=None)
        self.servers.append(server)
        server.start()
        return server

    def check_servers(self):
        """At the end of a test every server that was not ended is alive and well."""
        for server in self.servers:
            if server.process and not server.was_ended:
                assert server.process.poll() is None, "%s died: %s" % (
                    server.name, server.process.poll())
            assert "panicked" not in server.log(), "%s panicked" % server.name

    # ---- clients

    def run(self, command, *, code=0, timeout=120, **more):
        """Runs a program; its standard output. Any other exit code than `code` fails the test."""
        print("$", " ".join(map(str, command)), flush=True)
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                                timeout=timeout, **more)
        print(result.stdout[-4000:], result.stderr[-4000:], flush=True)
        if code is not None:
            assert result.returncode == code, "exit code %d of %s" % (result.returncode, command[0])
        return result.stdout if code is not None else result

    def run_unread(self, command):
        """Runs a program whose standard output nobody reads; how it ended."""
        print("$", " ".join(command), "| true", flush=True)
        reader, writer = os.pipe()
        os.close(reader)
        try:
            return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
        finally:
            os.close(writer)

    def spawn(self, command, **more):
        """Starts a program that ends with the test."""
        print("$", " ".join(map(str, command)), "&", flush=True)
        process = subprocess.Popen(list(map(str, command)), **more)
        self.processes.append(process)
        return process

    def close(self):
        for process in self.processes + [s.process for s in self.servers if s.process]:
            if process.poll() is None:
                process.kill()
                process.wait()


class Server:
    """A process that serves one address."""

    def __init__(self, bed, name, command, listen, ready):
        self.bed, self.name, self.command, self.listen = bed, name, command, listen
        self.ready, self.process, self.was_ended = ready, None, False
        self.start_max = START_MAX
        self.log_path = bed.path("%s-%d.server-log" % (name, len(bed.servers)))

    @property
    def socket(self):
        return self.listen.removeprefix("unix:")

    @property
    def uri(self):
        return self.uri_of("")

    def uri_of(self, export):
        if self.listen.startswith("unix:"):
            return "nbd+unix:///%s?socket=%s" % (export, self.socket)
        return "nbd://%s/%s" % (self.listen, export)

    def start(self):
        print("$", " ".join(self.command), "&", flush=True)
        if not self.ready and self.listen.startswith("unix:") and os.path.exists(self.socket):
            os.unlink(self.socket)  # left by a kill; Forebay sees to that itself
        if self.process and self.process.stdout:
            self.process.stdout.close()
        log = open(self.log_path, "ab")
        out = subprocess.PIPE if self.ready else log
        self.began = time.time()
        self.process = subprocess.Popen(self.command, stdout=out, stderr=log)
        self.bed.processes.append(self.process)
        self.was_ended = False
        if self.ready:
            self.wait_for_line()
            eventually(self.has_memory, "the RAM cache of %s has its memory" % self.name)
        else:
            eventually(self.accepts, "%s accepts connections" % self.name)

    def wait_for_line(self):
        end = time.monotonic() + self.start_max
        text = b""
        while not re.search(rb"\b%s\b" % self.ready.encode(), text):
            left = end - time.monotonic()
            assert left > 0, "%s is not ready: %s" % (self.name, self.log())
            if select.select([self.process.stdout], [], [], left)[0]:
                more = os.read(self.process.stdout.fileno(), 65536)
                assert more, "%s ended: %s\n%s" % (self.name, self.process.wait(), self.log())
                text += more
        self.said = text.decode(errors="replace")

    def has_memory(self):
        """A disk serves before that; a test that counts hits is not interested in the moment in between."""
        control = self.bed.path(self.name + ".control")
        command = [self.bed.program, "stats", self.name, "--json", "--control", control]
        came = subprocess.run(command, capture_output=True, timeout=30)
        if came.returncode != 0 or not os.path.exists(control):
            return True
        ram = json.loads(came.stdout)["ram"]
        return ram["slots_ready"] == ram["slots"]

    def accepts(self):
        assert self.process.poll() is None, "%s ended: %s" % (self.name, self.log())
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def connect(self):
        """A plain stream socket to the server."""
        if self.listen.startswith("unix:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.socket)
        else:
            host, port = self.listen.rsplit(":", 1)
            connection = socket.create_connection((host, int(port)))
        connection.settimeout(30)
        return connection

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def since(self):
        """What makes `forebay events` leave out those of the runs before this one."""
        began = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.began))
        return ["--since", "%s.%03dZ" % (began, self.began % 1 * 1000)]

    def kill(self):
        """kill -9"""
        self.was_ended = True
        self.process.kill()
        self.process.wait()

    def stop(self, timeout=STOP_MAX):
        """SIGTERM; its exit code."""
        self.was_ended = True
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def restart(self):
        self.kill()
        self.start()

    def stats(self):
        """`forebay stats --json`, as a dictionary."""
        command = [self.bed.program, "stats", self.name, "--json", "--control",
                   self.bed.path(self.name + ".control")]
        return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=30).stdout)


def stand_in(backend, nbd, name):
    """nbdkit in Forebay's place."""
    listen = ["-U", nbd.removeprefix("unix:")]
    if not nbd.startswith("unix:"):
        host, port = nbd.rsplit(":", 1)
        listen = ["-i", host, "-p", port]
    scheme, _, rest = backend.partition(":")
    if scheme == "file":
        return ["nbdkit", "-f", *listen, "-e", name, "file", rest.partition("?")[0]]
    if scheme == "mem":
        return ["nbdkit", "-f", *listen, "-e", name, "memory", rest.removesuffix("iB")]
    raise Skip("nbdkit does not stand in for %s" % backend)


def free_port():
    """A TCP port that is free now, for servers that cannot tell which one they took."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def need_program(name):
    if not shutil.which(name):
        raise Skip("%s is not installed" % name)
