"""Primary storage that is an NBD export: of nbdkit, of qemu-nbd, killed and restarted under load."""
import os
import signal
import socket
import threading
import time

from bed import MIB, eventually, free_port, need_program, pattern, test
import nbd
from test_crash import Recorder


def nbdkit(bed, *arguments, name="primary"):
    listen = bed.path(name + ".sock")
    return bed.other(name, ["nbdkit", "-f", "-U", listen, *arguments], "unix:" + listen)


def qemu_nbd(bed, image, form="raw", name="primary"):
    need_program("qemu-nbd")
    listen = bed.path(name + ".sock")
    command = ["qemu-nbd", "-t", "-f", form, "-e", "8", "-k", listen, "--discard=unmap", image]
    return bed.other(name, command, "unix:" + listen)


def verify(bed, disk, size="48m"):
    need_program("fio")
    bed.run(["fio", "--name=verify", "--ioengine=nbd", "--uri=" + disk.uri, "--rw=randrw", "--bs=4k",
             "--iodepth=32", "--size=" + size, "--verify=crc32c", "--verify_fatal=1",
             "--verify_backlog=512", "--output-format=terse"])


@test(forebay_only=True)
def fio_verifies_over_nbdkit(bed):
    primary = nbdkit(bed, "memory", "64M")
    verify(bed, bed.disk(primary.uri, ram="8MiB"))


@test(forebay_only=True)
def fio_verifies_over_nbdkit_on_tcp(bed):
    port = free_port()
    primary = bed.other("primary", ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(port), "memory", "64M"],
                        "127.0.0.1:%d" % port)
    verify(bed, bed.disk("nbd://127.0.0.1:%d/" % port, ram="8MiB"))
    assert primary.process.poll() is None


@test(forebay_only=True)
def fio_verifies_over_qcow2_behind_qemu_nbd(bed):
    need_program("qemu-nbd")
    image = bed.path("disk.qcow2")
    bed.run(["qemu-img", "create", "-f", "qcow2", image, "64M"])
    primary = qemu_nbd(bed, image, "qcow2")
    disk = bed.disk(primary.uri, ram="8MiB", flash=bed.path("flash") + ":32MiB")
    verify(bed, disk)
    bed.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", disk.uri, primary.uri])


@test(forebay_only=True)
def holes_of_primary_storage_show_through(bed):
    image = bed.image("disk.raw", 8 * MIB, "holes")
    with open(image, "r+b") as f:
        f.seek(2 * MIB)
        f.write(pattern(2 * MIB, MIB))
    disk = bed.disk(nbdkit(bed, "file", image).uri)
    out = bed.run(["nbdinfo", "--map", "--totals", disk.uri])
    assert "%d" % MIB in out and "hole" in out, out


@test(forebay_only=True)
def requests_larger_than_primary_storage_takes_are_split(bed):
    primary = nbdkit(bed, "--filter=blocksize-policy", "memory", "64M", "blocksize-maximum=256K",
                     "blocksize-error-policy=error")
    disk = bed.disk(primary.uri, ram="16MiB")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    data = bed.random.randbytes(8 * MIB)
    h.pwrite(data, 512)
    assert bytes(h.pread(8 * MIB, 512)) == data


@test(forebay_only=True)
def an_error_of_primary_storage_is_an_error_of_that_request(bed):
    trigger = bed.path("fail")
    primary = nbdkit(bed, "--filter=error", "memory", "64M", "error-pread=EIO", "error-pread-rate=100%",
                     "error-file=" + trigger)
    disk = bed.disk(primary.uri)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pread(4096, 0)
    open(trigger, "w").close()
    try:
        h.pread(4096, MIB)
        raise AssertionError("an error was expected")
    except nbd.Error as error:
        assert error.errnum == 5
    assert bytes(h.pread(4096, 0)) == bytes(4096), "what is cached is served"
    os.unlink(trigger)
    assert bytes(h.pread(4096, MIB)) == bytes(4096)


