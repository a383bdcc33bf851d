"""vhost-user-blk without a guest: the client of forebay-bench, and what is not its protocol."""
import json
import os
import random
import socket
import struct

import iscsi
import nbd
from bed import MIB, Skip, eventually, pattern, test
from test_refusals import refused
from test_shown import events


# As the unit tests are built: it is no part of what is tested, so its speed does not matter.
CLIENT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../target/debug/forebay-bench"))


def client(bed, *options, code=0):
    if not os.path.exists(CLIENT):
        raise Skip("%s is not built (make build-tested)" % CLIENT)
    return bed.run([CLIENT, "vhost", "--socket", bed.path("disk.vhost"), "--overwrite", *options], code=code)


def vhost_disk(bed, queues=1, **more):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    return bed.disk("file:" + image, extra=["--vhost-user", bed.path("disk.vhost"), "--queues", str(queues)], **more)


@test(forebay_only=True)
def what_is_written_is_read_back_over_every_queue(bed):
    vhost_disk(bed, 4, flash=bed.path("flash") + ":32MiB")
    for wait in ("poll", "block"):
        client(bed, "--check", "--queues", "4", "--wait", wait)
    # Another one with fewer queues, and load at once on several.
    client(bed, "--check", "--queues", "1", "--wait", "block")
    for write in ([], ["--write"]):
        client(bed, "--queues", "3", "--depth", "32", "--wait", "block", "--seconds", "0.5", "--warm-up", "0", *write)


@test(forebay_only=True)
def the_client_overwrites_no_disk_without_the_word_and_checks_none_that_is_too_small(bed):
    bed.disk("mem:1MiB", extra=["--vhost-user", bed.path("disk.vhost")])
    said = client(bed, "--check", code=None)
    assert said.returncode == 1 and "--check needs a disk of more than 1 MiB" in said.stderr, said.stderr
    for option in ("--check", "--write"):
        said = bed.run([CLIENT, "vhost", "--socket", bed.path("disk.vhost"), option], code=None)
        assert said.returncode == 1 and "give --overwrite" in said.stderr, said.stderr


@test(forebay_only=True)
def the_client_measures_requests_that_take_longer_than_its_measured_time(bed):
    bed.disk("model:san?latency=300ms&inner=mem:16MiB", extra=["--vhost-user", bed.path("disk.vhost")])
    said = json.loads(client(bed, "--depth", "1", "--wait", "block", "--seconds", "0.1", "--warm-up", "0", "--json"))
    assert said["iops"] < 20 and said["reads"]["count"] == 1 and said["reads"]["max_us"] >= 290000, said


@test(forebay_only=True)
def it_works_without_io_uring(bed):
    vhost_disk(bed, 2, name="disk", ram="16MiB")
    disk = bed.servers[0]
    disk.stop()
    disk.command += ["--reactor", "epoll"]
    disk.start()
    client(bed, "--check", "--queues", "2", "--wait", "block")


@test(forebay_only=True)
def whoever_speaks_something_else_is_closed_and_the_next_one_served(bed):
    vhost_disk(bed)
    rng = random.Random(7)
    for length in (0, 1, 12, 13, 100, 5000):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(bed.path("disk.vhost"))
            try:
                stranger.sendall(rng.randbytes(length))
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
    client(bed, "--check", "--wait", "block")


@test(forebay_only=True)
def a_disk_is_served_to_a_guest_and_over_nbd_at_once(bed):
    disk = vhost_disk(bed)
    bed.run(["qemu-io", "-f", "raw", "-c", "write -P 5 0 1M", "-c", "flush", disk.uri])
    client(bed, "--check", "--wait", "block")
    bed.run(["qemu-io", "-f", "raw", "-c", "read -P 0 0 512", disk.uri])


@test(forebay_only=True)
def a_second_hypervisor_waits_and_that_is_told(bed):
    disk = vhost_disk(bed)
    device = lambda: disk.stats()["vhost_user"]
    told = lambda: sum("another hypervisor" in text for text in events(bed, disk))

    def hypervisor():
        it = socket.socket(socket.AF_UNIX)
        it.connect(bed.path("disk.vhost"))
        return it
    with hypervisor() as first:
        eventually(lambda: device()["is_connected"], "the first one is there")
        assert told() == 0
        with hypervisor():
            eventually(lambda: told() == 1, "it is told of")
            assert device()["sessions"] == 1
            first.close()
            eventually(lambda: device()["sessions"] == 2, "it is its turn")
    eventually(lambda: not device()["is_connected"], "it has left")
    client(bed, "--check", "--wait", "block")
    assert told() == 1


