"""File systems on the disk, through nbdfuse: the disk is a file of the host."""
import os
import subprocess

from bed import MIB, Skip, eventually, need_program, test


def fuse(bed, disk, name="fuse"):
    """The path of a file that is the disk."""
    need_program("nbdfuse")
    need_program("fusermount3")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Skip("no access to /dev/fuse on this machine")
    mount = bed.path(name)
    os.mkdir(mount)
    process = bed.spawn(["nbdfuse", mount + "/disk.img", disk.uri])

    def is_there():
        assert process.poll() is None, "nbdfuse ended: %s" % process.poll()
        return os.path.exists(mount + "/disk.img")

    eventually(is_there, "nbdfuse has mounted")
    return process, mount + "/disk.img"


def unmount(bed, process, path):
    bed.run(["fusermount3", "-u", os.path.dirname(path)])
    assert process.wait(60) == 0


@test
def ext4_through_nbdfuse_keeps_its_files_and_passes_fsck(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = bed.disk("file:" + image, ram="8MiB", flash=bed.path("flash") + ":16MiB")
    process, path = fuse(bed, disk)
    bed.run(["mkfs.ext4", "-q", "-F", path])
    sources = [bed.image("file%d" % i, size, "random")
               for i, size in enumerate([0, 1, 4097, MIB, 5 * MIB + 123])]
    for source in sources:
        bed.run(["debugfs", "-w", "-R", "write %s %s" % (source, os.path.basename(source)), path])
    bed.run(["e2fsck", "-f", "-n", path])
    for source in sources:
        bed.run(["debugfs", "-R", "dump %s %s" % (os.path.basename(source), bed.path("copy")), path])
        bed.run(["cmp", source, bed.path("copy")])
    unmount(bed, process, path)
    disk.stop()
    bed.run(["e2fsck", "-f", "-n", image])


@test
def xfs_through_nbdfuse_passes_its_check_after_a_kill(bed):
    need_program("mkfs.xfs")
    image = bed.image("disk.raw", 320 * MIB, "holes")
    disk = bed.disk("file:" + image, ram="8MiB")
    process, path = fuse(bed, disk)
    bed.run(["mkfs.xfs", "-q", "-f", path])
    bed.run(["xfs_repair", "-n", path])
    unmount(bed, process, path)
    disk.restart()
    process, path = fuse_again(bed, disk)
    bed.run(["xfs_repair", "-n", path])
    unmount(bed, process, path)


def fuse_again(bed, disk):
    os.rmdir(bed.path("fuse"))
    return fuse(bed, disk)


@test
def a_mounted_ext4_survives_copying_and_remounting(bed):
    image = bed.image("disk.raw", 64 * MIB, "holes")
    disk = bed.disk("file:" + image, ram="8MiB", flash=bed.path("flash") + ":16MiB")
    process, path = fuse(bed, disk)
    bed.run(["mkfs.ext4", "-q", "-F", path])
    mount = bed.path("mnt")
    os.mkdir(mount)
    tree = "/usr/share/doc"

    def attach():
        done = subprocess.run(["mount", "-o", "loop", path, mount], capture_output=True, text=True)
        if done.returncode:
            raise Skip("no loop mount on this machine: " + done.stderr.strip())

    attach()
    copied = [os.path.join(tree, name) for name in sorted(os.listdir(tree))[:60]]
    bed.run(["cp", "-r", "-L", *copied, mount], code=None)  # dangling links are not copied
    sums = bed.run(["sh", "-c", "cd %s && find . -type f -exec sha256sum {} + | sort" % mount])
    assert sums
    bed.run(["umount", mount])
    bed.run(["e2fsck", "-f", "-n", path])
    attach()
    again = bed.run(["sh", "-c", "cd %s && find . -type f -exec sha256sum {} + | sort" % mount])
    bed.run(["umount", mount])
    assert sums == again
    unmount(bed, process, path)
