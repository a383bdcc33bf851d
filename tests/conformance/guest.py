"""What the Linux guests of the tests have in common: pieces of their scripts, and how they are run."""
import os

import vm
from bed import Skip, need_program

AWAIT = """
set -e
await() {
    n=0
    until eval "$1"; do usleep 50000; n=$((n+1)); [ $n -lt 400 ] || { echo "never: $1"; exit 9; }; done
}
# The kernel makes the node of a disk before the rest of it: a disk is there when it opens.
opens() { (: < $1) 2> /dev/null; }
"""

# Whatever the kernel says of an error of the disk fails the test.
NO_ERROR = """
dmesg | grep -i -E "I/O error|EXT4-fs error|XFS.*(error|corrupt)|blk_update_request|Buffer I/O" && exit 7
true
"""

# The server is killed again and again under verification and metadata; the guest goes on as if it had not been.
KILLS = """
modprobe xfs
if [ $FS = xfs ]; then mkfs.xfs -q -f $DEVICE; else mkfs.ext4 -q -F $DEVICE; fi
mount -t $FS $DEVICE /mnt
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
mount -t $FS $DEVICE /mnt
(cd /mnt && sha256sum -c /tmp/sums)
umount /mnt
if [ $FS = xfs ]; then xfs_repair -n $DEVICE; else e2fsck -f -n $DEVICE; fi
""" + NO_ERROR


def kills():
    """How often a server is killed under a guest."""
    return int(os.environ.get("FOREBAY_GUEST_KILLS", "10"))


# Seconds that a guest has for that, on a busy machine that emulates its CPU.
PATIENCE = 600 + 60 * kills()


def run(script, on_sync=None, timeout=280, devices=(), **settings):
    """Runs a script with settings as its variables; what the guest says goes to the test's log."""
    for program in ("qemu-system-x86_64", "fio", "depmod", "mkfs.xfs"):
        need_program(program)
    if not os.path.exists("/bin/busybox"):
        raise Skip("busybox-static is not installed")
    set_up = "".join("%s='%s'\n" % setting for setting in settings.items())
    with open("guest-log", "w+") as log:
        try:
            code = vm.run(set_up + script, on_sync, timeout, log, devices)
        finally:
            log.seek(0)
            print(log.read(), flush=True)
    assert code == 0, "exit code %d in the guest" % code


def check(bed, file_system, image):
    """Checks an image that no guest uses any more."""
    fsck = ["xfs_repair", "-n", "-f"] if file_system == "xfs" else ["e2fsck", "-f", "-n"]
    bed.run(fsck + [image])


def detach(bed, disk):
    """Ends a disk in write-back: all of it is in its image then."""
    bed.run([bed.program, "disk", "detach", disk.name, "--control", bed.path(disk.name + ".control")])
    disk.was_ended = True
    assert disk.process.wait(60) == 0