class Hypervisor:
    """The messages of a hypervisor, as far as a test needs them."""
    SET_FEATURES, SET_PROTOCOL_FEATURES, GET_CONFIG, SET_CONFIG, GET_INFLIGHT_FD = 2, 16, 24, 25, 31
    CACHE = struct.pack("=III", 32, 1, 0)

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.tell(self.SET_FEATURES, struct.pack("=Q", 1 << 32 | 1 << 30 | 1 << 11 | 1 << 9))
        self.tell(self.SET_PROTOCOL_FEATURES, struct.pack("=Q", 1 << 9 | 1 << 12))

    def tell(self, request, body):
        self.socket.sendall(struct.pack("=III", request, 1, len(body)) + body)

    def ask(self, request, body, length):
        """The answer, and files that come with it."""
        self.tell(request, body)
        said, files, _, _ = socket.recv_fds(self.socket, 12 + length, 1)
        return said[12:], files

    def switch_cache(self, on):
        self.tell(self.SET_CONFIG, self.CACHE + bytes([on]))

    def shown_cache(self):
        return self.ask(self.GET_CONFIG, self.CACHE + b"\0", 13)[0][12]

    def noted_off(self):
        """Whether memory for requests in flight, which is new, has a note that the cache is off."""
        _, files = self.ask(self.GET_INFLIGHT_FD, struct.pack("=QQHHxxxx", 0, 0, 1, 128), 24)
        with os.fdopen(files[0], "rb") as region:
            return struct.unpack("=Q", region.read(8))[0] != 0


@test(forebay_only=True)
def a_cache_that_was_switched_off_stays_off_when_forebay_is_killed_while_the_guest_begins_anew(bed):
    disk, path = vhost_disk(bed), bed.path("disk.vhost")
    one = Hypervisor(path)
    assert one.shown_cache() == 1
    one.switch_cache(False)
    assert one.shown_cache() == 0
    for end in (disk.kill, disk.stop):
        end()
        disk.start()
        # It goes on, and asks for memory for requests in flight before its guest runs, but not for the configuration.
        assert Hypervisor(path).noted_off()
    # One that begins reads the configuration, and shows the cache.
    other = Hypervisor(path)
    # Forebay notes it before it answers the next question.
    assert [other.shown_cache(), other.shown_cache()] == [1, 1]
    disk.kill()
    disk.start()
    assert not Hypervisor(path).noted_off()


@test(forebay_only=True)
def a_disk_moves_between_frontends_and_is_one_disk(bed):
    """As a guest that is migrated: what one frontend wrote the others read, also when it has left."""
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = bed.disk("file:" + image, ram="8MiB", flash=bed.path("pool") + ":48MiB", mode="write-back",
                    extra=["--write-log", "16MiB", "--vhost-user", bed.path("disk.vhost"), "--iscsi", "127.0.0.1:0"])
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    initiator = iscsi.Initiator(disk)
    assert initiator.login() == 0
    initiator.ready()
    # Where the check of the client over vhost-user writes, and leaves zeroes.
    places = [n * 1_234_567 // 512 * 512 for n in range(5)]
    h.pwrite(pattern(0, 8 * MIB, 1), 0)
    assert initiator.read(16, 8) == pattern(16 * 512, 4096, 1)
    client(bed, "--check", "--wait", "block")
    for at, length in zip(places, (512, 4096, 12_288, 65_536, MIB)):
        assert bytes(h.pread(length, at)) == bytes(length), at
    assert initiator.read(places[1] // 512, 8) == bytes(4096)
    assert initiator.read(16, 8) == pattern(16 * 512, 4096, 1), "and nothing beside them"
    # The hypervisor has left; the initiator goes, too, and NBD writes on.
    eventually(lambda: not disk.stats()["vhost_user"]["is_connected"], "the hypervisor has left")
    initiator.close()
    h.pwrite(pattern(16 * 512, 4096, 2), 16 * 512, nbd.CMD_FLAG_FUA)
    h.shutdown()
    again = iscsi.Initiator(disk)
    assert again.login() == 0
    again.ready()
    assert again.read(16, 8) == pattern(16 * 512, 4096, 2)
    again.write(16, pattern(16 * 512, 4096, 3))
    client(bed, "--check", "--wait", "poll")
    other = nbd.NBD()
    other.connect_uri(disk.uri)
    assert bytes(other.pread(4096, 16 * 512)) == pattern(16 * 512, 4096, 3)
    # Each of them has to leave before the disk ends.
    eventually(lambda: not disk.stats()["vhost_user"]["is_connected"], "the hypervisor has left")
    refused(bed, ["disk", "detach", "disk", "--control", bed.path("disk.control")], "clients are attached: 2")
    other.shutdown()
    again.close()
    eventually(lambda: disk.stats()["connections"] == 0, "they have left")
    bed.run([bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")])
    assert disk.process.wait(30) == 0
    disk.was_ended = True
    with open(image, "rb") as f:
        f.seek(16 * 512)
        assert f.read(4096) == pattern(16 * 512, 4096, 3)


@test(forebay_only=True)
def a_disk_is_not_ended_beneath_a_hypervisor_at_work(bed):
    disk = vhost_disk(bed)
    load = bed.spawn([CLIENT, "vhost", "--socket", bed.path("disk.vhost"), "--seconds", "60", "--warm-up", "0"])
    eventually(lambda: disk.stats()["connections"] == 1, "its queue runs")
    for more in ([], ["--force"]):
        refused(bed, ["disk", "detach", "disk", *more, "--control", bed.path("disk.control")], "clients are attached: 1")
    assert load.poll() is None
    load.kill()
    load.wait()
    # Who has just left is waited for.
    bed.run([bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")])
    assert disk.process.wait(30) == 0
    disk.was_ended = True
