"""A disk goes to another shard, and its clients with it: they wait for a moment, and nothing else."""
import json
import os
import random
import socket
import threading
import time

import nbd
import nbdraw
import test_vhost
from bed import MIB, eventually, pattern, test
from test_block import loop_device
from test_primary import nbdkit
from test_reload import Load, Served, client, disk, images
from test_reopen import begin, finish
from test_settings import told
from test_soak import SIZE


def move(bed, control, name, *to, code=0):
    """Moves a disk: what the command says."""
    command = [bed.program, "disk", "move-shard", name, *to, "--json", "--control", control]
    said = bed.run(command, code=None)
    assert said.returncode == code, said
    return json.loads(said.stdout) if code == 0 else said.stderr


def shards(bed, control):
    """The shard of each disk."""
    lines = bed.run([bed.program, "disk", "list", "--json", "--control", control]).splitlines()
    return {each["name"]: each["shard"] for each in map(json.loads, lines)}


def move_without_image(bed, served, name, to, image):
    """What a move says that does not find the image of a disk, which is away then."""
    while True:
        os.rename(bed.path(image + ".raw"), bed.path("away"))
        said = move(bed, served.control, name, "--to", str(to), code=1)
        if "the image is not at" not in said:
            return said
        # Forebay had seen it before the move began, and is to see it come back.
        os.rename(bed.path("away"), bed.path(image + ".raw"))
        eventually(lambda: served.stats(image)["storage_changed"] is None, "the image is there again")


def goes_on(verifier):
    before = verifier.reads
    eventually(lambda: verifier.reads > before + 100 or verifier.error, "requests are answered")
    assert verifier.error is None, verifier.error


@test(forebay_only=True)
def a_write_back_disk_goes_to_another_shard_under_load(bed):
    more = 'flash = "%s:32MiB"\nmode = "write-back"\nwrite-log = "8MiB"\n' % bed.path("pool")
    served, verifier = begin(bed, "a", more)
    waited = []
    for round in range(10):
        at = shards(bed, served.control)["a"]
        goes_on(verifier)
        moved = move(bed, served.control, "a", "--to", str(1 - at))
        assert (moved["disks"], moved["from"], moved["to"]) == (["a"], at, 1 - at), moved
        waited.append(moved["waited_ms"])
        goes_on(verifier)
        assert shards(bed, served.control)["a"] == 1 - at
        stats = served.stats("a")
        assert stats["connections"] == 1 and stats["mode_actual"] == "write-back", stats
        eventually(lambda: served.stats("a")["ram"]["slots_ready"] == stats["ram"]["slots"], "its RAM cache is there")
    print("clients waited for %s ms" % waited)
    said = bed.run([bed.program, "disk", "move-shard", "a", "--to", str(1 - at), "--control", served.control])
    assert "it is on shard %d already" % (1 - at) in said, said
    assert "went from shard 0 to shard 1; its clients waited for" in served.events()
    assert served.stats("a")["ring"]["blocks_kept"] > 0, "what is cached on flash stays"
    finish(bed, served, verifier)


@test(forebay_only=True)
def what_cannot_be_moved_is_told(bed):
    for name in "ab":
        bed.image(name + ".raw", MIB)
    served = Served(bed, disk(bed, "a"), disk(bed, "b"), disk(bed, "m", backend="mem:1MiB"))
    handle = client(bed, "m")
    handle.pwrite(pattern(0, 4096, 1), 0)
    to = str(1 - shards(bed, served.control)["m"])
    assert "its primary storage is memory" in move(bed, served.control, "m", "--to", to, code=1)
    assert bytes(handle.pread(4096, 0)) == pattern(0, 4096, 1)
    handle.shutdown()
    bed.run([bed.program, "disk", "remove", "m", "--control", served.control])
    assert "there is no shard 2: there are 0 to 1" in move(bed, served.control, "a", "--to", "2", code=1)
    assert "no disk 'c'" in move(bed, served.control, "c", code=1)
    # Without a shard it goes where there are fewest disks.
    assert move(bed, served.control, "b", "--to", "0")["to"] == 0
    assert move(bed, served.control, "b")["to"] == 1
    assert served.server.stop() == 0
    server = bed.serve('control = "%s"\nshards = 1\n' % served.control + disk(bed, "a"), ["unix:" + bed.path("a.sock")])
    assert "there is one shard only" in move(bed, served.control, "a", code=1)
    assert server.stop() == 0


