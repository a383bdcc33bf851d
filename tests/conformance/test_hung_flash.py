"""Flash that hangs, which takes an I/O and never answers: disks on other flash are served, changed and opened all the same."""
import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import threading

from bed import MIB, eventually, pattern, test
from test_block import loop_device
from test_mount import fuse, unmount
from test_primary import nbdkit
from test_reload import Served, client, disk, images
from test_settings import told

BACK = 'mode = "write-back"\nwrite-log = "4MiB"\n'


@contextlib.contextmanager
def flash_that_can_hang(bed):
    """Its path, and what makes it hang for the time of a `with`."""
    server = nbdkit(bed, "file", bed.image("flash.raw", 64 * MIB, "holes"), name="flash")
    process, path = fuse(bed, server)

    @contextlib.contextmanager
    def hang():
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    yield path, hang
    unmount(bed, process, path)


def flash(path, mib=16):
    return 'flash = "%s:%dMiB"\n' % (path, mib)


def command(bed, served, *words, code=0):
    """What it says. It may wait for flash, but not for long."""
    said = bed.run([bed.program, *words, "--control", served.control], code=None, timeout=50)
    assert said.returncode == code, said
    return said.stdout + said.stderr


def ask(served, what, path, body=None):
    """The daemon's own answer: a command would look at the flash itself."""
    with contextlib.closing(http.client.HTTPConnection("localhost", timeout=50)) as asking:
        asking.sock = socket.socket(socket.AF_UNIX)
        asking.sock.settimeout(50)
        asking.sock.connect(served.control)
        asking.request(what, path, body and json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(asking.getresponse().read())


def pools(served):
    """What is told of each, by file name."""
    return {os.path.basename(pool["path"]): pool for pool in ask(served, "GET", "/v1/pools")}


def threads(served):
    return len(os.listdir("/proc/%d/task" % served.server.process.pid))


@test(forebay_only=True)
def it_keeps_no_disk_on_other_flash_from_a_start(bed):
    images(bed, "a", "b", "c")
    with open(bed.path("other"), "ab") as file:
        file.truncate(80 * MIB)
    with flash_that_can_hang(bed) as (path, hang):
        more = '[[pool]]\nname = "fast"\ndevices = ["%s", "%s"]\n' % (path, bed.path("other"))
        disks = [disk(bed, "a", flash(bed.path("pool"))), disk(bed, "b", flash(path)), disk(bed, "c", flash("fast"))]
        with hang():
            served = Served(bed, *disks, more=more)
            said = command(bed, served, "disk", "list")
            assert "b  NOT SERVED" in said and "c  NOT SERVED" in said and said.count("does not answer") == 2, said
            client(bed, "a").shutdown()
        for name in "bc":
            eventually(lambda: os.path.exists(bed.path(name + ".sock")), "disk %s is tried again" % name, seconds=60)
        assert served.server.stop() == 0


@test(forebay_only=True)
def flash_that_a_killed_process_holds_on_to_is_waited_for_where_all_disks_have_it(bed):
    images(bed, "a", "b")
    disks = [disk(bed, name, flash(bed.path("pool"))) for name in "ab"]
    served = Served(bed, *disks)
    assert served.server.stop() == 0
    with open(bed.path("pool"), "r+b") as holder:
        # Who took the lock has died, and the kernel is not done with that.
        taking = os.fork()
        if taking == 0:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os._exit(0)
        assert os.waitpid(taking, 0)[1] == 0
        # Longer than disks on other flash would wait.
        threading.Timer(18, holder.close).start()
        served.server.start()
    assert "NOT SERVED" not in command(bed, served, "disk", "list")
    assert served.server.stop() == 0


@test(forebay_only=True)
def its_pool_is_shown_as_it_was_and_holds_up_nobody(bed):
    images(bed, "a", "b")
    with flash_that_can_hang(bed) as (path, hang):
        served = Served(bed, disk(bed, "a", flash(bed.path("pool"))), disk(bed, "b", flash(path, 4) + BACK),
                        disk(bed, "c", flash(path)),
                        disk(bed, "d", flash(bed.path("pool"))))
        assert [it["name"] for it in pools(served)["disk.img"]["disks"]] == ["b"]
        with hang():
            # The owner of its pool has that locked while it notes how the disk was left.
            detaching = bed.spawn([bed.program, "disk", "detach", "b", "--control", served.control],
                                  stdout=subprocess.DEVNULL)
            silent = eventually(lambda: [it for it in [pools(served)["disk.img"]] if it["faults"]], "it does not answer")
            assert "does not answer" in silent[0]["faults"][0], silent
            assert [it["name"] for it in silent[0]["disks"]] == ["b"], silent
            before = threads(served)
            for _ in range(5):
                found = pools(served)
                assert found["disk.img"]["faults"] and not found["pool"]["faults"], found
            assert threads(served) <= before + 2
            # A decision, and whoever opens a disk there, wait in nobody's turn.
            for words in (["resolve", "c", "--use-log"], ["resolve", "c"], ["open", "c"]):
                assert "does not answer" in command(bed, served, "disk", *words, code=1)
            images(bed, "d")
            command(bed, served, "disk", "open", "d")
            assert told(bed, served, "set", "a", "--mode", "write-around") == {"a": ("changed", None)}
            assert detaching.poll() is None
        assert detaching.wait(50) == 0
        eventually(lambda: not pools(served).get("disk.img", {"faults": []})["faults"], "it answers again")
        images(bed, "c")
        eventually(lambda: os.path.exists(bed.path("c.sock")), "it is tried again", seconds=60)
        assert served.server.stop() == 0


@test(forebay_only=True)
def a_page_that_memory_has_does_not_answer_for_it(bed):
    images(bed, "a")
    with flash_that_can_hang(bed) as (path, hang), loop_device(path) as device:
        served = Served(bed, disk(bed, "a", flash(bed.path("pool"))),
                        disk(bed, "b", flash(device)),
                        disk(bed, "c", flash(bed.path("pool"))))
        with open(device, "rb") as cached, open(path, "rb") as below:
            cached.read(4096)
            os.posix_fadvise(below.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with hang():
                images(bed, "b", "c")
                assert "does not answer" in command(bed, served, "disk", "open", "b", code=1)
                eventually(lambda: os.path.exists(bed.path("c.sock")), "another disk is opened", seconds=60)
        eventually(lambda: os.path.exists(bed.path("b.sock")), "it is tried again", seconds=60)
        assert served.server.stop() == 0


@test(forebay_only=True)
def the_configuration_changes_beside_it(bed):
    images(bed, "a", "b")
    with open(bed.path("other"), "ab") as file:
        file.truncate(80 * MIB)
    with flash_that_can_hang(bed) as (path, hang):
        more = '[[pool]]\nname = "fast"\ndevices = ["%s"]\n' % bed.path("other")
        a, b = disk(bed, "a", flash("fast")), disk(bed, "b", flash("fast"))
        served = Served(bed, a, more=more)
        with hang():
            more = '[[pool]]\nname = "fast"\ndevices = ["%s", "%s"]\n' % (bed.path("other"), path)
            served.write(a, b, more=more)
            changes = served.reload(code=1)
            assert "does not answer" in changes["b"][1], changes
            assert "does not answer" in command(bed, served, "pool", "add-device", "fast", path, code=1)
            drained = ask(served, "POST", "/v1/devices", {"drain": {"device": path}})
            assert "does not answer" in drained["error"], drained
            assert ask(served, "GET", "/v1/disks/a/settings")
            assert told(bed, served, "set", "a", "--mode", "write-around") == {"a": ("changed", None)}
            command(bed, served, "disk", "detach", "a")
            with open(bed.path("other"), "rb") as free:
                # A look at the flash that hangs began while this was open. It keeps nothing of it.
                fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
        eventually(lambda: os.path.exists(bed.path("b.sock")), "the new disk is served", seconds=60)
        assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_that_cannot_note_its_end_there_holds_up_nobody(bed):
    images(bed, "a", "b")
    with flash_that_can_hang(bed) as (path, hang):
        served = Served(bed, disk(bed, "a"), disk(bed, "b", flash(path, 4) + BACK))
        b = client(bed, "b")
        with hang():
            # Nothing is under way on its flash, so it ends at once. How it was left is noted there.
            said = command(bed, served, "disk", "move-shard", "b", code=1)
            assert "does not end" in said, said
            assert told(bed, served, "set", "a", "--mode", "write-around") == {"a": ("changed", None)}
            assert "its clients wait" in command(bed, served, "disk", "show", "b").lower()
        eventually(lambda: "is open again, and its clients go on" in served.events(), "its clients go on", seconds=60)
        b.pwrite(pattern(0, 4096, 1), 0)
        assert bytes(b.pread(4096, 0)) == pattern(0, 4096, 1)
        b.shutdown()
        assert served.server.stop() == 0
