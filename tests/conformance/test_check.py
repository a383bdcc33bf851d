"""`forebay serve --check` finds what would keep a start from serving what is configured."""
import json
import os

from bed import MIB, free_port, test


class Config:
    def __init__(self, bed):
        self.bed, self.text = bed, 'state-dir = "%s"\ncontrol = "%s"\n' % (bed.path("state"), bed.path("control"))
        self.count = 0

    def disk(self, backend, **more):
        self.count += 1
        settings = {"ram": "16MiB", "nbd": ["unix:" + self.bed.path("%d.sock" % self.count)], **more}
        lines = ["%s = %s" % (key.replace("_", "-"), json.dumps(value)) for key, value in settings.items()]
        self.text += '[[disk]]\nname = "d%d"\nbackend = "%s"\n%s\n' % (self.count, backend, "\n".join(lines))
        return self

    def check(self, *expected):
        path = self.bed.path("check.toml")
        with open(path, "w") as f:
            f.write(self.text)
        before = sorted(os.listdir(self.bed.directory))
        result = self.bed.run([self.bed.program, "serve", "--config", path, "--check"], code=None)
        assert sorted(os.listdir(self.bed.directory)) == before, "it changed something"
        assert result.returncode == (1 if expected else 0), result
        for text in expected:
            assert text in result.stderr, (text, result.stderr)
        assert ("is fine" in result.stdout) == (not expected), result.stdout


@test(forebay_only=True)
def a_check_finds_what_is_wrong_with_primary_storage(bed):
    a, b = bed.image("a.raw", MIB), bed.image("b.raw", MIB)
    os.symlink(a, bed.path("link"))
    with open(bed.path("c.qcow2"), "wb") as f:
        f.write(b"QFI\xfb" + bytes(MIB - 4))
    Config(bed).disk("file:" + a).disk("file:" + b).check()
    Config(bed).disk("file:" + a).disk("file:" + bed.path("link")).check(
        "primary storage of disk 'd1' and primary storage of disk 'd2' are one and the same")
    Config(bed).disk("file:" + a, read_only=True).disk("file:" + a, read_only=True).check()
    nbd = "nbd+unix:///x?socket=" + bed.path("other.sock")
    Config(bed).disk(nbd).disk(nbd + "&connections=2").check("are one and the same")
    Config(bed).disk("file:" + bed.path("missing.raw")).check("disk 'd1'", "missing.raw")
    Config(bed).disk("file:" + bed.path("c.qcow2")).check("is a qcow2 image", "qemu-nbd")
    Config(bed).disk("file:" + a, flash=a + ":64MiB").check("the flash %s" % a)
    Config(bed).disk("file:" + a, read_only=True, flash=a + ":64MiB").check("are one and the same")
    Config(bed).disk("file:" + a).check()


@test(forebay_only=True)
def a_check_finds_what_is_wrong_with_memory_flash_and_addresses(bed):
    port = free_port()
    Config(bed).disk("mem:1MiB", ram="1TiB", metadata_limit="1TiB").check("memory", "all disks together")
    Config(bed).disk("mem:1MiB", ram="64GiB", block_size="4KiB", metadata_limit="1MiB").check("metadata")
    Config(bed).disk("mem:1MiB", flash=bed.path("nowhere/pool") + ":64MiB").check("there is no folder", "nowhere")
    Config(bed).disk("mem:1MiB", flash=bed.path("pool") + ":1024TiB", metadata_limit="1024TiB", block_size="1MiB").check(
        "free")
    Config(bed).disk("mem:1MiB", nbd=["127.0.0.1:%d" % port]).disk("mem:1MiB", nbd=["0.0.0.0:%d" % port]).check(
        "two listeners use one address")
    Config(bed).disk("mem:1MiB", nbd=["192.0.2.1:%d" % port]).check("this host does not have it")
    os.symlink(bed.directory, bed.path("again"))
    Config(bed).disk("mem:1MiB", nbd=["unix:" + bed.path("x")]).disk(
        "mem:1MiB", nbd=["unix:" + bed.path("again/x")]).check("have one socket")
    with open(bed.path("file"), "w"):
        pass
    Config(bed).disk("mem:1MiB", nbd=["unix:" + bed.path("file/x")]).check("is no folder")
    Config(bed).disk("mem:1MiB", nbd=["unix:" + bed.path("new/x")]).check()


@test(forebay_only=True)
def a_check_beside_the_daemon_that_runs_is_fine(bed):
    image, port = bed.image("a.raw", MIB), free_port()
    listen = "127.0.0.1:%d" % port
    config = Config(bed).disk("file:" + image, nbd=[listen], flash=bed.path("pool") + ":64MiB")
    server = bed.serve(config.text.partition("\n")[2], [listen])
    config.check()
    assert server.stop() == 0
