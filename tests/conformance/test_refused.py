"""Disks that a daemon refuses alone: the others are served, and what was wrong is put right while they are."""
import fcntl
import json
import os
import signal
import subprocess
import time

from bed import MIB, eventually, need_program, pattern, test
import nbd
from test_fence import FAR, OWN, SIZE, two_disks, written
from test_primary import nbdkit
from test_write_back import nbdkit_on


def control(bed):
    return ["--control", bed.path("serve.control")]


def disk(bed, *words, code=0):
    return bed.run([bed.program, "disk", *words, *control(bed)], code=code)


def reload(bed, code):
    said = bed.run([bed.program, "reload", *control(bed)], code=None)
    assert code is None or said.returncode == code, said
    return said.stdout + said.stderr


def attach(daemon, name):
    h = nbd.NBD()
    h.connect_uri(daemon.uri_of(name))
    return h


def with_a_refused_disk(bed):
    """Two disks; primary storage of the first one was changed while its log holds 4 KiB."""
    daemon, first, second = two_disks(bed)
    disk(bed, "pause", "first")
    for name in ["first", "second"]:
        h = attach(daemon, name)
        h.pwrite(pattern(OWN, 4096, 1), OWN)
        h.flush()
        h.shutdown()
    assert daemon.stop() == 0
    written(first)
    daemon.start()
    assert "disk first: NOT SERVED" in daemon.said, daemon.said
    return daemon, first, second


def is_served(bed, daemon, image, at_own):
    """The first disk is there as any other: at all its addresses, in lists, and after a restart."""
    for uri in [daemon.uri_of("first"), "nbd+unix:///?socket=" + bed.path("first.sock"), daemon.uri_of("")]:
        h = nbd.NBD()
        h.connect_uri(uri)
        assert bytes(h.pread(4096, OWN)) == at_own, uri
        assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99), uri
        h.shutdown()
    listed = disk(bed, "list")
    assert "NOT SERVED" not in listed and image in listed, listed
    assert "disk first: write-back" in disk(bed, "show", "first")
    h = attach(daemon, "first")
    h.pwrite(pattern(OWN + MIB, 4096, 7), OWN + MIB)
    h.flush()
    h.shutdown()
    disk(bed, "flush", "first")
    with open(image, "rb") as f:
        f.seek(OWN + MIB)
        assert f.read(4096) == pattern(OWN + MIB, 4096, 7)
    assert daemon.stop() == 0
    daemon.start()
    assert "NOT SERVED" not in daemon.said
    assert daemon.log().count("strong evidence") >= 3, daemon.log()
    h = attach(daemon, "first")
    assert bytes(h.pread(4096, OWN)) == at_own
    h.shutdown()


@test(forebay_only=True)
def an_end_tells_what_the_log_of_a_refused_disk_has(bed):
    daemon, _, _ = with_a_refused_disk(bed)
    assert daemon.stop() == 0
    said = daemon.log()
    assert "everything acknowledged of the disks that were served is on primary storage" in said, said
    assert "disk 'first' was not served, and its write log still holds 4 KiB" in said, said


