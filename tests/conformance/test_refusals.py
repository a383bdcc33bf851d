"""What cannot work is refused at the start, in words that say what to change."""
import os

from bed import MIB, Skip, free_port, pattern, test
import nbd
from test_primary import nbdkit


def refused(bed, arguments, *expected, code=None):
    result = bed.run([bed.program, *arguments], code=None, timeout=30)
    assert result.returncode != 0, "it was not refused"
    assert code is None or result.returncode == code, result.returncode
    assert "panicked" not in result.stderr, result.stderr
    for text in expected:
        assert text in result.stderr, "%r is not in: %s" % (text, result.stderr)


@test(forebay_only=True)
def wrong_sizes_name_the_argument_and_what_is_allowed(bed):
    at = ["--nbd", "unix:" + bed.path("s"), "--ram", "16MiB"]
    refused(bed, ["run", "mem:16MiB", *at, "--block-size", "3KiB"], "block-size", "4KiB", "1MiB")
    refused(bed, ["run", "mem:16MiB", *at, "--block-size", "2MiB"], "block-size", "1MiB")
    refused(bed, ["run", "mem:16MiB", "--ram", "12 apples"], "--ram")
    refused(bed, ["run", "mem:16MiB", "--ram=-1"], "--ram")
    refused(bed, ["run", "mem:16MiB", "--ram", "99999999999999TiB"], "--ram")
    refused(bed, ["run", "mem:16MiB", *at, "--flash", bed.path("f")], "--flash", "PATH:SIZE")
    refused(bed, ["run", "mem:16MiB", *at, "--mode", "fast"], "--mode", "write-through", "pass-through")
    refused(bed, ["run", "mem:16MiB", *at, "--policy", "best"], "--policy", "lru")
    refused(bed, ["run", "mem:16MiB", "--nbd", "nowhere"], "--nbd", "unix:PATH")
    refused(bed, ["run", "mem:16MiB", *at, "--grid-offset", "100"], "grid")


@test(forebay_only=True)
def a_disk_of_too_many_blocks_says_so_and_its_pool_is_as_before(bed):
    server = nbdkit(bed, "null", "size=%d" % (32 << 40))
    run = ["run", server.uri, "--nbd", "unix:" + bed.path("s"), "--ram", "16MiB"]
    flash = bed.path("pool") + ":64MiB"
    for more in ([], ["--flash", flash], ["--flash", flash, "--mode", "write-back"]):
        refused(bed, run + more, "too many blocks of 8192 bytes: use a larger block size")
    assert not os.path.exists(bed.path("pool")), "no disk has been in it"


@test(forebay_only=True)
def wrong_uris_name_what_is_wrong_with_them(bed):
    at = ["--nbd", "unix:" + bed.path("s"), "--ram", "16MiB"]
    for uri, expected in [
        ("disk.raw", "file:"),
        ("ftp://x/y", "ftp"),
        ("mem:lots", "lots"),
        ("mem:0", "mem"),
        ("file:", "path"),
        ("file:/nowhere/at/all.raw", "/nowhere/at/all.raw"),
        ("file:" + bed.directory, bed.directory),
        ("file:/tmp/x?colour=red", "colour"),
        ("nbd+unix:///x", "socket"),
        ("nbd+unix:///?socket=" + bed.path("nobody"), "nobody"),
        ("nbd://127.0.0.1:%d/" % free_port(), "127.0.0.1"),
        ("model:tape?inner=mem:16MiB", "tape"),
        ("model:san?iops=many&inner=mem:16MiB", "iops"),
        ("model:san?iops=5", "inner"),
        ("fault:rule=explode&inner=mem:16MiB", "explode"),
    ]:
        refused(bed, ["run", uri, *at], expected)


@test(forebay_only=True)
def too_much_metadata_is_refused_with_both_figures(bed):
    refused(bed, ["run", "mem:16MiB", "--ram", "64MiB", "--block-size", "4KiB", "--metadata-limit", "4KiB",
                  "--nbd", "unix:" + bed.path("s")], " KiB for metadata", "limit 4 KiB")


@test(forebay_only=True)
def a_second_server_on_the_same_socket_is_refused_and_the_first_lives(bed):
    disk = bed.disk("mem:16MiB")
    refused(bed, ["run", "mem:16MiB", "--name", "second", "--ram", "16MiB", "--nbd", disk.listen,
                  "--control", bed.path("second.control")], disk.socket)
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert h.get_size() == 16 * MIB


@test(forebay_only=True)
def a_second_server_on_the_same_flash_is_refused_and_the_first_lives(bed):
    flash = bed.path("flash") + ":16MiB"
    disk = bed.disk("file:" + bed.image("disk.raw", 8 * MIB), flash=flash)
    refused(bed, ["run", "mem:16MiB", "--name", "second", "--ram", "16MiB", "--flash", flash,
                  "--nbd", "unix:" + bed.path("second.sock"),
                  "--control", bed.path("second.control")], bed.path("flash"))
    h = nbd.NBD()
    h.connect_uri(disk.uri)
    assert bytes(h.pread(MIB, 0)) == pattern(0, MIB)
    assert not os.path.exists(bed.path("second.sock"))


