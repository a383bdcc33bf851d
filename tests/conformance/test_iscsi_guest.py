"""A Linux guest with its own initiator, open-iscsi: digests, verification, and a target that is killed under load."""
import guest
from bed import MIB, eventually, free_port, need_program, test
from iscsi import TARGET

# No discovery: the portal that the target tells is the one of the host's loopback.
ATTACH = guest.AWAIT + """
for module in iscsi_tcp sd_mod crc32c ext4; do modprobe $module; done
mkdir -p /etc/iscsi /run/lock/iscsi /var/lock
echo InitiatorName=iqn.2026-11.local.forebay:guest > /etc/iscsi/initiatorname.iscsi
echo node.startup = manual > /etc/iscsi/iscsid.conf
echo root:x:0:0:root:/:/bin/sh > /etc/passwd
iscsid
node() { iscsiadm -m node -T $TARGET -p 10.0.2.2:$PORT "$@"; }
node -o new
for setting in 'node.conn[0].iscsi.HeaderDigest CRC32C' 'node.conn[0].iscsi.DataDigest CRC32C' \\
    'node.session.timeo.replacement_timeout 300'; do
    node -o update -n "${setting% *}" -v "${setting#* }"
done
node --login
await 'opens /dev/sda'
for digest in header_digest data_digest; do
    [ "$(cat /sys/class/iscsi_connection/connection*/$digest)" = 1 ] || { echo "no $digest"; exit 8; }
done
[ "$(cat /sys/block/sda/size)" = "$SECTORS" ]
cat /sys/block/sda/device/vendor /sys/block/sda/queue/write_cache
"""

DETACH = """
node --logout
await '[ ! -b /dev/sda ]'
"""

VERIFY = ATTACH + """
mkfs.ext4 -q /dev/sda
mount -t ext4 -o discard /dev/sda /mnt
fio --name=verify --directory=/mnt --size=24m --rw=randwrite --bsrange=512-64k --ioengine=psync \\
    --direct=1 --verify=crc32c --verify_fatal=1 --fsync=64 --output-format=terse
rm /mnt/verify*
for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/mnt/f$i bs=64k count=$i 2>/dev/null; done
(cd /mnt && sha256sum f*) > /tmp/sums
umount /mnt
""" + DETACH + """
node --login
await 'opens /dev/sda'
mount -t ext4 /dev/sda /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
""" + guest.NO_ERROR + DETACH


def iscsi_disk(bed, size, extra=(), **more):
    need_program("iscsid")
    image, port = bed.image("disk.raw", size, "holes"), free_port()
    disk = bed.disk("file:" + image, ram="16MiB", extra=["--iscsi", "127.0.0.1:%d" % port, *extra], **more)
    return image, disk, {"SECTORS": size // 512, "PORT": port, "TARGET": TARGET}


@test(forebay_only=True, timeout=400)
def ext4_on_open_iscsi_verifies(bed):
    image, disk, about = iscsi_disk(bed, 96 * MIB, flash=bed.path("flash") + ":32MiB")
    guest.run(VERIFY, timeout=340, **about)
    assert disk.stop() == 0
    guest.check(bed, "ext4", image)


@test(forebay_only=True, timeout=guest.PATIENCE + 60)
def open_iscsi_comes_back_after_kills(bed):
    image, disk, about = iscsi_disk(bed, 320 * MIB, mode="write-back", flash=bed.path("flash") + ":64MiB",
                                    extra=["--write-log", "16MiB"])

    def on_sync(_):
        writes = lambda: disk.stats()["counters"]["writes"]
        before = writes()
        eventually(lambda: writes() > before + 30, "the guest writes", seconds=120)
        disk.restart()
        eventually(lambda: writes() > 0, "the guest goes on", seconds=120)
        return "done"

    guest.run(ATTACH + guest.KILLS + DETACH, on_sync, guest.PATIENCE, FS="xfs", DEVICE="/dev/sda",
              ROUNDS=guest.kills(), **about)
    guest.detach(bed, disk)
    guest.check(bed, "xfs", image)
