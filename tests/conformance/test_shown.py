"""What an operator sees is so: logs and exit codes, lists, flushes, states and events."""
import json
import os
import subprocess

from bed import KIB, MIB, Skip, eventually, pattern, test
from test_refusals import refused
from test_write_back import (DEFERRED, attach, disk_command, log_of, nbdkit_on, opened, read_file,
                             write_back, write_blocks)


def events(bed, disk):
    said = bed.run([bed.program, "events", disk.name, "--json",
                    "--control", bed.path(disk.name + ".control")])
    return [json.loads(line)["text"] for line in said.splitlines()]


def start_with(bed, disk, **more):
    """Starts the server of `disk` with other descriptors than the bed's; its process."""
    print("$", " ".join(disk.command), "&", flush=True)
    disk.process = subprocess.Popen(disk.command, **more)
    bed.processes.append(disk.process)
    eventually(disk.accepts, "%s accepts connections" % disk.name)


@test(forebay_only=True)
def nobody_needs_to_read_standard_error(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = write_back(bed, "file:" + image, extra=DEFERRED, wait=False)
    reader, writer = os.pipe()
    open(disk.log_path, "w").close()
    start_with(bed, disk, stdout=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    os.close(reader)
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 7), 0)
    disk_command(bed, disk, "set", "disk", "--mode", "write-through", "--wait")
    disk_command(bed, disk, "set", "disk", "--mode", "write-back", "--wait")
    assert any("write-back" in text for text in events(bed, disk)), events(bed, disk)
    h.pwrite(pattern(4096, 4096, 8), 4096)
    h.shutdown()
    assert disk.stop() == 0
    read = read_file(image)
    assert read(0, 8192) == pattern(0, 4096, 7) + pattern(4096, 4096, 8), "deferred, and destaged at the end"


@test(forebay_only=True)
def nobody_needs_to_read_standard_output(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, wait=False)
    reader, writer = os.pipe()
    os.close(reader)
    with open(disk.log_path, "wb") as log:
        start_with(bed, disk, stdout=writer, stderr=log)
    os.close(writer)
    assert bytes(attach(disk).pread(4096, 0)) == pattern(0, 4096)
    assert disk.stop() == 0
    assert "standard output" in disk.log(), disk.log()
    # Those who print are done when nobody reads; and an error is one even where it cannot be told.
    reader, writer = os.pipe()
    os.close(reader)
    assert subprocess.run([bed.program, "man"], stdout=writer, timeout=30).returncode == 0
    assert subprocess.run([bed.program, "disk", "show", "none", "--control", bed.path("none")],
                          stderr=writer, timeout=30).returncode == 1
    os.close(writer)


@test(forebay_only=True)
def a_flush_of_a_disk_without_log_flushes_primary_storage(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image)
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 7), 0)
    assert disk.stats()["unflushed_bytes"] > 0
    flushes = disk.stats()["counters"]["backend_flushes"]
    said = json.loads(disk_command(bed, disk, "flush", "disk", "--json"))
    assert said["clean"], said
    now = disk.stats()
    assert now["unflushed_bytes"] == 0 and now["counters"]["backend_flushes"] > flushes, now
    # A disk that has a log and does not use it, too.
    disk_command(bed, disk, "pause", "disk", code=1)


@test(forebay_only=True)
def a_failed_flush_is_not_said_to_be_one(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("fault:rule=error,op=flush&inner=file:" + image)
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 7), 0)
    result = bed.run([bed.program, "disk", "flush", "disk", "--control", bed.path("disk.control")],
                     code=None)
    assert result.returncode == 1 and "failed the flush" in result.stderr, result.stderr