@test(forebay_only=True)
def a_second_server_on_the_same_primary_storage_is_refused(bed):
    image = bed.image("disk.raw", 8 * MIB)
    bed.disk("file:" + image)
    refused(bed, ["run", "file:" + image, "--name", "second", "--ram", "16MiB",
                  "--nbd", "unix:" + bed.path("second.sock"),
                  "--control", bed.path("second.control")], image)


@test(forebay_only=True)
def flash_that_is_primary_storage_by_any_name_is_refused_before_it_is_written(bed):
    image = bed.image("disk.raw", 8 * MIB, "holes")
    os.symlink(image, bed.path("link"))
    os.link(image, bed.path("other"))
    at = ["--nbd", "unix:" + bed.path("s"), "--ram", "1MiB", "--control", bed.path("c")]
    for flash, more in [("disk.raw", []), ("link", []), ("other", ["--read-only"])]:
        result = bed.run([bed.program, "run", "file:" + image, *at, "--flash", bed.path(flash) + ":4MiB", *more],
                         code=None)
        assert result.returncode == 1 and "are one and the same" in result.stderr, result
        assert "process" not in result.stderr, result.stderr
    with open(bed.path("forebay.toml"), "w") as f:
        for name, backend, flash in [("a", "mem:1MiB", "disk.raw"), ("b", "mem:1MiB", "other")]:
            f.write('[[disk]]\nname = "%s"\nbackend = "%s"\nram = "1MiB"\nflash = "%s:4MiB"\nnbd = ["unix:%s"]\n'
                    % (name, backend, bed.path(flash), bed.path(name + ".sock")))
    refused(bed, ["serve", "--config", bed.path("forebay.toml")], "are one and the same", code=1)
    with open(image, "rb") as f:
        assert f.read() == bytes(8 * MIB), "it was written to"


@test(forebay_only=True)
def flash_with_data_anywhere_is_refused_and_kept(bed):
    at = ["--nbd", "unix:" + bed.path("s"), "--ram", "1MiB", "--control", bed.path("c")]
    flash = bed.image("it's.raw", 64 * MIB, "holes")
    with open(flash, "r+b") as f:
        f.seek(20 * MIB)
        f.write(bed.random.randbytes(MIB))
    with open(flash, "rb") as f:
        before = f.read()
    refused(bed, ["run", "mem:1MiB", *at, "--flash", flash + ":32MiB"], "not Forebay's at byte 20971520",
            "truncate -s 0 '%s'" % flash.replace("'", "'\\''"), code=1)
    with open(flash, "rb") as f:
        assert f.read() == before, "it was written to"
    # What was allocated or zeroed has nothing.
    for name, command in [("allocated", ["fallocate", "-l", "64MiB"]), ("zeroed", ["truncate", "-s", "0"])]:
        bed.run([*command, bed.path(name)])
        if name == "zeroed":
            with open(bed.path(name), "wb") as f:
                f.write(bytes(64 * MIB))
        disk = bed.disk("mem:1MiB", ram="1MiB", flash=bed.path(name) + ":32MiB", name=name)
        assert disk.stop() == 0


@test(forebay_only=True)
def a_pool_is_no_primary_storage(bed):
    at = ["--nbd", "unix:" + bed.path("s"), "--ram", "1MiB", "--control", bed.path("c"),
          "--state-dir", bed.path("state")]
    pool = bed.path("pool")
    disk = bed.disk("mem:1MiB", ram="1MiB", flash=pool + ":16MiB")
    assert disk.stop() == 0
    with open(pool, "rb") as f:
        before = f.read()
    refused(bed, ["run", "file:" + pool, *at], "is a flash pool of Forebay", "forebay pool show " + pool,
            "--raw-anyway", code=1)
    with open(pool, "rb") as f:
        assert f.read() == before, "it was written to"
    disk = bed.disk("file:" + pool, ram="1MiB", name="anyway", extra=["--raw-anyway"])
    assert disk.stop() == 0


@test(forebay_only=True)
def a_file_that_is_no_socket_is_not_removed(bed):
    with open(bed.path("precious"), "w") as f:
        f.write("data")
    refused(bed, ["run", "mem:16MiB", "--ram", "16MiB", "--nbd", "unix:" + bed.path("precious"),
                  "--control", bed.path("control")], "precious")
    with open(bed.path("precious")) as f:
        assert f.read() == "data"


