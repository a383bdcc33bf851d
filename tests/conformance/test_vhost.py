"""vhost-user-blk without a guest: the client of forebay-bench, and what is not its protocol."""
import os
import random
import socket

from bed import MIB, Skip, test


def client(bed, *options):
    program = os.path.join(os.path.dirname(bed.program), "forebay-bench")
    if not os.path.exists(program):
        raise Skip("forebay-bench is not built beside forebay")
    return bed.run([program, "vhost", "--socket", bed.path("disk.vhost"), *options])


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
