#!/usr/bin/python3
"""A small Linux guest under QEMU that runs one shell script.

The guest is an initramfs of the host's busybox, nbd-client, open-iscsi, fio, e2fsprogs and xfsprogs with the
modules of Debian's cloud kernel. The kernel package is downloaded and unpacked into .cache/guest, never
installed; kernel and initramfs are made once. QEMU emulates the CPU (a run takes seconds, not
minutes): the guest shows what a real kernel's NBD client does, not how fast it is.

    script output -> virtio port "out"       exit code -> virtio port "code"
    `hostsync WORD` in the script sends a line to the host and waits for the answer: port "sync"

The host's loopback is 10.0.2.2 in the guest.

    vm.py kernel-is-here     exit code 0 when nothing has to be downloaded
    vm.py run SCRIPT         runs a script, for trying things out
"""
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(ROOT, ".cache", "guest")
KERNEL = "linux-image-cloud-amd64"
PROGRAMS = ["/bin/busybox", "nbd-client", "fio", "mke2fs", "e2fsck", "debugfs", "mkfs.xfs",
            "xfs_repair", "iscsid", "iscsiadm"]
LINKS = {"mkfs.ext4": "mke2fs", "fsck.ext4": "e2fsck"}
BOOT_MODULES = ["virtio_pci", "virtio_mmio", "virtio_console", "virtio_net"]
MODULES = BOOT_MODULES + ["nbd", "virtio_blk", "iscsi_tcp", "sd_mod", "ext4", "xfs", "crc32c_generic",
                          "crc32c_intel"]

