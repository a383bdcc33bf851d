"""Images that are not raw: they are refused with what serves them, and no guest can lock itself out of a raw one."""
import os
import re
import shlex

from bed import MIB, eventually, need_program, pattern, test
import nbd

QCOW2 = b"QFI\xfb\0\0\0\3" + bytes(504)


def write_first_sector(disk, data):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    h.pwrite(data, 0)
    h.flush()
    h.shutdown()


def first_sector(disk):
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    return bytes(h.pread(512, 0))


def refusal(bed, image, *more):
    command = [bed.program, "run", "file:" + image, "--ram", "16MiB", "--nbd", "unix:" + bed.path("refused.sock"),
               "--control", bed.path("refused.control"), "--state-dir", bed.path("state"), *more]
    result = bed.run(command, code=None, timeout=30)
    assert result.returncode != 0, "it was not refused"
    return result.stderr


@test(forebay_only=True)
def an_image_that_is_not_raw_is_refused_with_the_line_that_serves_it(bed):
    need_program("qemu-img")
    for form, options, name in [("qcow2", [], "qcow2"), ("qed", [], "QED"), ("vmdk", [], "VMDK"), ("vdi", [], "VDI"),
                                ("vmdk", ["-o", "subformat=streamOptimized"], "VMDK"), ("vhdx", [], "VHDX"),
                                ("vpc", [], "VHD"), ("vpc", ["-o", "subformat=fixed,force_size"], "VHD")]:
        image = bed.path("disk." + form)
        bed.run(["qemu-img", "create", "-q", "-f", form, *options, image, "64M"])
        said = refusal(bed, image)
        for text in ["is a %s image" % name, "qemu-nbd ", "--format=" + form, "--raw-anyway", "raw-anyway = true"]:
            assert text in said, (form, text, said)
        os.unlink(image)


@test(forebay_only=True)
def the_line_that_is_given_serves_what_is_in_the_image(bed):
    need_program("qemu-nbd")
    image = bed.path("it's one.qcow2")
    raw = bed.image("raw", 4 * MIB)
    bed.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image])
    name = "format-%d" % os.getpid()
    said = refusal(bed, image, "--name", name)
    line = shlex.split(re.search(r"^ *(qemu-nbd .*)$", said, re.M).group(1))
    uri = re.search(r"nbd\+unix://\S+", said).group(0)
    socket = uri.partition("socket=")[2]
    line.remove("--fork")
    server = bed.spawn(line)
    try:
        eventually(lambda: os.path.exists(socket), "qemu-nbd listens")
        disk = bed.disk(uri)
        assert first_sector(disk) == pattern(0, 512)
        assert disk.stop() == 0
    finally:
        server.kill()
        server.wait()
        if os.path.exists(socket):
            os.unlink(socket)


@test(forebay_only=True)
def a_text_file_that_describes_a_disk_is_called_by_its_name(bed):
    image = bed.path("disk.vmdk")
    with open(image, "w") as f:
        f.write("# Disk DescriptorFile\nversion=1\nCID=fffffffe\nRW 8192 VMFS \"disk-flat.vmdk\"\n")
    said = refusal(bed, image)
    assert "is a VMDK image" in said and "make it longer" not in said, said


@test(forebay_only=True)
def who_says_so_has_an_image_served_as_raw(bed):
    image = bed.image("disk.raw", 4 * MIB)
    with open(image, "r+b") as f:
        f.write(QCOW2)
    refusal(bed, image)
    disk = bed.disk("file:" + image, extra=["--raw-anyway"])
    assert first_sector(disk) == QCOW2
    assert disk.stop() == 0
    listen = "unix:" + bed.path("toml.sock")
    server = bed.serve("""
control = "%s"
[[disk]]
name = "disk"
backend = "file:%s"
raw-anyway = true
ram = "16MiB"
nbd = ["%s"]
""" % (bed.path("serve.control"), image, listen), [listen])
    assert first_sector(server) == QCOW2
    assert server.stop() == 0


@test(forebay_only=True)
def a_guest_that_writes_the_header_of_an_image_keeps_its_disk(bed):
    for name, flash in [("plain", None), ("cached", bed.path("flash") + ":64MiB")]:
        image = bed.image(name + ".raw", 4 * MIB)
        disk = bed.disk("file:" + image, name=name, flash=flash)
        write_first_sector(disk, QCOW2)
        disk.kill()
        disk.start()
        assert first_sector(disk) == QCOW2
        assert disk.stop() == 0
        disk.start()
        assert first_sector(disk) == QCOW2
        assert disk.stop() == 0


@test(forebay_only=True)
def an_image_that_takes_the_place_of_a_raw_one_is_refused(bed):
    need_program("qemu-img")
    image = bed.image("disk.raw", 4 * MIB)
    disk = bed.disk("file:" + image)
    first_sector(disk)
    assert disk.stop() == 0
    bed.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", image, bed.path("new")])
    os.replace(bed.path("new"), image)
    assert "is a qcow2 image" in refusal(bed, image)