def restart_under_load(bed, make, image):
    primary = make()
    disk = bed.disk(primary.uri, ram="2MiB")
    recorder = Recorder(disk, bed.random, 4 * MIB // 4096)
    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    for _ in range(3):
        goal = recorder.version + 1500
        eventually(lambda: recorder.version > goal, "1500 more writes")
        primary.restart()
    goal = recorder.version + 1500
    eventually(lambda: recorder.version > goal, "writes go on after the restart")
    recorder.stop = True
    thread.join(40)
    assert not thread.is_alive(), "the last requests were not answered"
    assert recorder.sessions == 1, "the client lost its connection"
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    recorder.check(lambda at, length: bytes(h.pread(length, at)))
    with open(image, "rb") as f:
        def read(at, length):
            f.seek(at)
            return f.read(length)
        recorder.check(read)


@test(forebay_only=True)
def nbdkit_killed_and_restarted_under_load_loses_nothing(bed):
    image = bed.image("disk.raw", 4 * MIB)
    restart_under_load(bed, lambda: nbdkit(bed, "file", image), image)


@test(forebay_only=True)
def qemu_nbd_killed_and_restarted_under_load_loses_nothing(bed):
    image = bed.image("disk.raw", 4 * MIB)
    restart_under_load(bed, lambda: qemu_nbd(bed, image), image)


@test(forebay_only=True)
def a_flush_after_a_lost_session_fails_once(bed):
    image = bed.image("disk.raw", 4 * MIB)
    primary = nbdkit(bed, "file", image)
    disk = bed.disk(primary.uri)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, 4096, 1), 0)
    primary.restart()
    # The new session is up once a read that no cache has comes back.
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096)
    try:
        h.flush()
        raise AssertionError("the write was on a session that is gone; the flush must not promise it")
    except nbd.Error as error:
        assert error.errnum == 5, error
    h.pwrite(pattern(0, 4096, 2), 0)
    h.flush()
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 2)


def flush_fails(h):
    try:
        h.flush()
        return False
    except nbd.Error as error:
        assert error.errnum == 5, error
        return True


@test(forebay_only=True)
def a_loss_that_no_flush_has_told_is_told_after_a_kill(bed):
    for flash in [None, bed.path("pool") + ":16MiB"]:
        image = bed.image("disk.raw", 4 * MIB)
        primary = nbdkit(bed, "file", image)
        disk = bed.disk(primary.uri + "&fence=0s", flash=flash)

        def attach():
            h = nbd.NBD()
            h.connect_uri(disk.uri)
            return h
        h = attach()
        h.pwrite(pattern(0, 4096, 1), 0)
        primary.restart()
        # The new session is up once a read that no cache has comes back. Then the process is killed, and its guest lives on.
        assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096)
        disk.restart()
        assert "could tell" in disk.log(), disk.log()
        assert flush_fails(attach()), "the guest was never told that its write may be gone"
        # Whether that answer has arrived nobody knows: the next run tells again.
        disk.restart()
        h = attach()
        assert flush_fails(h)
        h.flush()
        disk.restart()
        attach().flush()
        # An end in order keeps it as well.
        h = attach()
        h.pwrite(pattern(0, 4096, 2), 0)
        primary.restart()
        assert bytes(h.pread(4096, 2 * MIB)) == pattern(2 * MIB, 4096)
        h.shutdown()
        assert disk.stop() == 1, "it says that something may be lost"
        disk.start()
        h = attach()
        assert flush_fails(h)
        h.flush()
        h.shutdown()
        assert disk.stop() == 0
        assert primary.stop() == 0


@test(forebay_only=True)
def a_last_flush_that_fails_is_told_by_the_next_run(bed):
    image = bed.image("disk.raw", 4 * MIB)
    # The first flush is Forebay's own, as it opens the disk; the second one is the last.
    disk = bed.disk("fault:rule=error,op=flush,nth=2,times=1&inner=file:" + image, mode="write-through", name="first")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, 65536, 1), 0)
    h.shutdown()
    assert disk.stop() == 1
    assert "last flush of primary storage failed" in disk.log() and "64 KiB" in disk.log(), disk.log()
    # The guest lives on. Primary storage, which has reported its loss, flushes well from now on.
    disk = bed.disk("file:" + image)
    assert "could tell" in disk.log(), disk.log()
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert flush_fails(h), "the guest was never told that its write may be gone"
    h.flush()
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_run_that_only_reads_leaves_a_loss_to_the_next_one_that_writes(bed):
    image = bed.image("disk.raw", 4 * MIB)

    def attach(disk):
        h = nbd.NBD()
        h.connect_uri(disk.uri)
        return h
    writer = bed.disk("fault:rule=error,op=flush,nth=2,times=1&inner=file:" + image, name="writer")
    h = attach(writer)
    h.pwrite(pattern(0, 4096, 1), 0)
    h.shutdown()
    assert writer.stop() == 1
    reader = bed.disk("file:" + image, name="reader", extra=["--read-only"])
    assert "this run is read-only" in reader.log(), reader.log()
    assert reader.stop() == 0, "that is no loss of its own"
    again = bed.disk("file:" + image, name="again")
    h = attach(again)
    assert flush_fails(h), "the guest was never told"
    h.flush()
    h.shutdown()
    assert again.stop() == 0