@test(forebay_only=True)
def clients_of_all_kinds_come_and_go_while_a_disk_moves(bed):
    bed.image("a.raw", MIB)
    served, ends, errors, sessions = Served(bed, disk(bed, "a")), [], [], []

    def come_and_go():
        try:
            while not ends:
                handle = client(bed, "a")
                for at in range(0, 65536, 4096):
                    assert bytes(handle.pread(4096, at)) == pattern(at, 4096)
                handle.shutdown()
                sessions.append(1)
        except (nbd.Error, AssertionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    # One that never asks anything, and one in the middle of a request.
    silent = client(bed, "a")
    with socket.socket(socket.AF_UNIX) as half:
        half.connect(bed.path("a.sock"))
        nbdraw.go(half, "a")
        request = nbdraw.request(nbdraw.READ, 8192, 4096)
        for each in threads:
            each.start()
        for round in range(20):
            before = len(sessions)
            half.sendall(request[:11])
            move(bed, served.control, "a", "--to", str((round + 1) % 2))
            half.sendall(request[11:])
            assert nbdraw.simple_reply(half, 4096) == (0, 1, pattern(8192, 4096))
            eventually(lambda: len(sessions) > before + 4 or errors, "clients come and go")
    ends.append(1)
    for each in threads:
        each.join()
    assert not errors, errors
    assert bytes(silent.pread(4096, 4096)) == pattern(4096, 4096)
    silent.shutdown()
    eventually(lambda: served.stats("a")["connections"] == 0, "all have gone")
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_that_cannot_be_opened_there_goes_on_where_it_was(bed):
    more = 'flash = "%s:24MiB"\nmode = "write-back"\n' % bed.path("pool")
    served, verifier = begin(bed, "a", more)
    goes_on(verifier)
    at = shards(bed, served.control)["a"]
    said = move_without_image(bed, served, "a", 1 - at, "a")
    assert "No such file" in said and "its clients wait" in said and "it is on shard %d as before" % at in said, said
    assert "its clients wait" in served.stats("a")["primary_trouble"]
    waiting = verifier.settle()
    assert "its clients wait" in move(bed, served.control, "a", code=1)
    assert verifier.settle() == waiting and verifier.error is None
    os.rename(bed.path("away"), bed.path("a.raw"))
    goes_on(verifier)
    assert shards(bed, served.control)["a"] == at
    assert move(bed, served.control, "a", "--to", str(1 - at))["to"] == 1 - at
    goes_on(verifier)
    # The daemon ends meanwhile: the next one has everything.
    verifier.stop = True
    verifier.thread.join(60)
    os.rename(bed.path("a.raw"), bed.path("away"))
    move(bed, served.control, "a", code=1)
    served.server.stop()
    os.rename(bed.path("away"), bed.path("a.raw"))
    served.server.start()
    finish(bed, served, verifier)


@test(forebay_only=True)
def a_kill_or_an_end_while_a_disk_moves_loses_nothing(bed):
    for name in "ab":
        bed.image(name + ".raw", SIZE)
    more = 'mode = "write-back"\nwrite-log = "4MiB"\nflash = "%s:16MiB"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", more), disk(bed, "b", more))
    chance = random.Random(7)
    for version in range(1, 13):
        handles = {name: client(bed, name) for name in "ab"}
        for handle in handles.values():
            for at in range(0, 2 * MIB, 32768):
                handle.pwrite(pattern(at, 32768, version), at)
        to = {name: str(1 - at) for name, at in shards(bed, served.control).items()}
        moving = [bed.spawn([bed.program, "disk", "move-shard", name, "--to", to[name], "--control", served.control])
                  for name in "ab"]
        time.sleep(chance.uniform(0, 0.25))
        if version % 3:
            served.server.kill()
        else:
            assert served.server.stop() == 0
        for each in moving:
            each.wait(30)
        served.server.start()
        for name in "ab":
            handle = client(bed, name)
            for at in range(0, SIZE, 32768):
                expected = pattern(at, 32768, version if at < 2 * MIB else 0)
                assert bytes(handle.pread(32768, at)) == expected, (name, version, at)
            handle.shutdown()
    assert served.server.stop() == 0
    bed.run([bed.program, "pool", "check", bed.path("pool")])


@test(forebay_only=True)
def a_hypervisors_device_goes_to_another_shard_under_load(bed):
    bed.image("a.raw", 64 * MIB, "holes")
    more = 'vhost-user = "%s"\nqueues = 2\nflash = "%s:32MiB"\n' % (bed.path("disk.vhost"), bed.path("pool"))
    for wait in ("block", "poll"):
        served = Served(bed, disk(bed, "a", more))
        load = bed.spawn([test_vhost.CLIENT, "vhost", "--socket", bed.path("disk.vhost"), "--queues", "2", "--depth", "8",
                          "--wait", wait, "--seconds", "4", "--warm-up", "0", "--write", "--overwrite"])
        writes = lambda: served.stats("a")["counters"]["writes"]
        eventually(lambda: writes() > 0, "the guest writes")
        for round in range(10):
            move(bed, served.control, "a", "--to", str((round + 1) % 2))
            # On a busy machine its time is over before all rounds were had.
            eventually(lambda: writes() > 0 or load.poll() is not None, "the guest writes")
            if load.poll() is not None:
                break
        assert load.wait(60) == 0 and round > 0
        test_vhost.client(bed, "--check", "--queues", "2", "--wait", wait)
        assert served.server.stop() == 0


@test(forebay_only=True)
def a_client_that_does_not_read_its_answers_holds_up_nobody_for_long(bed):
    bed.image("a.raw", 32 * MIB, "random")
    served, other = Served(bed, disk(bed, "a")), client(bed, "a")
    with open(bed.path("a.raw"), "rb") as f:
        content = f.read()
    with socket.socket(socket.AF_UNIX) as lazy:
        lazy.connect(bed.path("a.sock"))
        nbdraw.go(lazy, "a")
        for at in range(4):
            lazy.sendall(nbdraw.request(nbdraw.READ, at * 4 * MIB, 4 * MIB, at))
        assert bytes(other.pread(4096, 0)) == content[:4096]
        # What lies in memory of the disk is copied after a second.
        for to in "101":
            assert move(bed, served.control, "a", "--to", to)["waited_ms"] < 5000
            assert bytes(other.pread(4096, 0)) == content[:4096]
        for at in range(4):
            start = at * 4 * MIB
            assert nbdraw.simple_reply(lazy, 4 * MIB) == (0, at, content[start:start + 4 * MIB])
    other.shutdown()
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_guest_that_ends_while_its_disk_moves_is_let_go(bed):
    bed.image("a.raw", 64 * MIB, "holes")
    more = 'vhost-user = "%s"\nqueues = 2\nflash = "%s:32MiB"\n' % (bed.path("disk.vhost"), bed.path("pool"))
    served, chance = Served(bed, disk(bed, "a", more)), random.Random(3)
    other = client(bed, "a")
    for round in range(12):
        load = bed.spawn([test_vhost.CLIENT, "vhost", "--socket", bed.path("disk.vhost"), "--queues", "2", "--depth", "8",
                          "--wait", "block", "--seconds", "60", "--warm-up", "0", "--write", "--overwrite"])
        writes = lambda: served.stats("a")["counters"]["writes"]
        before = writes()
        eventually(lambda: writes() > before, "the guest writes")
        moving = bed.spawn([bed.program, "disk", "move-shard", "a", "--control", served.control])
        time.sleep(chance.uniform(0, 0.15))
        load.kill()
        load.wait()
        assert moving.wait(30) == 0
        assert len(other.pread(4096, 0)) == 4096
    other.shutdown()
    eventually(lambda: served.stats("a")["connections"] == 0, "all have gone")
    assert served.server.stop() == 0


def server_whose_second_flush_hangs(bed, image):
    """Of those that come while the file `hang` is there. The first one is the look whether it answers."""
    at = {"at": bed.directory, "image": image}
    flush = "mv %(at)s/first %(at)s/was 2>/dev/null || while [ -e %(at)s/hang ]; do sleep 0.05; done" % at
    dd = "dd bs=512 status=none"
    return nbdkit(bed, "-t", "8", "eval", "thread_model=echo parallel", "get_size=echo %d" % SIZE, "can_write=exit 0",
                  "can_flush=exit 0", "flush=" + flush,
                  "pread=%s if=%s skip=$(($4/512)) count=$(($3/512))" % (dd, image),
                  "pwrite=cat >%s/w.$$; %s if=%s/w.$$ of=%s seek=$(($4/512)) conv=notrunc; rm %s/w.$$" % (
                      bed.directory, dd, bed.directory, image, bed.directory), name="storage")


@test(forebay_only=True)
def a_disk_that_does_not_end_to_be_opened_again_holds_up_no_change_of_others(bed):
    bed.image("a.raw", SIZE)
    storage = server_whose_second_flush_hangs(bed, bed.image("b.raw", SIZE))
    b = disk(bed, "b", 'backend-timeout = "120s"\n', backend=storage.uri)
    served = Served(bed, disk(bed, "a"), b)
    other = client(bed, "b")
    while True:
        other.pwrite(pattern(0, 4096, 1), 0)
        for name in ("first", "hang"):
            open(bed.path(name), "w").close()
        changes = told(bed, served, "set", "b", "--block-size", "4KiB", code=1)
        if "has not answered a flush" not in changes["b"][1]:
            break
        # A flush of the disk's own was the first one, and the look whether it answers the second.
        os.unlink(bed.path("hang"))
    assert "does not end" in changes["b"][1] and "clients wait" in changes["b"][1], changes
    assert "does not end" in served.stats("b")["primary_trouble"]
    began = time.monotonic()
    assert told(bed, served, "set", "a", "--block-size", "4KiB") == {"a": ("opened-again", None)}
    assert move(bed, served.control, "a")["disks"] == ["a"]
    assert time.monotonic() - began < 20
    os.unlink(bed.path("hang"))
    assert bytes(other.pread(4096, 0)) == pattern(0, 4096, 1), "it goes on as it was"
    eventually(lambda: served.stats("b").get("primary_trouble") is None, "nobody waits any more")
    assert told(bed, served, "set", "b", "--block-size", "4KiB") == {"b": ("opened-again", None)}
    other.pwrite(pattern(0, 4096, 2), 0)
    assert bytes(other.pread(4096, 0)) == pattern(0, 4096, 2)
    assert served.server.stop() == 0


@test(forebay_only=True)
def disks_are_changed_added_and_detached_while_others_move(bed):
    for name in "abc":
        bed.image(name + ".raw", SIZE)
    back = 'mode = "write-back"\nwrite-log = "4MiB"\nflash = "%s:16MiB"\n' % bed.path("pool")
    a, b, c = disk(bed, "a", back), disk(bed, "b"), disk(bed, "c")
    served, ends, errors, moved = Served(bed, a, b), [], [], []

    def keep_moving():
        try:
            while not ends:
                for name in "ab":
                    moved.append(move(bed, served.control, name)["waited_ms"])
        except AssertionError as error:
            errors.append(error)

    loads = [Load(client(bed, name)) for name in "ab"]
    thread = threading.Thread(target=keep_moving)
    thread.start()
    for round in range(6):
        assert told(bed, served, "set", "a", "--block-size", ("4KiB", "8KiB")[round % 2]) == {"a": ("opened-again", None)}
        told(bed, served, "set", "b", "--ram", ("4MiB", "8MiB")[round % 2])
        served.write(a, b, c)
        assert served.reload()["c"] == ("added", None)
        handle = client(bed, "c")
        assert bytes(handle.pread(4096, 4096)) == pattern(4096, 4096)
        handle.shutdown()
        eventually(lambda: served.stats("c")["connections"] == 0, "it has gone")
        served.write(a, b)
        assert served.reload()["c"] == ("removed", None)
        said = bed.run([bed.program, "disk", "detach", "a", "--control", served.control], code=None)
        assert said.returncode == 1, "it has a client"
        bed.run([bed.program, "disk", "flush", "a", "--control", served.control])
    ends.append(1)
    thread.join()
    for load in loads:
        load.stop()
        load.handle.shutdown()
    assert not errors and len(moved) > 6, (errors, moved)
    eventually(lambda: all(served.stats(name)["connections"] == 0 for name in "ab"), "all have gone")
    for name in "ab":
        bed.run([bed.program, "disk", "detach", name, "--control", served.control])
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_on_a_loop_device_goes_to_another_shard_and_is_opened_again(bed):
    # Forebay locks the device, and the file behind it.
    with loop_device(bed.image("a.raw", 8 * MIB)) as device:
        served = Served(bed, disk(bed, "a", backend="block:" + device))
        a = client(bed, "a")
        at = shards(bed, served.control)["a"]
        for round in range(3):
            moved = move(bed, served.control, "a", "--to", str((at + 1 + round) % 2))
            assert moved["waited_ms"] < 5000, moved
            a.pwrite(pattern(0, 4096, round), 0)
            block = ["--block-size", ("64KiB", "16KiB")[round % 2]]
            assert told(bed, served, "set", "a", *block) == {"a": ("opened-again", None)}
            assert bytes(a.pread(4096, 0)) == pattern(0, 4096, round)
        a.shutdown()
        assert served.server.stop() == 0


@test(forebay_only=True)
def a_disk_at_its_limit_goes_to_another_shard(bed):
    images(bed, "a")
    served = Served(bed, disk(bed, "a", 'bandwidth-limit = "4KiB"\n'))
    handle = client(bed, "a")
    handle.pread(16384, 0)
    buffers, answered = [nbd.Buffer(16384) for _ in range(32)], []
    for at, buffer in enumerate(buffers):
        handle.aio_pread(buffer, at * 16384, completion=lambda error: answered.append(error.value) or 1)
    eventually(lambda: served.stats("a")["counters"]["requests_limited"] == 32, "all wait for the limit")
    at = shards(bed, served.control)["a"]
    assert move(bed, served.control, "a", "--to", str(1 - at))["to"] == 1 - at
    while len(answered) < 32:
        handle.poll(1000)
    assert answered == [0] * 32, answered
    assert served.server.stop() == 0