@test(forebay_only=True)
def a_socket_lets_in_other_users_only_when_its_address_says_so(bed):
    if os.geteuid() != 0:
        raise Skip("only root can try to be another user")
    os.chmod(bed.directory, 0o711)
    nobody = 65534
    # Forebay makes the folder of each, and its service lets nobody else into a file of its own.
    bed.prefix = ["sh", "-c", 'umask 077; exec "$0" "$@"']
    at = "unix:" + bed.path("of-%s/socket")
    for name, options, lets_in in [("own", "", False), ("all", "?mode=0666", True),
                                   ("group", "?mode=0660&group=%d" % nobody, True)]:
        disk = bed.disk("mem:16MiB", name=name, nbd=at % name + options)
        result = bed.run(["nbdinfo", "--size", "nbd+unix:///?socket=" + bed.path("of-%s/socket" % name)],
                         code=None, user=nobody, group=nobody, extra_groups=[], cwd="/")
        assert (result.returncode == 0) == lets_in, name
        assert lets_in or "Permission denied" in result.stderr, result.stderr
        assert disk.stop() == 0


@test(forebay_only=True)
def the_socket_of_a_killed_server_is_taken_over(bed):
    disk = bed.disk("mem:16MiB")
    disk.restart()
    assert int(bed.run(["nbdinfo", "--size", disk.uri])) == 16 * MIB


@test(forebay_only=True)
def a_wrong_configuration_file_is_refused_by_key(bed):
    path = bed.path("forebay.toml")
    for text, expected in [
        ('[[disk]]\nname = "a"\n', "backend"),
        ('[[disk]]\nname = "a"\nbackend = "mem:1MiB"\ncolour = "red"\n', "colour"),
        ('[[disk]]\nname = "a"\nbackend = "mem:1MiB"\n' * 2, "a"),
        ('[[disk]\n', "forebay.toml"),
    ]:
        with open(path, "w") as f:
            f.write(text)
        refused(bed, ["serve", "--config", path], expected)
    refused(bed, ["serve", "--config", bed.path("none.toml")], "none.toml")
    os.mkfifo(bed.path("fifo"))
    for special in ["/dev/zero", bed.path("fifo")]:
        for more in [[], ["--check"]]:
            refused(bed, ["serve", "--config", special, *more], special, "not a regular file", code=2)
    os.truncate(path, 17 * MIB)
    refused(bed, ["serve", "--config", path], "more than 16 MiB", code=2)


@test(forebay_only=True)
def a_cache_of_no_size_and_an_advice_without_one_are_refused(bed):
    disk = bed.disk("mem:1MiB", ram="1MiB")
    mrc = ["disk", "mrc", "disk", "--control", bed.path("disk.control"), "--cache-size"]
    refused(bed, [*mrc, "0"], "below the block size", code=2)
    refused(bed, [*mrc, "1MiB,512"], "cache size 512 is below the block size 8192", code=2)
    bed.run([bed.program, *mrc, "1MiB,2MiB"])
    refused(bed, ["trace", "advise", bed.path("none")], "--ram <SIZE>|--flash <SIZE>", code=2)
    assert disk.stop() == 0


@test(forebay_only=True)
def command_lines_that_are_printed_reach_a_shell_whole(bed):
    folder = bed.path("it's, a folder")
    os.mkdir(folder)
    sock, control = folder + "/n b&d.sock", folder + "/c d.sock"
    disk = bed.disk("mem:1MiB", ram="1MiB", nbd="unix:" + sock, wait=False)
    disk.command[disk.command.index("--control") + 1] = control
    disk.start()
    lines = {}
    for line in disk.said.splitlines():
        words = line.split(None, 1)
        if words and words[0] in ("attach", "watch"):
            lines[words[0]] = words[1]
    assert int(bed.run(["sh", "-c", lines["attach"].replace("nbdinfo", "nbdinfo --size")])) == MIB
    shown = lines["watch"].replace("forebay", bed.program, 1).replace("--watch", "--json")
    assert '"name":"disk"' in bed.run(["sh", "-c", shown])
    assert disk.stop() == 0


@test(forebay_only=True)
def a_pool_that_this_user_may_not_write_is_told_once(bed):
    if os.geteuid() != 0:
        raise Skip("only root can be another user")
    pool = bed.path("pool")
    disk = bed.disk("mem:1MiB", ram="1MiB", flash=pool + ":16MiB")
    assert disk.stop() == 0
    for path, mode in [(bed.directory, 0o755), (pool, 0o600)]:
        os.chmod(path, mode)
    os.mkdir(bed.path("own"))
    os.chown(bed.path("own"), 65534, 65534)
    own = bed.path("own/")
    result = bed.run(
        [bed.program, "run", "mem:1MiB", "--ram", "1MiB", "--flash", pool + ":16MiB", "--nbd", "unix:" + own + "s",
         "--control", own + "c", "--state-dir", own + "st"],
        code=None, user=65534, group=65534, extra_groups=[], cwd="/")
    assert result.returncode == 1 and result.stderr.count("Permission denied") == 1, result.stderr
    assert "read-only" not in result.stderr and "read and write it" in result.stderr, result.stderr