@test(forebay_only=True)
def a_loss_is_not_told_after_a_detach(bed):
    image = bed.image("disk.raw", 4 * MIB)
    primary = nbdkit(bed, "file", image)
    disk = bed.disk(primary.uri + "&fence=0s")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, 4096, 1), 0)
    primary.restart()
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096)
    h.shutdown()
    eventually(lambda: disk.stats()["connections"] == 0, "the client is gone")
    detach = [bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")]
    said = bed.run(detach, code=None)
    assert said.returncode == 1 and "no flush of the guest has reported that" in said.stderr, said.stderr
    disk.was_ended = True
    assert disk.process.wait(30) == 1
    # The administrator knows, and no guest has the disk any more: who comes now is somebody else.
    disk.start()
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.flush()
    h.shutdown()
    eventually(lambda: disk.stats()["connections"] == 0, "the client is gone")
    bed.run(detach)
    disk.was_ended = True
    assert disk.process.wait(30) == 0


@test(forebay_only=True)
def a_loss_is_not_told_of_another_image_at_the_same_path(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = bed.disk("fault:rule=error,op=flush,nth=2,times=1&inner=file:" + image, name="first")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, 4096, 1), 0)
    h.shutdown()
    assert disk.stop() == 1
    os.unlink(image)
    disk = bed.disk("file:" + bed.image("disk.raw", 2 * MIB))
    assert "could tell" not in disk.log(), disk.log()
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.flush()
    h.shutdown()
    assert disk.stop() == 0


def server_with_a_slow_write(bed, image):
    """An NBD server that carries a write to 4096 out when the file `gate` is there, whoever sent it being long dead."""
    at = bed.directory
    pwrite = """
        cat >%(at)s/w.$$
        if [ $4 = 4096 ] && mv %(at)s/slow %(at)s/taken 2>/dev/null; then
            while [ ! -e %(at)s/gate ]; do sleep 0.05; done
        fi
        dd if=%(at)s/w.$$ of=%(image)s bs=512 seek=$(($4/512)) conv=notrunc status=none
        [ ! -e %(at)s/gate ] || touch %(at)s/landed
        rm %(at)s/w.$$""" % {"at": at, "image": image}
    pread = "dd if=%s bs=512 skip=$(($4/512)) count=$(($3/512)) status=none" % image
    return nbdkit(bed, "-t", "8", "eval", "thread_model=echo parallel", "get_size=echo 16M",
                  "can_write=exit 0", "can_flush=exit 0", "flush=exit 0", "pread=" + pread, "pwrite=" + pwrite)


@test(forebay_only=True)
def a_write_of_a_killed_process_does_not_land_over_a_newer_one(bed):
    image = bed.image("disk.raw", 16 * MIB)
    for mode in ["write-through", "write-back"]:
        for name in ["gate", "landed", "taken"]:
            if os.path.exists(bed.path(name)):
                os.unlink(bed.path(name))
        open(bed.path("slow"), "w").close()
        primary = server_with_a_slow_write(bed, image)
        flash = bed.path("pool") + ":64MiB" if mode == "write-back" else None
        disk = bed.disk(primary.uri + "&fence=6s", ram="4MiB", mode=mode, flash=flash)
        h = nbd.NBD()
        h.connect_uri(disk.uri)
        old = h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(pattern(4096, 4096, 1))), 4096)
        while not os.path.exists(bed.path("taken")):
            h.poll(50)
        disk.kill()
        disk.start()
        assert "writes to primary storage wait for 6s" in disk.log(), disk.log()
        h = nbd.NBD()
        h.connect_uri(disk.uri)
        new = h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(pattern(4096, 4096, 2))), 4096)
        for _ in range(20):
            h.poll(50)
        shown = bed.run([bed.program, "disk", "show", "disk", "--control", bed.path("disk.control")])
        assert "writes to it wait until what a former run sent can land no more" in shown, shown
        assert h.aio_command_completed(new) == (mode == "write-back"), "it does not wait"
        assert bytes(h.pread(4096, 8192)) == pattern(8192, 4096), "reads do not wait"
        open(bed.path("gate"), "w").close()
        eventually(lambda: os.path.exists(bed.path("landed")), "the old write lands")
        if mode == "write-through":
            while not h.aio_command_completed(new):
                h.poll(50)
        h.flush()

        def is_new():
            with open(image, "rb") as f:
                f.seek(4096)
                return f.read(4096) == pattern(4096, 4096, 2)
        eventually(is_new, "primary storage has the newer one")
        h.shutdown()
        assert disk.stop() == 0
        assert primary.stop() == 0
        disk.log_path = disk.log_path + ".next"
        # What ended in order is not waited for.
        primary.start()
        disk.start()
        assert "writes to primary storage wait" not in disk.log(), disk.log()
        assert disk.stop() == 0
        assert primary.stop() == 0


