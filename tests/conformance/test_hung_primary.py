"""Primary storage that hangs, of many disks at once: it costs those that work the time of one."""
import os
import time

from bed import MIB, eventually, test
from test_mount import fuse, unmount
from test_primary import nbdkit
from test_reload import Served, client, disk, images


def hung(bed, *names):
    """Disks of which each hangs: whoever reads the sidecar waits for a writer that never comes."""
    images(bed, *names)
    for name in names:
        os.mkfifo(bed.path(name + ".raw.forebay"))
    return [disk(bed, name) for name in names]


@test(forebay_only=True)
def a_start_and_a_reload_wait_once_for_many_disks_whose_storage_hangs(bed):
    images(bed, "a", "z")
    first = hung(bed, *("h%d" % i for i in range(40)))
    begun = time.monotonic()
    served = Served(bed, *first, disk(bed, "a"))
    took = time.monotonic() - begun
    assert 14 < took < 28, "the start took %.1f s, where each hangs for 15 s" % took
    client(bed, "a").shutdown()
    second = hung(bed, *("i%d" % i for i in range(8)))
    served.write(*first, *second, disk(bed, "a"), disk(bed, "z"))
    begun = time.monotonic()
    said = served.reload(code=1)
    took = time.monotonic() - begun
    assert took < 14, "the reload took %.1f s, where each hangs for 5 s" % took
    assert said["z"] == ("added", None) and "does not answer" in said["i7"][1], said
    client(bed, "z").shutdown()
    # When one works again, it is served.
    os.close(os.open(bed.path("h39.raw.forebay"), os.O_WRONLY))
    os.remove(bed.path("h39.raw.forebay"))
    eventually(lambda: os.path.exists(bed.path("h39.sock")), "its disk is tried again", seconds=30)
    assert served.server.stop() == 0


@test(forebay_only=True)
def openings_that_hang_halfway_keep_the_others_from_their_clients_for_a_minute(bed):
    images(bed, "a")
    hang, data = bed.path("hang"), bed.image("data", 64 * MIB, "random")
    # What is asked first is answered.
    wait = "while [ -e %s ] && [ $4 -ge 1048576 ]; do sleep 0.1; done; " % hang
    copy = "dd if=%s bs=64K count=$3 skip=$4 iflag=count_bytes,skip_bytes status=none" % data
    # More than are opened at a time.
    hung, mounts = [], []
    for number in range(17):
        name = "b%d" % number
        server = nbdkit(bed, "eval", "get_size=echo %d" % (64 * MIB), "pread=" + wait + copy, name="server-" + name)
        process, path = fuse(bed, server, "fuse-" + name)
        mounts.append((process, path))
        hung.append((name, disk(bed, name, "read-only = true\n", backend="file:" + path)))
    served = Served(bed, *[spec for _, spec in hung], disk(bed, "a"))
    assert served.server.stop() == 0
    os.close(os.open(hang, os.O_CREAT))
    served.server.start_max = 90
    begun = time.monotonic()
    served.server.start()
    took = time.monotonic() - begun
    assert served.events().count("takes long to answer") == len(hung), (took, served.events())
    client(bed, "a").shutdown()
    os.remove(hang)
    for name, _ in hung:
        eventually(lambda: os.path.exists(bed.path(name + ".sock")), "it is served once it is open")
        client(bed, name).shutdown()
    assert served.server.stop() == 0
    for process, path in mounts:
        unmount(bed, process, path)
