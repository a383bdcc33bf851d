"""A process that is stopped for a while, by a debugger or a freezer: it takes no device for dead when it goes on."""
import signal
import threading
import time

import nbd

from bed import MIB, eventually, pattern, test

# Longer than flash may take for an answer, which is 5 s.
STOPPED = 6


class Writer:
    """Durable writes to a place of its own, one after the other, until it is to end."""

    def __init__(self, disk, at):
        self.disk, self.at, self.version = disk, at, 0
        self.is_over, self.error = threading.Event(), None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            h = nbd.NBD()
            h.connect_uri(self.disk.uri)
            while not self.is_over.is_set():
                self.version += 1
                h.pwrite(pattern(self.at, 65536, self.version), self.at, nbd.CMD_FLAG_FUA)
            assert bytes(h.pread(65536, self.at)) == pattern(self.at, 65536, self.version), self.at
            h.shutdown()
        except Exception as error:
            self.error = error

    def end(self):
        self.is_over.set()
        self.thread.join(60)
        assert not self.thread.is_alive() and self.error is None, self.error


@test(forebay_only=True)
def a_stopped_process_keeps_its_log_when_it_goes_on(bed):
    disks = []
    for reactor in ("io_uring", "epoll"):
        image = bed.image(reactor + ".raw", 16 * MIB)
        disks.append(bed.disk("file:" + image, name=reactor, ram="2MiB", flash=bed.path(reactor + ".pool") + ":64MiB",
                              mode="write-back", extra=["--write-log", "32MiB", "--reactor", reactor]))
    writers = [Writer(disk, n * MIB) for disk in disks for n in range(8)]
    try:
        for _ in range(2):
            before = [writer.version for writer in writers]
            eventually(lambda: all(writer.version > old + 8 for writer, old in zip(writers, before)), "all write", 60)
            for disk in disks:
                disk.process.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED)
            for disk in disks:
                disk.process.send_signal(signal.SIGCONT)
    finally:
        for disk in disks:
            disk.process.send_signal(signal.SIGCONT)
        for writer in writers:
            writer.end()
    for disk in disks:
        stats = disk.stats()
        assert stats["mode_actual"] == "write-back" and stats["log"]["state"] == "active", disk.log()
        assert "was modified" not in disk.log(), disk.log()
        # What it noted of its writes explains what primary storage looks like.
        disk.kill()
        disk.start()
        assert disk.stats()["mode_actual"] == "write-back", disk.log()
        assert disk.stop() == 0, disk.log()