class Flaky:
    """A way to a server that closes each connection at its first request, while it is told to."""

    def __init__(self, path, server):
        self.server, self.is_flaky, self.accepted, self.open = server, False, 0, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            self.accepted += 1
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server)
            self.open += [client, server]
            for source, target, is_client in [(client, server, True), (server, client, False)]:
                threading.Thread(target=self.pump, args=(source, target, is_client), daemon=True).start()

    def pump(self, source, target, is_client):
        try:
            while data := source.recv(1 << 16):
                if is_client and self.is_flaky and b"\x25\x60\x95\x13" in data:
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def break_all(self):
        self.is_flaky = True
        for end in self.open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@test(forebay_only=True)
def a_server_that_closes_each_session_is_waited_for_and_not_overrun(bed):
    image = bed.image("disk.raw", 4 * MIB)
    primary = nbdkit(bed, "file", image)
    way = Flaky(bed.path("way.sock"), primary.listen.removeprefix("unix:"))
    disk = bed.disk("nbd+unix:///?socket=" + bed.path("way.sock"), ram="1MiB")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096)
    way.break_all()
    before, read = way.accepted, []
    reader = threading.Thread(target=lambda: read.append(bytes(h.pread(4096, MIB))), daemon=True)
    reader.start()
    time.sleep(3)
    assert 0 < way.accepted - before < 60, "%d connections in 3 s" % (way.accepted - before)
    assert not read and reader.is_alive(), "it waits"
    way.is_flaky = False
    reader.join(20)
    assert read == [pattern(MIB, 4096)], "it goes on when the server does"
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_server_that_lets_connections_wait_is_used_with_those_that_it_takes(bed):
    need_program("qemu-nbd")
    image = bed.image("disk.raw", 4 * MIB)
    listen = bed.path("primary.sock")
    primary = bed.other("primary", ["qemu-nbd", "-t", "-f", "raw", "-e", "2", "-k", listen, image], "unix:" + listen)
    began = time.monotonic()
    disk = bed.disk(primary.uri + "&connections=4", ram="1MiB")
    assert time.monotonic() - began < 8, "it waited for a connection that it does not get"
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(4096, MIB)) == pattern(MIB, 4096)
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def storage_that_does_not_answer_keeps_a_disk_from_being_opened_again_and_nobody_else_waiting(bed):
    primary = nbdkit(bed, "file", bed.image("disk.raw", 4 * MIB))
    disk = bed.disk(primary.uri, ram="1MiB")
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(pattern(0, 4096, 1), 0)
    primary.process.send_signal(signal.SIGSTOP)
    settings = [bed.program, "disk", "set", disk.name, "--control", bed.path(disk.name + ".control")]
    refused = bed.run([*settings, "--block-size", "16KiB"], code=None, timeout=30)
    assert refused.returncode == 1 and "has not answered a flush" in refused.stdout, refused
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1), "its clients go on"
    bed.run([*settings, "--policy", "lru"], timeout=10)
    primary.process.send_signal(signal.SIGCONT)
    bed.run([*settings, "--block-size", "16KiB"], timeout=30)
    assert bytes(h.pread(4096, 0)) == pattern(0, 4096, 1)
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def a_disk_whose_server_is_away_keeps_no_other_from_a_clean_end(bed):
    primaries = {name: nbdkit(bed, "file", bed.image(name + ".raw", 4 * MIB), name=name) for name in ("a", "b")}
    text = 'control = "%s"\nshards = 1\n' % bed.path("serve.control") + "".join(
        '[[disk]]\nname = "%s"\nbackend = "%s"\nram = "1MiB"\nnbd = ["unix:%s"]\n' % (
            name, primary.uri, bed.path(name + ".nbd")) for name, primary in primaries.items())
    server = bed.serve(text, ["unix:" + bed.path("a.nbd")])
    for name in primaries:
        h = nbd.NBD()
        h.connect_uri("nbd+unix:///%s?socket=%s" % (name, bed.path(name + ".nbd")))
        h.pwrite(pattern(0, 4096, 1), 0)
        h.shutdown()
    primaries["a"].kill()
    assert server.stop() == 1
    assert "within 30s on disk a;" in server.log(), server.log()
    primaries["a"].start()
    server.start()
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///b?socket=" + bed.path("b.nbd"))
    h.pwrite(pattern(0, 4096, 2), 0)
    h.shutdown()
    assert "disk a: a former run ended" in server.log() and "disk b: a former run" not in server.log(), server.log()
    # The loss of disk a was told to nobody yet.
    assert server.stop() == 1
