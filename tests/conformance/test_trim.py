"""Discards on primary storage that punches no holes."""

import os
import subprocess

from bed import KIB, MIB, Skip, eventually, need_program, pattern, test
from test_write_back import attach, destaged

AT, LENGTH = 64 * KIB, 512 * KIB


@test(forebay_only=True, timeout=300)
def what_a_trim_left_stays_so_over_restarts_where_primary_storage_punches_no_holes(bed):
    need_program("strace")
    for mode in ["write-through", "write-around", "write-back"]:
        for ram in ["0", "2MiB"]:
            name = "%s-%s" % (mode, ram.lower())
            image = bed.image(name + ".raw", 4 * MIB)
            # The program itself stays the process that a test stops and kills.
            bed.prefix = ["strace", "-D", "-f", "-qq", "-o", bed.path("calls"), "-P", image,
                          "-e", "trace=fallocate", "-e", "inject=fallocate:error=EOPNOTSUPP"]
            log = ["--write-log", "4MiB"] if mode == "write-back" else []
            disk = bed.disk("file:" + image, ram=ram, flash=bed.path(name + ".pool") + ":16MiB",
                            mode=mode, name=name, extra=["--reactor", "epoll", *log])
            h = attach(disk)
            for _ in range(2):
                h.pread(MIB, 0)  # it is cached by now
            h.trim(LENGTH, AT)
            seen = bytes(h.pread(LENGTH, AT))
            zeroes = mode == "write-back"
            assert seen == (bytes(LENGTH) if zeroes else pattern(AT, LENGTH)), name
            for end in [disk.kill, disk.stop, disk.stop]:
                h.flush()
                assert bytes(h.pread(LENGTH, AT)) == seen, name
                end()
                disk.start()
                h = attach(disk)
                assert bytes(h.pread(LENGTH, AT)) == seen, name
            assert disk.stop() == 0
            with open(image, "rb") as f:
                f.seek(AT)
                assert f.read(LENGTH) in (seen, pattern(AT, LENGTH)), name


@test(forebay_only=True, timeout=300)
def what_was_trimmed_or_zeroed_stays_zeroes_on_a_file_system_whose_holes_keep_the_old_bytes(bed):
    for program in ["qemu-nbd", "nbdfuse", "fusermount3"]:
        need_program(program)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Skip("no access to /dev/fuse on this machine")
    for mode in ["write-back", "write-through"]:
        image, socket, mount = (bed.path(mode + end) for end in (".raw", ".qemu", ".fuse"))
        bed.image(mode + ".raw", 4 * MIB)
        bed.spawn(["qemu-nbd", "-t", "-f", "raw", "-e", "8", "-k", socket, "--discard=ignore", image])
        eventually(lambda: os.path.exists(socket), "qemu-nbd serves")
        os.mkdir(mount)
        bed.spawn(["nbdfuse", mount + "/disk.img", "--unix", socket])
        eventually(lambda: os.path.exists(mount + "/disk.img"), "nbdfuse has mounted")
        log = ["--write-log", "4MiB"] if mode == "write-back" else []
        disk = bed.disk("file:" + mount + "/disk.img", ram="2MiB", mode=mode, name=mode,
                        flash=bed.path(mode + ".pool") + ":16MiB", extra=log)
        h = attach(disk)
        h.pread(4 * MIB, 0)
        h.trim(LENGTH, AT)
        trimmed = bytes(h.pread(LENGTH, AT))
        h.zero(LENGTH, MIB + AT)
        for _ in range(2):
            if log:
                destaged(disk)
            h.flush()
            disk.kill()  # no sidecar can be beside it, so no end is in order
            disk.start()
            h = attach(disk)
            assert bytes(h.pread(LENGTH, AT)) == trimmed, mode
            assert bytes(h.pread(LENGTH, MIB + AT)) == bytes(LENGTH), mode
        assert trimmed in (bytes(LENGTH), pattern(AT, LENGTH)), mode
        disk.kill()
        unmount = ["fusermount3", "-u", mount]
        eventually(lambda: subprocess.run(unmount).returncode == 0, "nobody has the image")
