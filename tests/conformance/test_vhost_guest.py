"""A Linux guest on a vhost-user-blk device: file systems, verification, and kills that it must not notice."""
import json
import os
import subprocess

import vm
from bed import MIB, Skip, eventually, need_program, test

ATTACH = """
set -e
modprobe virtio_blk
modprobe ext4
await() {
    n=0
    until eval "$1"; do usleep 50000; n=$((n+1)); [ $n -lt 400 ] || { echo "never: $1"; exit 9; }; done
}
await '[ -b /dev/vda ]'
cache() { cat /sys/block/vda/queue/write_cache; }
[ "$(cat /sys/block/vda/size)" = "$SECTORS" ]
[ "$(cat /sys/block/vda/serial)" = disk ]
# Without "write back" the kernel would send no flush.
[ "$(cache)" = "$CACHE" ] || { echo "the cache is $(cache)"; exit 8; }
[ "$(ls -d /sys/block/vda/mq/* | wc -l)" = "$QUEUES" ]
"""

# Whatever the kernel says of an error of the disk fails the test.
NO_ERROR = """
dmesg | grep -i -E "I/O error|EXT4-fs error|XFS.*(error|corrupt)|blk_update_request|Buffer I/O" && exit 7
true
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
""" + NO_ERROR

# The server is killed again and again under verification and metadata; the guest goes on as if it had not been.
KILLS = ATTACH + """
modprobe xfs
if [ $FS = xfs ]; then mkfs.xfs -q -f /dev/vda; else mkfs.ext4 -q -F /dev/vda; fi
mount -t $FS /dev/vda /mnt
churn() {
    n=0
    while [ ! -e /tmp/stop ]; do
        n=$((n+1))
        mkdir -p /mnt/churn/$n
        for i in 1 2 3 4 5 6; do
            echo $n.$i > /mnt/churn/$n/$i && ln /mnt/churn/$n/$i /mnt/churn/$n/link$i \\
                && mv /mnt/churn/$n/$i /mnt/churn/$n/moved$i || exit 1
        done
        dd if=/dev/urandom of=/mnt/churn/$n/data bs=32k count=4 2>/dev/null || exit 1
        [ $((n % 3)) != 0 ] || sync
        [ $n -lt 6 ] || rm -r /mnt/churn/$((n-5)) || exit 1
    done
}
churn &
churn=$!
round=0
while [ $round -lt $ROUNDS ]; do
    round=$((round+1))
    fio --name=verify --directory=/mnt --size=8m --rw=randwrite --bsrange=512-64k --ioengine=libaio \\
        --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --fsync=64 --output-format=terse &
    load=$!
    dd if=/dev/urandom of=/mnt/kept$round bs=16k count=$((round % 7 + 3)) conv=fsync 2>/dev/null
    (cd /mnt && sha256sum kept$round) >> /tmp/sums
    hostsync kill
    wait $load
    kill -0 $churn
done
touch /tmp/stop
wait $churn
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
mount -t $FS /dev/vda /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
if [ $FS = xfs ]; then xfs_repair -n /dev/vda; else e2fsck -f -n /dev/vda; fi
""" + NO_ERROR


def run(bed, script, disk, sectors, queues=1, on_sync=None, timeout=280, **settings):
    for program in ("qemu-system-x86_64", "fio", "depmod", "mkfs.xfs"):
        need_program(program)
    if not os.path.exists("/bin/busybox"):
        raise Skip("busybox-static is not installed")
    device = vm.vhost_user(bed.path("disk.vhost"), queues)
    with open("guest-log", "w+") as log:
        try:
            set_up = "SECTORS=%d QUEUES=%d\n" % (sectors, queues)
            set_up += "".join("%s='%s'\n" % setting for setting in settings.items())
            code = vm.run(set_up + script, on_sync, timeout, log, device)
        finally:
            log.seek(0)
            print(log.read(), flush=True)
    assert code == 0, "exit code %d in the guest" % code


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

    run(bed, VERIFY, disk, 96 * MIB // 512, 2, on_sync, CACHE="write back")
    # The guest asked for no flush after the restart: its write was durable by itself.
    assert flushes[1] > 0, flushes
    device = device_of(bed, disk)
    assert device["requests"] > 0 and device["broken"] == 0, device
    assert disk.stop() == 0
    bed.run(["e2fsck", "-f", "-n", image])


@test(forebay_only=True, timeout=300)
def a_guest_without_a_write_cache_sees_none(bed):
    image, disk = vhost_disk(bed, 96 * MIB, extra=["--write-cache", "off"])
    run(bed, VERIFY, disk, 96 * MIB // 512, CACHE="write through")
    assert disk.stop() == 0
    bed.run(["e2fsck", "-f", "-n", image])


def kills(bed, file_system, size, queues, write_cache="on", **more):
    """Kills the server under a guest; FOREBAY_GUEST_KILLS says how often."""
    image, disk = vhost_disk(bed, size, queues, extra=more.pop("extra", []) +
                             ["--write-cache", write_cache], **more)
    replayed = []

    def on_sync(_):
        # Under load: what the guest wrote meanwhile is in its ring, on its way or answered.
        writes = lambda: disk.stats()["counters"]["writes"]
        before = writes()
        eventually(lambda: writes() > before + 30, "the guest writes", seconds=120)
        disk.restart()
        eventually(lambda: device_of(bed, disk)["is_connected"], "QEMU comes back", seconds=60)
        eventually(lambda: writes() > 0, "the guest goes on", seconds=60)
        replayed.append(device_of(bed, disk)["replayed"])
        return "done"

    cache = "write back" if write_cache == "on" else "write through"
    rounds = int(os.environ.get("FOREBAY_GUEST_KILLS", "10"))
    run(bed, KILLS, disk, size // 512, queues, on_sync, 840, FS=file_system, CACHE=cache,
        ROUNDS=rounds)
    print("replayed after each kill:", replayed)
    # A single kill may fall between two requests, and a write log has nothing in flight for long.
    assert rounds < 4 or more.get("mode") or sum(replayed) > 0
    if more.get("mode"):
        bed.run([bed.program, "disk", "detach", "disk", "--control", bed.path("disk.control")])
        disk.was_ended = True
        assert disk.process.wait(60) == 0
    else:
        assert disk.stop() == 0
    fsck = ["xfs_repair", "-n", "-f"] if file_system == "xfs" else ["e2fsck", "-f", "-n"]
    bed.run(fsck + [image])


@test(forebay_only=True, timeout=900)
def a_guest_does_not_notice_kills_in_write_through(bed):
    kills(bed, "ext4", 96 * MIB, 2, uri="model:san?latency=50ms&inner=file:")


@test(forebay_only=True, timeout=900)
def a_guest_does_not_notice_kills_in_write_back(bed):
    kills(bed, "ext4", 96 * MIB, 2, mode="write-back", flash=bed.path("flash") + ":64MiB",
          extra=["--write-log", "16MiB"])


@test(forebay_only=True, timeout=900)
def a_guest_does_not_notice_kills_in_write_back_without_a_write_cache(bed):
    kills(bed, "xfs", 320 * MIB, 1, "off", mode="write-back", flash=bed.path("flash") + ":64MiB",
          extra=["--write-log", "16MiB"])
