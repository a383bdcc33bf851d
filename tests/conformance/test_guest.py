"""A Linux guest: the kernel's own NBD client and a file system on it."""
import guest
from bed import MIB, eventually, free_port, test

ATTACH = """
set -e
modprobe nbd
modprobe ext4
attach() {
    nbd-client -N disk -C 2 10.0.2.2 $PORT /dev/nbd0 >/dev/null
    [ "$(cat /sys/block/nbd0/size)" = "$SECTORS" ]
}
attach
"""

VERIFY = ATTACH + """
# Without this the kernel would send no flush.
[ "$(cat /sys/block/nbd0/queue/write_cache)" = "write back" ]
mkfs.ext4 -q -F /dev/nbd0
mount -t ext4 -o discard /dev/nbd0 /mnt
fio --name=verify --directory=/mnt --size=24m --rw=randwrite --bsrange=512-64k --ioengine=psync \\
    --direct=1 --verify=crc32c --verify_fatal=1 --fsync=64 --output-format=terse
rm /mnt/verify*
fstrim /mnt || echo "no fstrim"
for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/mnt/f$i bs=64k count=$i 2>/dev/null; done
(cd /mnt && sha256sum f*) > /tmp/sums
umount /mnt
e2fsck -f -n /dev/nbd0
mount -t ext4 /dev/nbd0 /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
nbd-client -d /dev/nbd0
"""

CRASH = ATTACH + """
mkfs.ext4 -q -F /dev/nbd0
mount -t ext4 /dev/nbd0 /mnt
for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/mnt/f$i bs=64k count=$i conv=fsync 2>/dev/null; done
(cd /mnt && sha256sum f*) > /tmp/sums
sync
# Load that nobody has made durable, until the server dies under it.
(while dd if=/dev/urandom of=/mnt/load bs=256k count=40 2>/dev/null; do :; done) &
load=$!
hostsync killed
wait $load || true
umount -f /mnt || umount -l /mnt
nbd-client -d /dev/nbd0 || true
hostsync restarted
attach
e2fsck -f -p /dev/nbd0 || [ $? = 1 ]
e2fsck -f -n /dev/nbd0
mount -t ext4 /dev/nbd0 /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
nbd-client -d /dev/nbd0
"""


# A file system that is killed again and again under metadata and data, most of it not synced. What was synced in
# any round stays; fsck and the journal have to agree with it each time.
KILLS = ATTACH + """
modprobe xfs
make_fs() { if [ $FS = xfs ]; then mkfs.xfs -q -f /dev/nbd0; else mkfs.ext4 -q -F /dev/nbd0; fi; }
check_fs() {
    if [ $FS = xfs ]; then
        # Mounting replays the journal, which xfs_repair wants before it looks.
        mount -t xfs /dev/nbd0 /mnt && umount /mnt && xfs_repair -n /dev/nbd0 >/tmp/repair 2>&1 || {
            cat /tmp/repair; return 1; }
    else
        e2fsck -f -p /dev/nbd0 || [ $? = 1 ]
        e2fsck -f -n /dev/nbd0
    fi
}
churn() {
    n=0
    rm -rf /mnt/churn
    while :; do
        n=$((n+1))
        # So that the server is killed among the writes of a sync, too.
        [ $((n % 4)) != 0 ] || sync
        mkdir -p /mnt/churn/$n || return 0
        for i in 1 2 3 4 5 6; do
            echo $n.$i > /mnt/churn/$n/$i && ln /mnt/churn/$n/$i /mnt/churn/$n/link$i \
                && mv /mnt/churn/$n/$i /mnt/churn/$n/moved$i || return 0
        done
        dd if=/dev/urandom of=/mnt/churn/$n/data bs=32k count=4 2>/dev/null || return 0
        truncate -s 50000 /mnt/churn/$n/data || return 0
        [ $n -lt 6 ] || rm -r /mnt/churn/$((n-5)) || return 0
    done
}
[ "$(cat /sys/block/nbd0/queue/write_cache)" = "$CACHE" ]
make_fs
: > /tmp/sums
round=0
while [ $round -lt $ROUNDS ]; do
    round=$((round+1))
    mount -t $FS /dev/nbd0 /mnt
    [ ! -s /tmp/sums ] || (cd /mnt && sha256sum -c /tmp/sums)
    # Kept: a file that is made durable, beside one that replaces an older one by rename.
    mkdir -p /mnt/kept
    for name in $((round % 5)) last; do
        dd if=/dev/urandom of=/mnt/kept/new bs=16k count=$((round % 7 + 3)) conv=fsync 2>/dev/null
        mv /mnt/kept/new /mnt/kept/$name
    done
    sync
    (cd /mnt && sha256sum kept/*) > /tmp/sums
    churn 2>/dev/null &
    churn=$!
    hostsync killed
    wait $churn || true
    umount -f /mnt || umount -l /mnt
    nbd-client -d /dev/nbd0 || true
    hostsync restarted
    attach
    check_fs
done
mount -t $FS /dev/nbd0 /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
nbd-client -d /dev/nbd0
"""


def run(script, disk, size, on_sync=None, timeout=280, **settings):
    port = disk.listen.rsplit(":", 1)[1]
    guest.run(script, on_sync, timeout, PORT=port, SECTORS=size // 512, **settings)


def tcp_disk(bed, size):
    image = bed.image("disk.raw", size, "holes")
    disk = bed.disk("file:" + image, ram="16MiB", flash=bed.path("flash") + ":32MiB",
                    nbd="127.0.0.1:%d" % free_port())
    return image, disk


@test(timeout=300)
def ext4_on_the_kernels_client_verifies_and_passes_fsck(bed):
    image, disk = tcp_disk(bed, 96 * MIB)
    run(VERIFY, disk, 96 * MIB)
    disk.stop()
    bed.run(["e2fsck", "-f", "-n", image])


@test(timeout=300)
def what_a_guest_synced_is_there_after_a_kill_under_load(bed):
    _, disk = tcp_disk(bed, 96 * MIB)

    def on_sync(word):
        disk.kill() if word == "killed" else disk.start()
        return "done"

    run(CRASH, disk, 96 * MIB, on_sync)


def kills(bed, file_system, size, write_cache):
    """Kills the server under a file system; FOREBAY_GUEST_KILLS says how often."""
    image = bed.image("disk.raw", size, "holes")
    disk = bed.disk("file:" + image, mode="write-back", ram="16MiB",
                    flash=bed.path("flash") + ":64MiB", nbd="127.0.0.1:%d" % free_port(),
                    extra=["--write-log", "16MiB", "--write-cache", write_cache])

    def on_sync(word):
        if word == "killed":
            # Under load: what the churn wrote meanwhile is in the log, or on its way.
            before = disk.stats()["counters"]["writes"]
            eventually(lambda: disk.stats()["counters"]["writes"] > before + 20,
                       "the guest writes", seconds=120)
            disk.kill()
        else:
            disk.start()
        return "done"

    cache = "write back" if write_cache == "on" else "write through"
    run(KILLS, disk, size, on_sync, guest.PATIENCE, FS=file_system, CACHE=cache, ROUNDS=guest.kills())
    guest.detach(bed, disk)
    guest.check(bed, file_system, image)


@test(forebay_only=True, timeout=guest.PATIENCE + 60)
def ext4_on_write_back_outlives_kills_under_load(bed):
    kills(bed, "ext4", 96 * MIB, "on")


@test(forebay_only=True, timeout=guest.PATIENCE + 60)
def xfs_on_write_back_outlives_kills_under_load(bed):
    kills(bed, "xfs", 320 * MIB, "on")
