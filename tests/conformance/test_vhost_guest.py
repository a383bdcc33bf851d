"""A Linux guest on a vhost-user-blk device: file systems, verification, and kills that it must not notice."""
import json
import subprocess

import guest
import vm
from bed import MIB, eventually, test

ATTACH = guest.AWAIT + """
modprobe virtio_blk
modprobe ext4
await 'opens /dev/vda'
cache() { cat /sys/block/vda/queue/write_cache; }
[ "$(cat /sys/block/vda/size)" = "$SECTORS" ]
[ "$(cat /sys/block/vda/serial)" = disk ]
# Without "write back" the kernel would send no flush.
[ "$(cache)" = "$CACHE" ] || { echo "the cache is $(cache)"; exit 8; }
[ "$(ls -d /sys/block/vda/mq/* | wc -l)" = "$QUEUES" ]
"""

VERIFY = ATTACH + """
[ "$(cat /sys/block/vda/queue/discard_max_bytes)" = $((1 << 30)) ]
[ "$(cat /sys/block/vda/queue/physical_block_size)" = 4096 ]
mkfs.ext4 -q -F /dev/vda
mount -t ext4 -o discard /dev/vda /mnt
fio --name=verify --directory=/mnt --size=24m --rw=randwrite --bsrange=512-64k --ioengine=psync \\
    --direct=1 --verify=crc32c --verify_fatal=1 --fsync=64 --output-format=terse
rm /mnt/verify*
fstrim /mnt
for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/mnt/f$i bs=64k count=$i 2>/dev/null; done
(cd /mnt && sha256sum f*) > /tmp/sums
umount /mnt
e2fsck -f -n /dev/vda
if [ "$CACHE" = "write back" ]; then
    # A guest may switch the cache off and on.
    echo "write through" > /sys/block/vda/cache_type
    [ "$(cache)" = "write through" ]
    hostsync durable
    dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=$((SECTORS / 8 - 1)) oflag=direct 2>/dev/null
    hostsync restart
    [ "$(cache)" = "write through" ]
    dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=$((SECTORS / 8 - 1)) oflag=direct 2>/dev/null
    hostsync still-durable
    echo "write back" > /sys/block/vda/cache_type
fi
mount -t ext4 /dev/vda /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
""" + guest.NO_ERROR

def run(bed, script, size, queues=1, on_sync=None, timeout=280, **settings):
    device = vm.vhost_user(bed.path("disk.vhost"), queues)
    guest.run(script, on_sync, timeout, device, SECTORS=size // 512, QUEUES=queues, **settings)


def vhost_disk(bed, size, queues=1, extra=(), uri="file:", **more):
    image = bed.image("disk.raw", size, "holes")
    device = ["--vhost-user", bed.path("disk.vhost"), "--queues", str(queues)]
    return image, bed.disk(uri + image, ram="16MiB", extra=device + list(extra), **more)


def device_of(bed, disk):
    """What `forebay disk show` says of the device."""
    command = [bed.program, "disk", "show", disk.name, "--json", "--control",
               bed.path(disk.name + ".control")]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["vhost_user"]


@test(forebay_only=True, timeout=400)
def ext4_on_vhost_user_verifies_and_may_switch_its_cache_off(bed):
    image, disk = vhost_disk(bed, 96 * MIB, queues=2, flash=bed.path("flash") + ":32MiB")

    flushes = []

    def on_sync(word):
        if word == "restart":
            disk.restart()
        else:
            flushes.append(disk.stats()["counters"]["backend_flushes"])
        return "done"

    run(bed, VERIFY, 96 * MIB, 2, on_sync, CACHE="write back")
    # The guest asked for no flush after the restart: its write was durable by itself.
    assert flushes[1] > 0, flushes
    device = device_of(bed, disk)
    assert device["requests"] > 0 and device["broken"] == 0, device
    assert disk.stop() == 0
    bed.run(["e2fsck", "-f", "-n", image])


@test(forebay_only=True, timeout=300)
def a_guest_without_a_write_cache_sees_none(bed):
    image, disk = vhost_disk(bed, 96 * MIB, extra=["--write-cache", "off"])
    run(bed, VERIFY, 96 * MIB, CACHE="write through")
    assert disk.stop() == 0
    bed.run(["e2fsck", "-f", "-n", image])


def kills(bed, file_system, size, queues, write_cache="on", **more):
    """Kills the server under a guest; FOREBAY_GUEST_KILLS says how often."""
    image, disk = vhost_disk(bed, size, queues, extra=more.pop("extra", []) +
                             ["--write-cache", write_cache], **more)
    replayed = []

    def kill():
        # Under load: what the guest wrote meanwhile is in its ring, on its way or answered.
        writes = lambda: disk.stats()["counters"]["writes"]
        before = writes()
        eventually(lambda: writes() > before + 30, "the guest writes", seconds=120)
        disk.restart()
        eventually(lambda: device_of(bed, disk)["is_connected"], "QEMU comes back", seconds=60)
        eventually(lambda: writes() > 0, "the guest goes on", seconds=60)
        replayed.append(device_of(bed, disk)["replayed"])

    # A write log has nothing in flight for long.
    has_log = "mode" in more

    def on_sync(_):
        kill()
        # A kill may fall between two requests: another one then.
        while not has_log and not sum(replayed) and len(replayed) < 10:
            kill()
        return "done"

    cache = "write back" if write_cache == "on" else "write through"
    run(bed, ATTACH + guest.KILLS, size, queues, on_sync, guest.PATIENCE, FS=file_system, CACHE=cache,
        DEVICE="/dev/vda", ROUNDS=guest.kills())
    print("replayed after each kill:", replayed)
    assert has_log or sum(replayed) > 0
    if has_log:
        guest.detach(bed, disk)
    else:
        assert disk.stop() == 0
    guest.check(bed, file_system, image)


@test(forebay_only=True, timeout=guest.PATIENCE + 60)
def a_guest_does_not_notice_kills_in_write_through(bed):
    kills(bed, "ext4", 96 * MIB, 2, uri="model:san?latency=50ms&inner=file:")


@test(forebay_only=True, timeout=guest.PATIENCE + 60)
def a_guest_does_not_notice_kills_in_write_back(bed):
    kills(bed, "ext4", 96 * MIB, 2, mode="write-back", flash=bed.path("flash") + ":64MiB",
          extra=["--write-log", "16MiB"])


@test(forebay_only=True, timeout=guest.PATIENCE + 60)
def a_guest_does_not_notice_kills_in_write_back_without_a_write_cache(bed):
    kills(bed, "xfs", 320 * MIB, 1, "off", mode="write-back", flash=bed.path("flash") + ":64MiB",
          extra=["--write-log", "16MiB"])