@test(forebay_only=True)
def resolve_decides_while_other_disks_are_served(bed):
    for words, at_own in [(["--use-log"], pattern(OWN, 4096, 1)), (["--discard-log", "4 KiB"], pattern(OWN, 4096))]:
        daemon, first, _ = with_a_refused_disk(bed)
        other = attach(daemon, "second")
        said = disk(bed, "resolve", "first")
        for text in ["was refused: decide", "4 KiB (4096 bytes) dirty in 1 write,", "closed 20", "modified 20",
                     "--discard-log 4KiB", "sidecar of disk 'first'"]:
            assert text in said, "%r is not in: %s" % (text, said)
        # What a refusal tells to type works while this daemon runs.
        shown = disk(bed, "show", "first", code=None)
        listed = disk(bed, "list", "--json")
        resolve = "forebay disk resolve first --control %s " % bed.path("serve.control")
        for text in [resolve + "--use-log", resolve + "--discard-log 4KiB"]:
            assert text in shown.stdout + shown.stderr and text in listed, shown
        assert "--pool" not in listed + shown.stdout + shown.stderr, listed
        shown = json.loads(disk(bed, "resolve", "first", "--json"))
        assert shown["dirty_bytes"] == 4096 and shown["is_unresolved"] and shown["warnings"] == [], shown
        assert disk(bed, "resolve", "first", "--pool", bed.path("pool")) == said, "the pool's name may be given"
        # Without a decision, or with a wrong one, nothing changes.
        for wrong in [["open", "first"], ["resolve", "first", "--discard-log", "5KiB"], ["resolve", "second", "--use-log"],
                      ["resolve", "first", "--discard-log", "a&use_log=true"]]:
            refused = disk(bed, *wrong, code=None)
            assert refused.returncode == 1 and "panicked" not in refused.stderr, refused.stderr
        assert "first  NOT SERVED" in disk(bed, "list")
        other.pwrite(pattern(OWN, 4096, 2), OWN)
        said = disk(bed, "resolve", "first", *words)
        assert "and the disk is served" in said, said
        # The other one's client was never disturbed.
        assert bytes(other.pread(4096, OWN)) == pattern(OWN, 4096, 2)
        other.shutdown()
        events = bed.run([bed.program, "events", "first", *control(bed)])
        assert "an administrator has decided" in events and "the disk is served now" in events, events
        is_served(bed, daemon, first, at_own)
        assert daemon.stop() == 0
        for name in ["pool", "first.raw", "first.raw.forebay", "second.raw", "second.raw.forebay"]:
            os.unlink(bed.path(name))


@test(forebay_only=True)
def a_daemon_that_is_killed_after_a_decision_goes_on_with_it(bed):
    daemon, first, _ = with_a_refused_disk(bed)
    disk(bed, "resolve", "first", "--use-log")
    h = attach(daemon, "first")
    h.pwrite(pattern(OWN + 8192, 4096, 3), OWN + 8192)
    daemon.kill()
    daemon.start()
    h = attach(daemon, "first")
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    assert bytes(h.pread(4096, OWN + 8192)) == pattern(OWN + 8192, 4096, 3)
    h.shutdown()
    assert daemon.stop() == 0


@test(forebay_only=True)
def who_names_no_export_never_gets_another_disk_than_configured(bed):
    daemon, _, _ = with_a_refused_disk(bed)
    try:
        attach(daemon, "")
        assert False, "the first disk is not served, and some other was"
    except nbd.Error as error:
        assert "no export named ''" in str(error), error
    h = attach(daemon, "second")
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    h.shutdown()
    assert daemon.stop() == 0


