"""What cannot come of opening a disk again is found out before it ends, and leaves everything as it is."""
import os

from bed import eventually, need_program, pattern, test
from test_reload import Served, client, disk
from test_reopen import begin, change, finish
from test_resize import lengthen
from test_settings import settings, told
from test_soak import SIZE


@test(forebay_only=True)
def what_could_not_be_opened_again_is_not_ended(bed):
    served, verifier = begin(bed, "a", 'flash = "%s:24MiB"\nmode = "write-back"\n' % bed.path("pool"))
    lengthen(bed.path("a.raw"), SIZE + 4096)
    for _ in range(2):
        changes = told(bed, served, "set", "a", "--iops-limit", "10", "--block-size", "4KiB", code=1)
        assert "first give 'forebay disk resize a'" in changes["a"][1], changes
        # All of it, or nothing.
        assert settings(bed, served)["iops-limit"]["value"] == "none"
    # Its mode was asked for together with that, and is not taken for itself.
    changes = told(bed, served, "set", "a", "--mode", "write-through", "--block-size", "4KiB", code=1)
    assert "disk resize a" in changes["a"][1] and served.stats("a")["mode"] == "write-back", changes
    bed.run([bed.program, "disk", "resize", "a", "--control", served.control])
    change(bed, served, verifier, block_size="4KiB", iops_limit="5000")
    finish(bed, served, verifier)


@test(forebay_only=True)
def what_no_engine_can_have_is_found_out_before_the_disk_ends(bed):
    served, verifier = begin(bed, "a", 'flash = "%s:24MiB"\nmode = "write-back"\n' % bed.path("pool"))
    eventually(lambda: served.stats("a")["flash"]["slots_used"] > 100, "something is cached on flash")
    for more in (["--dry-run"], []):
        changes = told(bed, served, "set", "a", "--block-size", "4KiB", "--metadata-limit", "64KiB", *more, code=1)
        assert "metadata" in changes["a"][1] and "goes on as it was" not in changes["a"][1], changes
    assert settings(bed, served)["block-size"]["value"] == "8KiB"
    assert "opened again" not in served.events() and served.stats("a")["flash"]["slots_used"] > 100
    # At a start neither.
    finish(bed, served, verifier)
    path = bed.path("forebay.toml")
    with open(path) as f:
        before = f.read()
    with open(path, "w") as f:
        f.write(before.replace('mode = "write-back"', 'mode = "write-back"\nblock-size = "4KiB"\nmetadata-limit = "64KiB"'))
    said = bed.run(served.server.command, code=1)
    with open(path, "w") as f:
        f.write(before)
    served.server.start()
    assert served.stats("a")["ring"]["blocks_kept"] > 100, said
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_whose_pool_could_not_be_written_once_is_not_ended(bed):
    need_program("strace")
    flash = 'flash = "%s:16MiB"\n' % bed.path("pool")
    for name in ("a", "b"):
        bed.image(name + ".raw", SIZE)
    served = Served(bed, disk(bed, "a", flash), disk(bed, "b", flash))
    h = client(bed, "a")
    h.pwrite(pattern(0, 4096, 1), 0)
    # The record of a disk that is detached is written, and then its leases are not. Flash works again after that.
    fails = bed.spawn(["strace", "-qq", "-o", bed.path("strace"), "-P", bed.path("pool"), "-e", "trace=pwritev",
                       "-e", "inject=pwritev:error=EIO:when=2+", "-p", pool_thread(served.server.process.pid)])
    eventually(lambda: is_traced(served.server.process.pid), "it is traced")
    bed.run([bed.program, "disk", "detach", "b", "--control", served.control], code=None)
    eventually(lambda: "cannot be written" in served.events(), "the tables could not be written")
    fails.terminate()
    fails.wait()
    # It could be opened there no more, nor leave, nor be opened there again once it has left.
    for words in (["--block-size", "4KiB"], ["--flash", bed.path("other") + ":16MiB"]):
        why = told(bed, served, "set", "a", *words, code=1)["a"][1]
        assert "could not be written: start Forebay again" in why and "goes on as it was" in why, why
        assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1)
        h.pwrite(pattern(4096, 4096, 2), 4096)
    assert "clients wait" not in served.events()
    h.shutdown()
    served.server.stop()
    # The next start finds the pool whole.
    served.server.start()
    told(bed, served, "set", "a", "--block-size", "4KiB")
    h = client(bed, "a")
    assert bytes(h.pread(8192, 0)) == pattern(0, 4096, 1) + pattern(4096, 4096, 2)
    h.shutdown()
    assert served.server.stop() == 0


def pool_thread(pid):
    tasks = "/proc/%d/task" % pid
    for task in os.listdir(tasks):
        with open("%s/%s/comm" % (tasks, task)) as f:
            if f.read() == "forebay-pool\n":
                return task
    raise AssertionError("no thread has the pool")


def is_traced(pid):
    with open("/proc/%d/task/%s/status" % (pid, pool_thread(pid))) as f:
        return "TracerPid:\t0\n" not in f.read()