@test(forebay_only=True)
def a_list_shows_what_is_so(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = write_back(bed, "file:" + image, extra=DEFERRED)
    h = attach(disk)
    disk_command(bed, disk, "pause", "disk")
    write_blocks(h, range(100))
    control = ["--control", bed.path("disk.control")]
    line = bed.run([bed.program, "disk", "list", *control])
    for text in ("write-back", "paused", "dirty", "DEFERRED"):
        assert text in line, line
    listed = json.loads(bed.run([bed.program, "disk", "list", "--json", *control]))
    assert listed["log_state"] == "paused" and listed["dirty_bytes"] > 100 * KIB, listed
    assert log_of(disk)["limited_by"] == "paused"
    assert "evidence" in json.loads(disk_command(bed, disk, "show", "disk", "--json"))
    disk_command(bed, disk, "resume", "disk")
    disk_command(bed, disk, "set", "disk", "--mode", "write-through", "--wait")
    listed = json.loads(bed.run([bed.program, "disk", "list", "--json", *control]))
    assert (listed["mode"], listed["mode_actual"]) == ("write-through", "write-through"), listed


@test(forebay_only=True)
def paused_destaging_goes_on_for_a_mode_without_log(bed):
    image, disk, h = opened(bed)
    disk_command(bed, disk, "pause", "disk")
    write_blocks(h, range(100))
    disk_command(bed, disk, "set", "disk", "--mode", "write-through", "--wait")
    assert any("goes on" in text for text in events(bed, disk)), events(bed, disk)


@test(forebay_only=True)
def a_flush_that_gets_nowhere_says_why_and_ends_in_time(bed):
    image = bed.image("disk.raw", 16 * MIB)
    primary = nbdkit_on(bed, image)
    disk = write_back(bed, "nbd+unix:///?socket=" + primary.socket)
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    disk_command(bed, disk, "flush", "disk")
    primary.kill()
    write_blocks(h, range(50))
    eventually(lambda: log_of(disk)["limited_by"] == "primary-lost", "it is lost")
    command = [bed.program, "disk", "flush", "disk", "--timeout", "12s", "--json", "--control",
               bed.path("disk.control")]
    result = bed.run(command, code=None)
    assert result.returncode == 1, result
    assert "no progress for" in result.stderr and "primary storage is lost" in result.stderr, result.stderr
    said = json.loads(result.stdout)
    assert not said["clean"] and "primary storage is lost" in said["reason"], said


@test(forebay_only=True)
def a_full_log_is_a_state_and_an_event(bed):
    image, disk, h = opened(bed)
    disk_command(bed, disk, "pause", "disk")
    cookies = [h.aio_pwrite(pattern(n * 65536 % (16 * MIB), 65536, 3), n * 65536 % (16 * MIB))
               for n in range(128)]

    def is_full():
        h.poll(100)
        return log_of(disk)["writes_waiting"] > 0

    def tells(what):
        h.poll(10)
        return any(what in text for text in events(bed, disk))

    eventually(is_full, "writers wait", seconds=60)
    eventually(lambda: tells("is full"), "an event tells that the log is full")
    assert tells("fills"), events(bed, disk)
    disk_command(bed, disk, "resume", "disk")
    while cookies:
        h.poll(100)
        cookies = [cookie for cookie in cookies if not h.aio_command_completed(cookie)]
    disk_command(bed, disk, "flush", "disk")
    eventually(lambda: tells("room again"), "an event tells that there is room again")
    assert log_of(disk)["state"] == "active"


@test(forebay_only=True)
def settings_that_would_change_nothing_are_refused(bed):
    at = ["run", "mem:16MiB", "--ram", "16MiB", "--nbd", "unix:" + bed.path("s")]
    log = [*at, "--mode", "write-back", "--flash", bed.path("pool") + ":16MiB"]
    refused(bed, [*log, "--max-dirty-age", "5s"], "--max-dirty-age", "deferred", code=2)
    refused(bed, [*log, "--accept-data-loss"], "--accept-data-loss", "deferred", code=2)
    refused(bed, [*log, "--flush-semantics", "deferred"], "--accept-data-loss", code=2)
    for setting in (["--destage-order", "window"], ["--max-destage-rate", "1MiB"],
                    ["--destage-barrier", "flush"], ["--flush-semantics", "deferred"],
                    ["--max-dirty-age", "5s"], ["--accept-data-loss"]):
        refused(bed, [*at, *setting], setting[0], "write log", code=2)


@test(forebay_only=True)
def a_mode_that_needs_a_log_gets_one_with_flash_and_says_without_that_it_needs_it(bed):
    disk = bed.disk("file:" + bed.image("disk.raw", 16 * MIB))
    change = [bed.program, "disk", "set", "disk", "--control", bed.path("disk.control"), "--mode", "write-back"]
    said = bed.run(change, code=None)
    assert said.returncode == 1 and "a write log needs flash" in said.stderr, said.stderr
    bed.run([*change, "--flash", bed.path("pool") + ":16MiB"])
    stats = disk.stats()
    assert stats["mode_actual"] == "write-back" and stats["log"] is not None, stats


@test(forebay_only=True)
def resolve_speaks_of_a_daemon_only_when_there_is_one(bed):
    command = [bed.program, "disk", "resolve", "disk", "--pool"]
    absent = bed.run([*command, bed.path("absent")], code=None)
    assert absent.returncode == 1 and "stop its daemon" not in absent.stderr, absent.stderr
    opened(bed)
    served = bed.run([*command, bed.path("pool")], code=None)
    assert served.returncode == 1 and "stop its daemon" in served.stderr, served.stderr


def full_pipe():
    """A pipe that nobody reads and that takes no more: both ends."""
    held, written = os.pipe()
    os.set_blocking(written, False)
    for length in [4096, 1]:
        try:
            while os.write(written, b"x" * length):
                pass
        except BlockingIOError:
            pass
    os.set_blocking(written, True)
    return held, written


@test(forebay_only=True)
def a_daemon_that_fails_ends_although_nobody_reads_why(bed):
    held, written = full_pipe()
    # Before it serves anything.
    absent = bed.disk("file:" + bed.path("absent"), ram="1MiB", wait=False)
    bed.servers.remove(absent)
    assert bed.spawn(absent.command, stdout=subprocess.DEVNULL, stderr=written).wait(30) == 1
    # And with events that wait for their reader: primary storage fails the flush at the end.
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("fault:rule=error,op=flush&inner=file:" + image, ram="1MiB", wait=False)
    open(disk.log_path, "w").close()
    start_with(bed, disk, stderr=written)
    h = attach(disk)
    h.pwrite(pattern(0, 4096, 1), 0)
    h.shutdown()
    assert disk.stop(timeout=30) == 1
    os.close(written)
    os.close(held)


@test(forebay_only=True)
def who_has_no_state_folder_is_told_that_nothing_is_locked(bed):
    if os.geteuid() != 0:
        raise Skip("only root can try to be another user")
    image = bed.image("disk.raw", 16 * MIB)
    primary = nbdkit_on(bed, image)
    for path, mode in [(bed.directory, 0o777), (primary.socket, 0o666)]:
        os.chmod(path, mode)
    disk = bed.disk(primary.uri, ram="1MiB", wait=False)
    at = disk.command.index("--state-dir")
    del disk.command[at:at + 2]
    disk.command = ["env", "-u", "HOME", "-u", "XDG_STATE_HOME", "setpriv", "--reuid=65534", "--regid=65534",
                    "--clear-groups", *disk.command]
    disk.start()
    assert "NOT LOCKED        this user has no state folder" in disk_command(bed, disk, "show", "disk")
    assert "--state-dir" in disk.stats()["unguarded"]
    assert any("no state folder" in text for text in events(bed, disk))
    assert disk.stop() == 0
    # With one, or where there is a lock anyway, nothing is said.
    for backend in [primary.uri, "file:" + image]:
        guarded = bed.disk(backend, ram="1MiB", name="guarded")
        assert guarded.stats()["unguarded"] is None
        assert guarded.stop() == 0


@test(forebay_only=True)
def a_log_that_nobody_reads_holds_nothing_up(bed):
    held, written = full_pipe()
    disk = bed.disk("mem:16MiB", ram="1MiB", wait=False)
    open(disk.log_path, "w").close()
    start_with(bed, disk, stderr=written)
    os.close(written)
    for mode in ["pass-through", "write-through"] * 3:
        disk_command(bed, disk, "set", "disk", "--mode", mode, "--wait")
    eventually(lambda: len([text for text in events(bed, disk) if "mode" in text]) >= 6,
               "what happened is recorded")
    assert disk.stop() == 0
    os.close(held)


@test(forebay_only=True)
def what_an_administrator_changes_is_an_event(bed):
    _, disk, h = opened(bed)
    for words in [["pause", "disk"], ["pause", "disk"], ["resume", "disk"], ["resume", "disk"],
                  ["set", "disk", "--mode", "write-through", "--wait"],
                  ["set", "disk", "--mode", "write-through", "--wait"]]:
        disk_command(bed, disk, *words)
    said = events(bed, disk)
    for what in ("destaging was paused", "destaging goes on", "mode write-through was asked for, instead of write-back"):
        assert sum(what in text for text in said) == 1, (what, said)
    h.shutdown()
    assert disk.stop() == 0


@test(forebay_only=True)
def what_nobody_reads_is_judged_all_the_same(bed):
    image = bed.image("disk.raw", 16 * MIB)
    disk = bed.disk("file:" + image, name="disk")
    served = ["--control", bed.path("disk.control")]
    with open(bed.path("bad.toml"), "w") as f:
        f.write("bogus = 1\n")
    for words in (["doctor", "--config", bed.path("bad.toml")], ["disk", "resize", "disk", "--json", *served],
                  ["disk", "set", "disk", "--ram", "512GiB", *served]):
        said = bed.run_unread([bed.program, *words])
        assert said.returncode == 1 and "forebay: " in said.stderr, said
    assert disk.stop() == 0
