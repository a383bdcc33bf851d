"""A Linux guest: the kernel's own NBD client and a file system on it."""
import os

import vm
from bed import MIB, Skip, free_port, need_program, test

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


def run(bed, script, disk, sectors, on_sync=None):
    for program in ("qemu-system-x86_64", "nbd-client", "fio", "depmod"):
        need_program(program)
    if not os.path.exists("/bin/busybox"):
        raise Skip("busybox-static is not installed")
    port = disk.listen.rsplit(":", 1)[1]
    with open("guest-log", "w+") as log:
        try:
            code = vm.run("PORT=%s SECTORS=%d\n%s" % (port, sectors, script), on_sync, 280, log)
        finally:
            log.seek(0)
            print(log.read(), flush=True)
    assert code == 0, "exit code %d in the guest" % code


def tcp_disk(bed, size):
    image = bed.image("disk.raw", size, "holes")
    disk = bed.disk("file:" + image, ram="16MiB", flash=bed.path("flash") + ":32MiB",
                    nbd="127.0.0.1:%d" % free_port())
    return image, disk


@test(timeout=300)
def ext4_on_the_kernels_client_verifies_and_passes_fsck(bed):
    image, disk = tcp_disk(bed, 96 * MIB)
    run(bed, VERIFY, disk, 96 * MIB // 512)
    disk.stop()
    bed.run(["e2fsck", "-f", "-n", image])


@test(timeout=300)
def what_a_guest_synced_is_there_after_a_kill_under_load(bed):
    _, disk = tcp_disk(bed, 96 * MIB)

    def on_sync(word):
        disk.kill() if word == "killed" else disk.start()
        return "done"

    run(bed, CRASH, disk, 96 * MIB // 512, on_sync)