@test(forebay_only=True)
def other_disks_on_the_pool_write_while_primary_storage_of_one_is_slow(bed):
    need_program("nbdkit")
    image, second = bed.image("first.raw", SIZE), bed.image("second.raw", SIZE)
    primary = nbdkit_on(bed, image)
    config = 'control = "%s"\n' % bed.path("serve.control")
    for name, backend in [("first", primary.uri + "&fence=0s"), ("second", "file:" + second)]:
        config += '[[disk]]\nname = "%s"\nbackend = "%s"\nram = "2MiB"\nmode = "write-back"\n' % (name, backend)
        config += 'flash = "%s:16MiB"\nwrite-log = "4MiB"\n\n' % bed.path("pool")
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("both.sock")
    daemon = bed.serve(config, ["unix:" + bed.path("both.sock")])
    eventually(lambda: "first  16 MiB  write-back" in disk(bed, "list"), "it is in write-back")
    disk(bed, "pause", "first")
    h = attach(daemon, "first")
    h.pwrite(pattern(OWN, 4096, 1), OWN)
    h.flush()
    h.shutdown()
    assert daemon.stop() == 0
    with open(image, "r+b") as f:
        f.seek(512)
        f.write(pattern(512, 4096, 99))
    daemon.start()
    assert "disk first: NOT SERVED" in daemon.said, daemon.said
    assert primary.stop() == 0
    # Its samples take longer than anybody may wait for.
    primary.command += ["--filter=delay", "rdelay=200ms"]
    primary.start()
    other = attach(daemon, "second")
    resolving = bed.spawn([bed.program, "disk", "resolve", "first", "--use-log", *control(bed)])
    began, written_bytes, longest = time.monotonic(), 0, 0.0
    while resolving.poll() is None:
        before = time.monotonic()
        other.pwrite(pattern(written_bytes % SIZE, 65536, 3), written_bytes % SIZE)
        longest = max(longest, time.monotonic() - before)
        written_bytes += 65536
    assert resolving.returncode == 0
    print("%.1f s, %d MiB, longest %.2f s" % (time.monotonic() - began, written_bytes // MIB, longest))
    assert time.monotonic() - began > 5, "it was not slow"
    assert written_bytes > 8 * MIB and longest < 3, (written_bytes, longest)
    h = attach(daemon, "first")
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    h.shutdown()
    other.shutdown()
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_daemon_ends_in_order_while_a_disk_is_decided_about(bed):
    daemon, first, _ = with_a_refused_disk(bed)
    resolving = bed.spawn([bed.program, "disk", "resolve", "first", "--use-log", *control(bed)])
    assert daemon.stop() == 0
    resolving.wait(30)
    daemon.start()
    if "NOT SERVED" in daemon.said:
        disk(bed, "resolve", "first", "--use-log")
    h = attach(daemon, "first")
    assert bytes(h.pread(4096, OWN)) == pattern(OWN, 4096, 1)
    h.shutdown()
    assert daemon.stop() == 0


def locked(path):
    """Somebody else who uses an image."""
    held = open(path, "r+b")
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return held


@test(forebay_only=True)
def what_another_process_uses_refuses_its_disk_alone(bed):
    daemon, first, _ = two_disks(bed)
    for name in ["first", "second"]:
        attach(daemon, name).pwrite(pattern(OWN, 4096, 1), OWN)
    assert daemon.stop() == 0
    with locked(first):
        daemon.start()
        assert "disk first: NOT SERVED" in daemon.said and first in daemon.said, daemon.said
        shown = disk(bed, "show", "first", code=None)
        assert shown.returncode == 1 and "in use by process %d" % os.getpid() in shown.stderr, shown.stderr
        stats = bed.run([bed.program, "stats", "first", *control(bed)], code=None)
        assert stats.returncode == 1 and "in use by process" in stats.stderr, stats.stderr
        assert "the disk is not served" in bed.run([bed.program, "events", "first", *control(bed)])
        assert bytes(attach(daemon, "second").pread(4096, OWN)) == pattern(OWN, 4096, 1)
        again = disk(bed, "open", "first", code=None)
        assert again.returncode == 1 and "in use by process" in again.stderr, again.stderr
    assert "the disk is served" in disk(bed, "open", "first")
    assert bytes(attach(daemon, "first").pread(4096, OWN)) == pattern(OWN, 4096, 1)
    assert disk(bed, "open", "first", code=None).returncode == 1, "it is served already"
    assert daemon.stop() == 0
    # Nothing can be served: that is the end, as before.
    with locked(first), locked(bed.path("second.raw")):
        result = bed.run(daemon.command, code=None, timeout=60)
        assert result.returncode == 1 and "in use by process" in result.stderr, result.stderr


@test(forebay_only=True, timeout=120)
def what_cannot_be_opened_at_the_start_keeps_no_other_disk_and_is_tried_again(bed):
    daemon, first, second = two_disks(bed)
    h = attach(daemon, "first")
    h.pwrite(pattern(OWN, 4096, 1), OWN)
    h.flush()
    h.shutdown()
    assert daemon.stop() == 0
    os.rename(first, first + ".away")
    daemon.start()
    assert "disk first: NOT SERVED" in daemon.said, daemon.said
    attach(daemon, "second").pread(4096, OWN)
    listed = json.loads(bed.run([bed.program, "disk", "list", "--json", *control(bed)], code=None).stdout.splitlines()[-1])
    assert "No such file" in str(listed), listed
    os.rename(first + ".away", first)
    eventually(lambda: "NOT SERVED" not in disk(bed, "list"), "it is served by itself", 30)
    assert bytes(attach(daemon, "first").pread(4096, OWN)) == pattern(OWN, 4096, 1)


@test(forebay_only=True)
def an_export_or_a_pool_that_another_process_uses_refuses_its_disks_alone(bed):
    image, pooled = bed.image("first.raw", SIZE), bed.image("pooled.raw", SIZE)
    primary = nbdkit_on(bed, image)
    other = bed.disk(primary.uri, name="other", flash=bed.path("pool") + ":16MiB")
    config = 'control = "%s"\n' % bed.path("serve.control")
    for name, backend, more in [("export", primary.uri, ""), ("memory", "mem:16MiB", ""),
                                ("pooled", "file:" + pooled, 'flash = "%s:16MiB"\n' % bed.path("pool"))]:
        config += '[[disk]]\nname = "%s"\nbackend = "%s"\nram = "2MiB"\n%s\n' % (name, backend, more)
    daemon = bed.serve(config + '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("all.sock"), ["unix:" + bed.path("all.sock")])
    assert "disk export: NOT SERVED" in daemon.said and "served already" in daemon.said, daemon.said
    assert "disk pooled: NOT SERVED" in daemon.said and bed.path("pool") in daemon.said, daemon.said
    assert attach(daemon, "memory").get_size() == SIZE
    pooled = disk(bed, "open", "pooled", code=None)
    assert pooled.returncode == 1 and "Ask again when it is free" in pooled.stderr, pooled.stderr
    assert other.stop() == 0
    for name in ("export", "pooled"):
        disk(bed, "open", name)
        assert attach(daemon, name).get_size() == SIZE
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_disk_that_is_served_later_is_a_unit_and_a_device_too(bed):
    need_program("iscsi-ls")
    first, second = bed.image("first.raw", SIZE), bed.image("second.raw", SIZE)
    alone = bed.image("alone.raw", SIZE)
    config = 'control = "%s"\n' % bed.path("serve.control")
    for name, image, more in [("first", first, 'vhost-user = "%s"\n' % bed.path("first.vhost")),
                              ("second", second, ""), ("alone", alone, "")]:
        config += '[[disk]]\nname = "%s"\nbackend = "file:%s"\nram = "2MiB"\n%s\n' % (name, image, more)
    target = "iqn.2026-01.test:%s"
    for name, disks in [("both", '["first", "second"]'), ("alone", '["alone"]')]:
        config += '[[iscsi]]\ntarget = "%s"\nlisten = ["127.0.0.1:0"]\ndisks = %s\n' % (target % name, disks)
    with locked(first), locked(alone):
        daemon = bed.serve(config, ["unix:" + bed.path("none")])
        info = json.loads(subprocess.run(
            ["curl", "-s", "--unix-socket", bed.path("serve.control"), "http://x/v1/daemon"],
            check=True, capture_output=True).stdout)
        portal = info["listeners"][0]["address"].removeprefix("iscsi:")
        listed = bed.run(["iscsi-ls", "-s", "iscsi://%s/" % portal])
        assert "Lun:1" in listed and "Lun:0" not in listed and target % "alone" not in listed, listed
        assert not os.path.exists(bed.path("first.vhost"))
    disk(bed, "open", "first")
    disk(bed, "open", "alone")
    listed = bed.run(["iscsi-ls", "-s", "iscsi://%s/" % portal])
    assert "Lun:0" in listed and "Lun:1" in listed and target % "alone" in listed, listed
    assert os.path.exists(bed.path("first.vhost"))
    assert "iscsi:" + portal in disk(bed, "list", "--json").splitlines()[0], "it is found there"
    assert daemon.stop() == 0
    assert not os.path.exists(bed.path("first.vhost"))


@test(forebay_only=True)
def a_refused_disk_that_is_removed_leaves_what_its_log_has_and_that_is_told(bed):
    daemon, _, _ = with_a_refused_disk(bed)
    said = disk(bed, "remove", "first")
    assert "still holds 4 KiB that primary storage does not have" in said and "reset first" in said, said
    assert "still holds 4 KiB" in bed.run([bed.program, "events", *control(bed)])
    # Nothing of it is lost: put back, it waits for the same decision.
    said = bed.run([bed.program, "disk", "reset", "first", *control(bed)], code=1)
    assert "NOT DONE" in said, said
    assert daemon.stop() == 0
    bed.run([bed.program, "disk", "resolve", "first", "--use-log", "--pool", bed.path("pool")])


@test(forebay_only=True)
def a_reload_that_drops_a_refused_disk_tells_what_its_log_has(bed):
    daemon, _, _ = with_a_refused_disk(bed)
    config = bed.path("forebay.toml")
    with open(config) as f:
        before = f.read()
    start = before.index('[[disk]]\nname = "first"')
    end = before.index("[[disk]]", start + 1)
    for logs in (True, False):
        if not logs:
            # Without its log it still has that in the pool.
            assert daemon.stop() == 0
            lines = before[start:end].splitlines(True)
            with open(config, "w") as f:
                kept = [line for line in lines if not line.startswith(("mode", "write-log"))]
                f.write(before[:start] + "".join(kept) + before[end:])
            daemon.start()
        assert "first  NOT SERVED" in disk(bed, "list")
        with open(config, "w") as f:
            f.write(before[:start] + before[end:])
        said = reload(bed, code=1)
        assert "first" in said and "still holds 4 KiB that primary storage does not have" in said, said
        assert "still holds 4 KiB" in bed.run([bed.program, "events", *control(bed)])
        assert "first" not in disk(bed, "list")
        with open(config, "w") as f:
            f.write(before)
        reload(bed, code=None)
        assert "first  NOT SERVED" in disk(bed, "list")
    assert daemon.stop() == 0
    bed.run([bed.program, "disk", "resolve", "first", "--use-log", "--pool", bed.path("pool")])


@test(forebay_only=True)
def a_refused_disk_that_was_removed_comes_back_to_be_decided_about(bed):
    daemon, first, _ = with_a_refused_disk(bed)
    disk(bed, "remove", "first")
    resolve = "forebay disk resolve first --control %s --use-log" % bed.path("serve.control")
    for words in (["reset", "first"], ["open", "first"]):
        refused = disk(bed, *words, code=None)
        said = refused.stdout + refused.stderr
        assert refused.returncode == 1 and resolve in said and "--pool" not in said, said
    assert "first  NOT SERVED" in disk(bed, "list")
    assert "and the disk is served" in disk(bed, "resolve", "first", "--use-log")
    is_served(bed, daemon, first, pattern(OWN, 4096, 1))
    assert daemon.stop() == 0


@test(forebay_only=True)
def a_command_about_one_disk_does_not_wait_for_storage_of_others(bed):
    primaries = [nbdkit(bed, "file", bed.image(name + ".raw", MIB), name=name) for name in "abc"]
    backends = dict(zip("abc", [primary.uri for primary in primaries])) | {"d": "file:" + bed.image("d.raw", MIB)}
    text = 'control = "%s"\nshards = 1\n' % bed.path("serve.control") + "".join(
        '[[disk]]\nname = "%s"\nbackend = "%s"\nram = "1MiB"\nnbd = ["unix:%s"]\n' % (
            name, backend, bed.path(name + ".nbd")) for name, backend in backends.items())
    for primary in primaries:
        primary.process.send_signal(signal.SIGSTOP)
    server = bed.serve(text, ["unix:" + bed.path("d.nbd")])
    # Another try to open one of them may be under way, and waits for 10 s.
    bed.run([bed.program, "disk", "set", "d", "--iops-limit", "5000", "--control", bed.path("serve.control")], timeout=18)
    for primary in primaries:
        primary.process.send_signal(signal.SIGCONT)
    assert server.stop() == 0
