"""Disks of one iSCSI target go to another shard together, and stay together."""
import os
import signal
import threading
import time
import types

import iscsi
from bed import MIB, eventually, free_port, need_program, pattern, test
from test_move_shard import move, move_without_image, server_whose_second_flush_hangs, shards
from test_reload import Load, Served, client, disk
from test_reservations import RESERVE, check, initiator
from test_settings import told
from test_soak import SIZE


@test(forebay_only=True)
def disks_of_a_target_go_together_with_sessions_and_reservations(bed):
    for program in ("fio", "qemu-storage-daemon", "iscsi-ls"):
        need_program(program)
    front = bed.path("front.sock")
    for name in "ab":
        bed.image(name + ".raw", SIZE, "holes")
    bed.image("c.raw", MIB)
    back = 'flash = "%s:16MiB"\nmode = "write-back"\nwrite-log = "4MiB"\n' % bed.path("pool")
    portal = "127.0.0.1:%d" % free_port()
    target = '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\nluns = { 0 = "a", 1 = "b" }\n' % (iscsi.TARGET, portal)
    served = Served(bed, disk(bed, "a", back), disk(bed, "b", back), disk(bed, "c"), more=target)
    at = shards(bed, served.control)
    assert at["a"] == at["b"]
    bed.spawn(["qemu-storage-daemon", "--blockdev", "driver=iscsi,node-name=disk,transport=tcp,portal=%s,target=%s,lun=1"
               % (portal, iscsi.TARGET), "--nbd-server", "addr.type=unix,addr.path=" + front,
               "--export", "type=nbd,id=out,node-name=disk,writable=on"])
    eventually(lambda: os.path.exists(front), "the client listens")
    load = bed.spawn(["fio", "--name=verify", "--ioengine=nbd", "--uri=nbd+unix:///disk?socket=" + front,
                      "--rw=randrw", "--bsrange=4k-64k", "--iodepth=8", "--size=8m", "--verify=crc32c",
                      "--verify_fatal=1", "--verify_backlog=64", "--time_based", "--runtime=1000000",
                      "--output-format=terse"])
    held, holder = client(bed, "a"), initiator(types.SimpleNamespace(said="iscsi://%s/" % portal))
    assert holder.status(RESERVE) == 0
    for round in range(6):
        before = served.stats("b")["counters"]["writes"]
        eventually(lambda: served.stats("b")["counters"]["writes"] > before, "the initiator writes")
        to = 1 - shards(bed, served.control)["a"]
        moved = move(bed, served.control, "ab"[round % 2], "--to", str(to))
        assert sorted(moved["disks"]) == ["a", "b"], moved
        now = shards(bed, served.control)
        assert now == {"a": to, "b": to, "c": at["c"]}, now
        assert load.poll() is None, "fio saw an error"
        check(held, False, False)
        check(client(bed, "a"), False, False)
    load.terminate()
    assert load.wait(60) in (0, 128), load.returncode
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_target_stays_where_it_is_when_one_of_its_disks_cannot_be_opened(bed):
    for name in "ab":
        bed.image(name + ".raw", SIZE)
    back = 'flash = "%s:16MiB"\nmode = "write-back"\nwrite-log = "4MiB"\n' % bed.path("pool")
    portal = "127.0.0.1:%d" % free_port()
    target = '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\nluns = { 0 = "a", 1 = "b" }\n' % (iscsi.TARGET, portal)
    served = Served(bed, disk(bed, "a", back), disk(bed, "b", back), more=target)
    session = initiator(types.SimpleNamespace(said="iscsi://%s/" % portal))
    load, at = Load(client(bed, "a")), shards(bed, served.control)
    for name in "ab":
        # That of the one is on the other shard by then, or is not.
        said = move_without_image(bed, served, name, 1 - at["a"], "b")
        assert "b.raw" in said and "its clients wait" in said, said
        rounds = load.rounds
        eventually(lambda: load.rounds > rounds + 10 or load.error, "the other goes on")
        os.rename(bed.path("away"), bed.path("b.raw"))
        assert bytes(client(bed, "b").pread(4096, 8192)) == pattern(8192, 4096)
        eventually(lambda: served.stats("b").get("primary_trouble") is None, "it is open again")
        assert shards(bed, served.control) == at
        assert session.status([0] * 6) == 0
    for to in (1 - at["a"], at["a"]):
        assert sorted(move(bed, served.control, "a", "--to", str(to))["disks"]) == ["a", "b"]
        assert shards(bed, served.control) == {"a": to, "b": to}
        assert session.status([0] * 6) == 0
        assert bytes(client(bed, "b").pread(4096, 8192)) == pattern(8192, 4096)
    load.stop()
    assert served.server.stop() == 0
    bed.run([bed.program, "pool", "check", bed.path("pool")])