# What init says first, how long it is waited for, and how often.
BEGUN = "init begins"
BOOT_MAX = 120
BOOTS = 3

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /mnt /var/lock
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
echo "%s" > /dev/console
export PATH=/bin HOME=/ TERM=dumb
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp
for module in %s; do modprobe -q $module; done
port() {
    for p in /sys/class/virtio-ports/*; do
        [ "$(cat $p/name 2>/dev/null)" = "$1" ] && echo /dev/${p##*/}
    done
}
# Devices appear a moment after their driver is loaded; without them there is nobody to tell.
await() {
    n=0
    until eval "$1"; do
        usleep 50000
        n=$((n+1))
        [ $n -lt 200 ] || { echo "never came true: $1" > /dev/console; poweroff -f; }
    done
}
await '[ -n "$(port code)" ]'
export SYNC_PORT=$(port sync)
ip link set lo up
await '[ -e /sys/class/net/eth0 ]'
ip link set eth0 up && ip addr add 10.0.2.15/24 dev eth0 && ip route add default via 10.0.2.2
sh /script > $(port out) 2>&1
echo $? > $(port code)
sync
poweroff -f
""" % (BEGUN, " ".join(BOOT_MODULES))

HOSTSYNC = """#!/bin/sh
exec 3<>$SYNC_PORT
echo "$*" >&3
read -r answer <&3
echo "$answer"
"""


class GuestError(Exception):
    pass


def run(script, on_sync=None, timeout=300, log=None, devices=()):
    """Runs `script` (text) in a guest; returns its exit code.

    `on_sync(line)` is called for each line of hostsync, what it returns is the answer. Output goes to
    `log`, a writable text file. `devices`: more arguments of QEMU; the guest's memory can be shared.
    """
    kernel, initramfs = build()
    with tempfile.TemporaryDirectory(prefix="forebay-guest.") as directory:
        at = lambda name: os.path.join(directory, name)
        with open(at("initramfs"), "wb") as f:
            with open(initramfs, "rb") as base:
                shutil.copyfileobj(base, f)
            archive = Cpio(f)
            archive.file("script", script.encode(), 0o755)
            archive.end()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(at("sync"))
        listener.listen(1)
        command = qemu(kernel, at) + list(devices)
        wrong = []
        guest = boot(command, at, listener, on_sync, wrong, log)
        try:
            try:
                guest.wait(timeout)
            except subprocess.TimeoutExpired:
                raise GuestError("the guest still runs after %d s\n%s" % (timeout, tail(at)))
        finally:
            if guest.poll() is None:
                guest.kill()
                guest.wait()
            listener.close()
        if wrong:
            raise wrong[0]
        with open(at("out"), errors="replace") as f:
            output = f.read()
        if log:
            log.write(output)
            log.flush()
        with open(at("code")) as f:
            code = f.read().strip()
        if not code.isdigit():
            raise GuestError("the guest ended without an exit code\n" + tail(at))
        return int(code)


def boot(command, at, listener, on_sync, wrong, log):
    """Starts the guest and waits for its init. Emulated on several threads, a kernel now and then locks up before it has init,
    and so before it knows of any disk: it is booted again."""
    for _ in range(BOOTS):
        guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, stdout=log)
        if on_sync:
            args = (listener, on_sync, guest, wrong)
            threading.Thread(target=answer, args=args, daemon=True).start()
        end = time.monotonic() + BOOT_MAX
        while time.monotonic() < end:
            if guest.poll() is not None or has_begun(at):
                return guest
            time.sleep(0.05)
        guest.kill()
        guest.wait()
        print("the guest's kernel has no init after %d s\n%s" % (BOOT_MAX, tail(at)), flush=True)
    raise GuestError("the guest's kernel does not come up: %d times" % BOOTS)


def has_begun(at):
    try:
        with open(at("console"), errors="replace") as f:
            return BEGUN in f.read()
    except FileNotFoundError:
        return False


def qemu(kernel, at):
    command = [
        "qemu-system-x86_64", "-no-user-config", "-nodefaults", "-no-reboot", "-display", "none",
        "-object", "memory-backend-memfd,id=memory,size=1G,share=on",
        "-machine", "q35,memory-backend=memory", "-accel", "tcg,thread=multi,tb-size=256",
        # A CPU without AVX: the guest would use that, and it is emulated slowly.
        "-cpu", "Nehalem-v1", "-smp", "2", "-m", "1G", "-kernel", kernel, "-initrd", at("initramfs"),
        # no_timer_check: on a busy host ticks of the emulated timer come late, and the kernel would give up at once.
        "-append", "console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off nokaslr "
                   "no_timer_check random.trust_cpu=1 net.ifnames=0",
        "-serial", "file:" + at("console"), "-device", "virtio-serial-pci",
        "-netdev", "user,id=net,ipv6=off", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci",
        "-chardev", "socket,id=sync,path=" + at("sync"),
        "-device", "virtserialport,chardev=sync,name=sync",
    ]
    for name in ("out", "code"):
        open(at(name), "w").close()
        command += ["-chardev", "file,id=%s,path=%s" % (name, at(name)),
                    "-device", "virtserialport,chardev=%s,name=%s" % (name, name)]
    return command


def reconnect():
    """How this QEMU is told to try again after a second: 9.2 has reconnect-ms, 10.2 has nothing else."""
    said = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True)
    version = re.search(r"version (\d+)\.(\d+)", said.stdout)
    is_new = tuple(map(int, version.groups())) >= (9, 2)
    return "reconnect-ms=1000" if is_new else "reconnect=1"


def vhost_user(path, queues=1):
    """A vhost-user-blk device that comes back to a server which was killed: /dev/vda in the guest."""
    return ["-chardev", "socket,id=disk,path=%s,%s" % (path, reconnect()),
            "-device", "vhost-user-blk-pci,chardev=disk,num-queues=%d" % queues]


def answer(listener, on_sync, guest, wrong):
    """Answers until the guest is gone. What goes wrong here ends the guest, which would wait for its answer for ever."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            try:
                reply = on_sync(line.strip())
            except Exception as error:
                wrong.append(error)
                guest.kill()
                return
            lines.write(str(reply) + "\n")
            lines.flush()


def tail(at):
    text = ""
    for name in ("console", "out"):
        if os.path.exists(at(name)):
            with open(at(name), errors="replace") as f:
                text += "--- %s\n%s" % (name, "".join(f.readlines()[-25:]))
    return text


# ---- kernel and initramfs, made once

def build():
    """Paths of kernel and initramfs. Tests that run side by side wait for the one that makes them."""
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_alone()


