"""What `forebay` says of daemons that start, and of those that do not answer."""
import json
import os
import signal
import subprocess
import time

from bed import MIB, eventually, test


def forebay(bed, *arguments):
    """What it says, its exit code, and how long it took."""
    begun = time.monotonic()
    result = bed.run([bed.program, *arguments], code=None)
    return result.stdout + result.stderr, result.returncode, time.monotonic() - begun


@test(forebay_only=True)
def a_disk_that_is_being_opened_is_listed_at_once(bed):
    image, control = bed.image("disk.raw", MIB), bed.path("db.control")
    os.mkfifo(image + ".forebay")  # nobody writes to it: whoever reads the sidecar waits
    command = [bed.program, "run", "file:" + image, "--name", "db", "--ram", "16MiB", "--control", control,
               "--state-dir", bed.path("state"), "--nbd", "unix:" + bed.path("db.sock")]
    starting = bed.spawn(command, stdout=subprocess.DEVNULL)
    eventually(lambda: os.path.exists(control), "it has its control socket")
    said, code, took = forebay(bed, "disk", "list", "--control", control)
    assert (said, code) == ("db  STARTING\n", 0) and took < 5, (said, took)
    said, code, took = forebay(bed, "disk", "show", "db", "--control", control)
    assert code == 1 and "disk 'db' is starting" in said and took < 5, (said, took)
    said, code, _ = forebay(bed, "events", "--control", control)
    assert code == 1 and "is starting" in said, said
    # Who follows is told of that, and of what happens later.
    follower = bed.spawn([bed.program, "events", "--follow", "--control", control], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    assert "is starting" in follower.stderr.readline()
    starting.kill()
    starting.wait()
    os.unlink(image + ".forebay")
    running = bed.spawn(command, stdout=subprocess.DEVNULL)
    eventually(lambda: os.path.exists(bed.path("db.sock")), "it is served", seconds=30)
    bed.run([bed.program, "disk", "set", "db", "--mode", "write-around", "--control", control])
    assert any("mode write-around was asked for" in line for line in follower.stdout)
    follower.kill()
    running.kill()


@test(forebay_only=True)
def a_disk_whose_storage_hangs_keeps_no_other_from_a_start(bed):
    entry = '[[disk]]\nname = "%s"\nbackend = "file:%s"\nram = "8MiB"\nnbd = ["unix:%s"]\n'
    disks = "".join(entry % (name, bed.image(name + ".raw", MIB), bed.path(name + ".sock")) for name in ("a", "b"))
    os.mkfifo(bed.path("a.raw.forebay"))  # nobody writes to it: whoever reads the sidecar waits
    control = bed.path("serve.control")
    server = bed.serve('control = "%s"\n%s' % (control, disks), ["unix:" + bed.path("b.sock")])
    said, code, _ = forebay(bed, "disk", "list", "--control", control)
    assert code == 0 and "does not answer" in said, said
    with open(bed.path("a.raw.forebay"), "w"):
        os.unlink(bed.path("a.raw.forebay"))
    eventually(lambda: os.path.exists(bed.path("a.sock")), "it is tried again", seconds=30)
    assert server.stop() == 0


@test(forebay_only=True)
def daemons_that_do_not_answer_are_asked_side_by_side_and_named(bed):
    if os.geteuid() == 0:  # a folder of control sockets of our own
        os.chmod(bed.directory, 0o755)
        bed.prefix = ["setpriv", "--reuid=65534", "--clear-groups", "env", "XDG_RUNTIME_DIR=" + bed.path("run")]
    else:
        bed.prefix = ["env", "XDG_RUNTIME_DIR=" + bed.path("run")]
    os.mkdir(bed.path("run"))
    os.chmod(bed.path("run"), 0o777)
    disks = []
    for name in ("a", "b", "c"):
        disk = bed.disk("mem:16MiB", name=name, nbd="unix:" + bed.path("run/%s.sock" % name), wait=False)
        at = disk.command.index("--control")
        del disk.command[at:at + 4]  # in the user's folder
        disk.start()
        disks.append(disk)
    for disk in disks[:2]:
        disk.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    said = bed.run([*bed.prefix, bed.program, "disk", "list"])
    took = time.monotonic() - begun
    listed = bed.run([*bed.prefix, bed.program, "disk", "list", "--json"], code=None)
    assert listed.returncode == 1 and "not all daemons answer" in listed.stderr, listed.stderr
    assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == ["c"], listed.stdout
    for disk in disks[:2]:
        disk.process.send_signal(signal.SIGCONT)
    assert took < 15, "one was asked after the other: %g s" % took
    assert "c  16 MiB" in said and said.count("NO ANSWER") == 2 and "a.control.sock" in said, said


@test(forebay_only=True)
def a_folder_of_control_sockets_that_somebody_else_made_is_not_used(bed):
    if os.geteuid() != 0:
        return
    os.chmod(bed.directory, 0o755)
    folder = bed.path("forebay")  # where the user's own would be
    os.mkdir(folder)
    disk = bed.disk("mem:16MiB", wait=False)
    disk.command[disk.command.index("--control") + 1] = bed.path("forebay/disk.control.sock")
    disk.start()
    os.chmod(bed.path("forebay/disk.control.sock"), 0o666)
    user = ["setpriv", "--reuid=65534", "--clear-groups", "env", "XDG_RUNTIME_DIR=" + bed.directory, bed.program]
    for command in (["stats"], ["disk", "show", "disk"], ["disk", "flush", "disk"]):
        result = bed.run([*user, *command], code=None)
        assert result.returncode == 1 and not result.stdout, result
        assert folder + " is not a folder of this user" in result.stderr, result.stderr
    assert disk.stop() == 0


@test(forebay_only=True)
def a_user_without_permission_is_told_who_has_it(bed):
    if os.geteuid() != 0:
        return
    os.chmod(bed.directory, 0o755)
    disk = bed.disk("mem:16MiB")
    result = bed.run(["setpriv", "--reuid=65534", "--clear-groups", bed.program, "stats", "disk", "--control",
                      bed.path("disk.control")], code=None)
    assert result.returncode == 1, result
    for text in ["user 65534 may not use the control socket", "(user 0)", "Permission denied"]:
        assert text in result.stderr, result.stderr
    assert disk.stop() == 0
