"""A disk becomes longer while clients use it: what each of them sees, and what a kill leaves."""
import json
import os
import struct
import subprocess

import guest
import iscsi
from bed import MIB, pattern, test
from test_primary import nbdkit
from test_reload import Served, client, disk
from test_settings import told
from test_vhost_guest import ATTACH, run, vhost_disk
from test_warm import BLOCK, CACHED, expect, fill, recorded, ring
from test_write_back import attach

# Its last page, granule and block are not whole.
OLD = 16 * MIB - 512
NEW = 40 * MIB


def resize(bed, disk, code=0):
    """`forebay disk resize`: what it says."""
    command = [bed.program, "disk", "resize", disk.name, "--json", "--control", bed.path(disk.name + ".control")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    return json.loads(done.stdout) if done.stdout else done.stderr


def lengthen(image, size=NEW, byte=b"\xab"):
    """Makes an image longer, with bytes that no hole has."""
    with open(image, "ab") as f:
        f.write(byte * (size - os.path.getsize(image)))


def start(bed, mode, ram="4MiB"):
    image = bed.image("%s.raw" % mode, OLD)
    flash = bed.path(mode + "-pool") + ":24MiB" if mode != "pass-through" else None
    extra = ["--write-log", "4MiB"] if mode == "write-back" else []
    if flash:
        extra += ["--flash-admission", "always", "--bypass-sequential", "off"]
    return image, bed.disk("file:" + image, ram=ram if flash else "0", flash=flash, mode=mode, name=mode,
                           extra=extra)


@test(forebay_only=True)
def a_disk_grows_under_its_clients_and_stays_so_over_a_kill(bed):
    for mode in ["pass-through", "write-through", "write-back"]:
        image, disk = start(bed, mode)
        h = attach(disk)
        tail = OLD & ~4095
        assert bytes(h.pread(OLD - tail, tail)) == pattern(tail, OLD - tail), "its end is cached"
        h.pwrite(bytes(512), OLD - 512)
        assert resize(bed, disk, code=1) == {"before": OLD, "after": OLD}
        lengthen(image)
        assert resize(bed, disk) == {"before": OLD, "after": NEW}
        assert h.get_size() == OLD
        assert bytes(h.pread(OLD - tail, tail))[-512:] == bytes(512), "the old connection goes on"
        new = attach(disk)
        assert new.get_size() == NEW
        assert bytes(new.pread(4096, tail))[-1024:] == bytes(512) + b"\xab" * 512, "what is behind the old end"
        new.pwrite(pattern(NEW - 4096, 4096, 3), NEW - 4096)
        new.pwrite(pattern(OLD, 4096, 4), OLD)
        new.flush()
        disk.restart()
        again = attach(disk)
        assert again.get_size() == NEW
        assert bytes(again.pread(4096, NEW - 4096)) == pattern(NEW - 4096, 4096, 3)
        assert bytes(again.pread(8192, tail))[OLD - tail:][:4096] == pattern(OLD, 4096, 4)
        again.shutdown()
        assert disk.stop() == 0
        if mode == "write-back":
            disk.start()
            guest.detach(bed, disk)
        with open(image, "rb") as f:
            f.seek(OLD - 512)
            assert f.read(512 + 4096) == bytes(512) + pattern(OLD, 4096, 4)
            f.seek(NEW - 4096)
            assert f.read() == pattern(NEW - 4096, 4096, 3)


@test(forebay_only=True)
def a_disk_does_not_become_shorter(bed):
    image, disk = start(bed, "write-through")
    os.truncate(image, OLD - 4096)
    said = resize(bed, disk, code=1)
    assert "does not become shorter" in said and str(OLD) in said, said
    os.truncate(image, OLD)
    assert resize(bed, disk, code=1)["after"] == OLD
    command = [bed.program, "disk", "resize", disk.name, "--control", bed.path(disk.name + ".control")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not done.stdout and "unchanged" in done.stderr, "nothing grew: %s" % (done,)


@test(forebay_only=True)
def the_cache_outlives_a_growth_and_the_restarts_after_it(bed):
    for mode in ["write-through", "write-back"]:
        image, disk = start(bed, mode, ram="0")
        h = attach(disk)
        fill(disk, h)
        lengthen(image)
        resize(bed, disk)
        h = attach(disk)
        # Regions that share marks with those of what is cached.
        h.pwrite(pattern(NEW - MIB, MIB, 5), NEW - MIB)
        h.flush()
        if mode == "write-through":
            recorded(disk)
        h.shutdown()
        for _ in range(2):
            assert disk.stop() == 0
            disk.start()
            found = ring(disk)
            # What the log has newer bytes of is not kept.
            assert found["is_warm"] and found["blocks_kept"] >= CACHED // BLOCK, found
            h = attach(disk)
            before = disk.stats()["counters"]["backend_reads"]
            expect(h, lambda _: 0)
            assert disk.stats()["counters"]["backend_reads"] == before, "all of it comes from the cache"
            assert bytes(h.pread(MIB, NEW - MIB)) == pattern(NEW - MIB, MIB, 5)
            h.shutdown()
        assert disk.stop() == 0


@test(forebay_only=True)
def an_export_grows_when_its_server_was_restarted(bed):
    image = bed.image("disk.raw", 4 * MIB)
    primary = nbdkit(bed, "file", image)
    disk = bed.disk(primary.uri)
    h = attach(disk)
    lengthen(image, 8 * MIB)
    assert resize(bed, disk, code=1) == {"before": 4 * MIB, "after": 4 * MIB}, "the connection is the old one"
    primary.restart()
    h.pread(4096, 0)
    assert resize(bed, disk) == {"before": 4 * MIB, "after": 8 * MIB}
    h = attach(disk)
    h.pwrite(pattern(8 * MIB - 4096, 4096, 2), 8 * MIB - 4096)
    h.flush()
    with open(image, "rb") as f:
        f.seek(8 * MIB - 4096)
        assert f.read() == pattern(8 * MIB - 4096, 4096, 2)


@test(forebay_only=True)
def an_export_that_has_become_longer_keeps_no_disk_with_a_log_from_being_opened_again(bed):
    primary = nbdkit(bed, "file", bed.image("a.raw", OLD))
    more = 'flash = "%s:24MiB"\nmode = "write-back"\nwrite-log = "4MiB"\nmax-destage-rate = "64KiB"\n' % bed.path("pool")
    served = Served(bed, disk(bed, "a", more, backend=primary.uri))
    handle = client(bed, "a")
    handle.pwrite(pattern(0, MIB, 5), 0)
    # The connection goes on with the old size.
    lengthen(bed.path("a.raw"))
    assert told(bed, served, "set", "a", "--block-size", "16KiB")["a"] == ("opened-again", None)
    other = client(bed, "a")
    assert other.get_size() == NEW, "who comes now sees it"
    other.shutdown()
    assert bytes(handle.pread(MIB, 0)) == pattern(0, MIB, 5)
    assert served.stats("a")["log"]["dirty_bytes"] > 0
    handle.shutdown()
    assert served.server.stop() == 0


@test(forebay_only=True)
def initiators_are_told(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = iscsi.start(bed, "file:" + image)
    one = iscsi.Initiator(disk)
    assert one.login() == 0
    one.ready()
    lengthen(image)
    resize(bed, disk)
    assert one.status([0] * 6) == 2, "CHECK CONDITION"
    sense = one.sense[2:]
    assert (sense[2] & 15, sense[12], sense[13]) == (6, 0x2A, 9), "CAPACITY DATA HAS CHANGED"
    one.command([0x9E, 0x10] + [0] * 11 + [32], read=32)
    header, data = one.receive()
    assert struct.unpack(">QI", data[:12]) == (NEW // 512 - 1, 512), data.hex()
    last = NEW // 512 - 8
    assert one.write(last, pattern(last * 512, 4096, 6)) == 0
    assert one.read(last, 8) == pattern(last * 512, 4096, 6)


@test(forebay_only=True, timeout=400)
def a_guest_sees_its_disk_grow(bed):
    script = ATTACH + """
mkfs.ext4 -q -F /dev/vda
mount -t ext4 /dev/vda /mnt
dd if=/dev/urandom of=/mnt/kept bs=64k count=32 2>/dev/null
sha256sum /mnt/kept > /tmp/sums
hostsync grow
await '[ "$(cat /sys/block/vda/size)" = "$GROWN" ]'
sha256sum -c /tmp/sums
umount /mnt
dd if=/dev/urandom of=/tmp/block bs=4k count=1 2>/dev/null
dd if=/tmp/block of=/dev/vda bs=4k seek=$((GROWN / 8 - 1)) oflag=direct 2>/dev/null
dd if=/dev/vda of=/tmp/again bs=4k skip=$((GROWN / 8 - 1)) iflag=direct 2>/dev/null
cmp /tmp/block /tmp/again
e2fsck -f -n /dev/vda
""" + guest.NO_ERROR
    image, disk = vhost_disk(bed, 96 * MIB)

    def on_sync(_):
        os.truncate(image, 128 * MIB)
        assert resize(bed, disk)["after"] == 128 * MIB
        return "done"

    run(bed, script, 96 * MIB, 1, on_sync, CACHE="write back", GROWN=128 * MIB // 512)
    assert disk.stop() == 0