def build_alone():
    kernel, initramfs = os.path.join(CACHE, "vmlinuz"), os.path.join(CACHE, "initramfs")
    newest = max(os.path.getmtime(p) for p in [__file__] + [program(p) for p in PROGRAMS])
    if os.path.exists(initramfs) and os.path.getmtime(initramfs) > newest:
        return kernel, initramfs
    tree = unpack_kernel()
    version = os.listdir(os.path.join(tree, "lib/modules"))[0]
    subprocess.run(["depmod", "-b", tree, version], check=True)
    shutil.copy(os.path.join(tree, "boot", "vmlinuz-" + version), kernel)
    with open(initramfs + ".new", "wb") as f:
        archive = Cpio(f)
        archive.file("init", INIT.encode(), 0o755)
        archive.file("bin/hostsync", HOSTSYNC.encode(), 0o755)
        archive.node("dev/console", 5, 1)
        add_programs(archive)
        add_modules(archive, os.path.join(tree, "lib/modules", version), version)
        archive.end()
    os.rename(initramfs + ".new", initramfs)
    return kernel, initramfs


def kernel_is_here():
    return os.path.isdir(os.path.join(CACHE, "kernel"))


def unpack_kernel():
    tree = os.path.join(CACHE, "kernel")
    if not kernel_is_here():
        depends = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True)
        package = re.search(r"Depends: (linux-image-\S+)", depends.stdout)
        if not package:
            raise GuestError("apt knows no package %s: run `apt-get update`" % KERNEL)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            os.chmod(directory, 0o777)  # apt downloads as its own user
            subprocess.run(["apt-get", "download", "-qq", package[1]], cwd=directory, check=True)
            (name,) = os.listdir(directory)
            new = os.path.join(directory, "tree")
            subprocess.run(["dpkg-deb", "-x", os.path.join(directory, name), new], check=True)
            os.rename(new, tree)
    return tree


def program(name):
    path = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        raise GuestError("%s is not installed: run `make setup`" % name)
    return os.path.realpath(path)


def add_programs(archive):
    for name in PROGRAMS:
        path = program(name)
        archive.copy("bin/" + os.path.basename(name), path, 0o755)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for library in re.findall(r"(?:=> )?(/\S+)(?= \(0x)", listed):
            archive.copy(library, library, 0o755)
    archive.copy("lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib/x86_64-linux-gnu/libgcc_s.so.1", 0o755)
    for name, target in LINKS.items():
        archive.link("bin/" + name, target)
    listed = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        archive.link("bin/" + name, "busybox")


def add_modules(archive, directory, version):
    name_of = lambda path: os.path.basename(path).split(".ko")[0].replace("-", "_")
    depends, path_of = {}, {}
    with open(os.path.join(directory, "modules.dep")) as f:
        for line in f:
            path, _, rest = line.partition(":")
            depends[path] = rest.split()
            path_of[name_of(path)] = path
    wanted = {}
    for name in MODULES:
        if name in path_of:  # else it is built in
            wanted.update(dict.fromkeys([path_of[name]] + depends[path_of[name]]))
    base = "lib/modules/%s/" % version
    for path in wanted:
        archive.copy(base + path, os.path.join(directory, path))
    for name in ("modules.dep", "modules.alias", "modules.builtin"):
        archive.copy(base + name, os.path.join(directory, name))


class Cpio:
    """Writes an archive in the kernel's "newc" format."""

    def __init__(self, f):
        self.f, self.inode, self.seen = f, 0, set()

    def file(self, path, data, mode=0o644):
        self.entry(path, 0o100000 | mode, data)

    def copy(self, path, source, mode=0o644):
        with open(source, "rb") as f:
            self.file(path, f.read(), mode)

    def link(self, path, target):
        self.entry(path, 0o120777, target.encode())

    def node(self, path, major, minor):
        self.entry(path, 0o020600, b"", (major, minor))

    def end(self):
        self.write("TRAILER!!!", 0, b"", (0, 0))
        self.f.write(bytes(-self.f.tell() % 512))

    def entry(self, path, mode, data, device=(0, 0)):
        path = path.strip("/")
        if path in self.seen:
            return
        parent = os.path.dirname(path)
        if parent and parent not in self.seen:
            self.entry(parent, 0o040755, b"")
        self.seen.add(path)
        self.write(path, mode, data, device)

    def write(self, path, mode, data, device):
        self.inode += 1
        name = path.encode() + b"\0"
        numbers = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % n for n in numbers) + name
        self.f.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))


def main():
    if sys.argv[1:] == ["kernel-is-here"]:
        return 0 if kernel_is_here() else 1
    if len(sys.argv) == 3 and sys.argv[1] == "run":
        with open(sys.argv[2]) as f:
            return run(f.read(), log=sys.stdout)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