@test(forebay_only=True)
def a_unit_whose_storage_hangs_holds_up_the_others_of_its_target_for_a_while_only(bed):
    bed.image("a.raw", SIZE)
    storage = server_whose_second_flush_hangs(bed, bed.image("b.raw", SIZE))
    portal = "127.0.0.1:%d" % free_port()
    target = '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\nluns = { 0 = "a", 1 = "b" }\n' % (iscsi.TARGET, portal)
    b = disk(bed, "b", 'backend-timeout = "60s"\n', backend=storage.uri)
    served = Served(bed, disk(bed, "a"), b, more=target)
    session, other = initiator(types.SimpleNamespace(said="iscsi://%s/" % portal)), client(bed, "b")
    load, at = Load(client(bed, "a")), shards(bed, served.control)
    # There is something to flush at its end.
    other.pwrite(pattern(0, 4096, 1), 0)
    for name in ("first", "hang"):
        open(bed.path(name), "w").close()
    moving = bed.spawn([bed.program, "disk", "move-shard", "a", "--control", served.control])

    def waits():
        before = load.rounds
        time.sleep(0.5)
        return load.rounds == before or load.error
    eventually(waits, "all wait")
    # It is left to itself, and nothing else waits for it.
    assert moving.wait(50) == 1 and session.status([0] * 6) == 0
    rounds = load.rounds
    eventually(lambda: load.rounds > rounds + 100 or load.error, "the other goes on")
    assert "does not end" in served.events() and served.stats("b")["primary_storage"] == "lost"
    assert told(bed, served, "set", "a", "--ram", "4MiB")["a"] == ("changed", None)
    os.unlink(bed.path("hang"))
    assert bytes(other.pread(4096, 0)) == pattern(0, 4096, 1)
    assert shards(bed, served.control) == at
    # Storage that hangs before is found out before anybody waits.
    storage.process.send_signal(signal.SIGSTOP)
    moving = bed.spawn([bed.program, "disk", "move-shard", "a", "--control", served.control])
    rounds = load.rounds
    assert moving.wait(30) == 1 and load.rounds > rounds + 100 and not load.error
    storage.process.send_signal(signal.SIGCONT)
    assert shards(bed, served.control) == at
    assert sorted(move(bed, served.control, "b")["disks"]) == ["a", "b"]
    assert bytes(other.pread(4096, 0)) == pattern(0, 4096, 1)
    load.stop()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_unit_comes_to_where_sessions_are_after_one_that_left_the_target_moved(bed):
    for name in "abc":
        bed.image(name + ".raw", MIB)
    portal = "127.0.0.1:%d" % free_port()

    def target(luns):
        return '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\nluns = { %s }\n' % (iscsi.TARGET, portal, luns)
    a, b, c = [disk(bed, name) for name in "abc"]
    served = Served(bed, a, b, more=target('0 = "a", 1 = "b"'))
    one = initiator(types.SimpleNamespace(said="iscsi://%s/" % portal))
    assert one.status([0] * 6) == 0
    # It stays, since there are clients, and so does its unit.
    served.write(b, more=target('1 = "b"'))
    kind, error = served.reload(code=1)["a"]
    assert kind == "removed" and "stays as long as clients are attached" in error, (kind, error)
    to = 1 - shards(bed, served.control)["a"]
    assert sorted(move(bed, served.control, "a", "--to", str(to))["disks"]) == ["a", "b"]
    served.write(b, c, more=target('1 = "b", 2 = "c"'))
    assert served.reload(code=1)["c"] == ("added", None)
    assert shards(bed, served.control)["c"] == to
    one.ready(2)
    assert one.status([0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0], read=4096, lun=2) == 0
    one.close()
    assert served.server.stop() == 0


@test(forebay_only=True)
def sessions_with_two_busy_units_log_in_and_out_while_they_move(bed):
    for program in ("fio", "qemu-storage-daemon", "iscsi-ls"):
        need_program(program)
    for name in "ab":
        bed.image(name + ".raw", SIZE, "holes")
    portal = "127.0.0.1:%d" % free_port()
    target = '[[iscsi]]\ntarget = "%s"\nlisten = ["%s"]\nluns = { 0 = "a", 1 = "b" }\n' % (iscsi.TARGET, portal)
    served = Served(bed, disk(bed, "a"), disk(bed, "b"), more=target)
    loads = []
    for lun in (0, 1):
        front = bed.path("front%d.sock" % lun)
        bed.spawn(["qemu-storage-daemon", "--blockdev", "driver=iscsi,node-name=disk,transport=tcp,portal=%s,target=%s,lun=%d"
                   % (portal, iscsi.TARGET, lun), "--nbd-server", "addr.type=unix,addr.path=" + front,
                   "--export", "type=nbd,id=out,node-name=disk,writable=on"])
        eventually(lambda: os.path.exists(front), "the client listens")
        loads.append(bed.spawn(["fio", "--name=verify", "--ioengine=nbd", "--uri=nbd+unix:///disk?socket=" + front,
                                "--rw=randrw", "--bsrange=4k-256k", "--iodepth=8", "--size=8m", "--verify=crc32c",
                                "--verify_fatal=1", "--verify_backlog=64", "--time_based", "--runtime=1000000",
                                "--output-format=terse"]))
    ends, errors, rounds = [], [], []

    def log_in_and_out():
        try:
            while not ends:
                # The same initiator port: each ends the session before.
                one = initiator(types.SimpleNamespace(said="iscsi://%s/" % portal), isid=7)
                assert one.status([0] * 6) == 0
                rounds.append(1)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=log_in_and_out)
    thread.start()
    for round in range(12):
        before = len(rounds)
        assert sorted(move(bed, served.control, "ab"[round % 2])["disks"]) == ["a", "b"]
        eventually(lambda: len(rounds) > before + 3 or errors, "initiators log in")
        assert not errors and all(load.poll() is None for load in loads), errors
    ends.append(1)
    thread.join()
    # One that leaves: the others go on without it.
    loads[0].terminate()
    assert loads[0].wait(60) in (0, 128)
    move(bed, served.control, "b")
    assert loads[1].poll() is None
    loads[1].terminate()
    assert loads[1].wait(60) in (0, 128)
    assert served.server.stop() == 0
