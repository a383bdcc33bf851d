"""A disk that cannot be opened again: its clients wait, everybody hears why, and an administrator can end it."""
import os
import threading

import nbd

from bed import MIB, eventually, need_program, pattern, test
from test_reload import Served, client, disk
from test_settings import told

BACK = 'mode = "write-back"\nwrite-log = "4MiB"\n'


def export(bed):
    """Primary storage that is gone when its last client has left."""
    need_program("qemu-nbd")
    path = bed.path("qemu.sock")
    bed.spawn(["qemu-nbd", "--socket", path, "--format", "raw", "--shared", "16", bed.path("a.raw")])
    eventually(lambda: os.path.exists(path), "qemu-nbd listens")
    return "nbd+unix:///?socket=" + path


class Reader:
    """A client with a read that is not answered."""

    def __init__(self, bed):
        self.handle, self.error = client(bed, "a"), None
        self.thread = threading.Thread(target=self.read, daemon=True)

    def read(self):
        try:
            self.handle.pread(4096, 3 * MIB)
        except nbd.Error as error:
            self.error = error


def say(bed, served, *words):
    said = bed.run([bed.program, "disk", *words, "--control", served.control], code=None)
    return said.returncode, said.stdout + said.stderr


@test(forebay_only=True)
def a_disk_that_cannot_be_opened_again_is_shown_so_and_can_be_ended(bed):
    bed.image("a.raw", 4 * MIB)
    bed.image("b.raw", 4 * MIB)
    backend = export(bed)
    served = Served(bed, disk(bed, "a", 'flash = "%s:24MiB"\n' % bed.path("pool") + BACK, backend=backend), disk(bed, "b"))
    handle = client(bed, "a")
    say(bed, served, "pause", "a")
    for at in range(0, MIB, 4096):
        handle.pwrite(pattern(at, 4096, 7), at)
    handle.shutdown()

    def wait_for_nothing():
        """It ends, and so does its primary storage."""
        reader = Reader(bed)
        why = told(bed, served, "set", "a", "--block-size", "4KiB", code=1)["a"][1]
        assert "cannot be opened again, and its clients wait" in why, why
        reader.thread.start()
        stats = served.stats("a")
        assert stats["primary_storage"] == "lost" and stats["storage_changed"] is None, stats
        assert "is tried again every second" in stats["primary_trouble"], stats
        for words in (["pause", "a"], ["resume", "a"], ["drop-cache", "a"], ["quiesce", "a"], ["detach", "a"]):
            code, text = say(bed, served, *words)
            assert code == 1 and "cannot be opened again" in text and "in a moment" not in text, text
        return reader

    def force(what):
        # It may just be opened, in vain.
        said = []

        def is_ended():
            said[:] = say(bed, served, what, "a", "--force")
            return "ask again" not in said[1]
        eventually(is_ended, "nobody opens it")
        return said

    def has_ended(reader, names=("a", "b")):
        reader.thread.join(30)
        assert not reader.thread.is_alive() and reader.error is not None, "its client is closed"
        assert served.disks() == list(names)
        listed = bed.run([bed.program, "disk", "list", "--control", served.control])
        assert ("NOT SERVED" in listed) == ("a" in names), listed
        assert "a" not in names or "its write log still holds" in " ".join(listed.split()), listed
    reader = wait_for_nothing()
    code, text = force("detach")
    assert code == 1 and "its write log still holds 1" in text and "'forebay disk open a'" in text, text
    has_ended(reader)
    assert "was detached with --force, and its clients ended" in served.events()
    export(bed)
    assert say(bed, served, "open", "a")[0] == 0
    handle = client(bed, "a")
    for at in range(0, MIB, 4096):
        assert bytes(handle.pread(4096, at)) == pattern(at, 4096, 7), at
    handle.shutdown()
    say(bed, served, "pause", "a")
    handle = client(bed, "a")
    handle.pwrite(pattern(0, 4096, 8), 0)
    handle.shutdown()
    reader = wait_for_nothing()
    code, text = force("remove")
    assert code == 1 and "its write log still holds" in text and "'forebay disk reset a'" in text, text
    has_ended(reader, ["b"])
    export(bed)
    assert told(bed, served, "reset", "a") == {"a": ("added", None)}
    handle = client(bed, "a")
    assert bytes(handle.pread(4096, 0)) == pattern(0, 4096, 8)
    for at in range(4096, MIB, 4096):
        assert bytes(handle.pread(4096, at)) == pattern(at, 4096, 7), at
    handle.shutdown()
    say(bed, served, "pause", "a")
    handle = client(bed, "a")
    handle.pwrite(pattern(0, 4096, 9), 0)
    handle.shutdown()
    reader = wait_for_nothing()
    force("detach")
    has_ended(reader)
    # Nobody but who asks for it opens it, also where it could be.
    export(bed)
    assert told(bed, served, "set", "b", "--ram", "4MiB")["b"] == ("changed", None)
    served.reload()
    has_ended(reader)
    assert served.server.stop() == 0
    with open(served.server.log_path) as log:
        said = [line for line in log if "ended: everything" in line]
    assert len(said) == 1 and "in the write log of a; start again" in said[0], said
