"""`forebay doctor` and `forebay support-bundle`."""
import json
import os
import subprocess
import tarfile

from bed import MIB, Skip, eventually, test

SECRET, OTHER = "correct-horse-battery", "never-to-be-seen-77"
PAYLOAD = b"PAYLOAD-OF-A-GUEST"


def checks(bed, *options, code=0, prefix=()):
    said = bed.run([*prefix, bed.program, "doctor", "--json", *options], code=None)
    assert said.returncode == code, said.stderr
    found = json.loads(said.stdout)
    assert all(check["advice"] for check in found if check["verdict"] != "ok"), found
    return {check["check"]: check for check in found}, said.stderr


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


@test(forebay_only=True)
def the_doctor_looks_at_the_host(bed):
    environment = dict(os.environ, STATE_DIRECTORY=bed.path("state"))
    said = bed.run([bed.program, "doctor"], env=environment)
    for check in ["kernel", "io_uring", "huge-pages", "memlock", "open-files", "processors", "staging", "state"]:
        assert any(check in line.split()[:2] for line in said.splitlines()), check


@test(forebay_only=True)
def the_doctor_sees_low_limits(bed):
    low = ["sh", "-c", 'ulimit -l 64; ulimit -n 200; exec "$@"', "sh"]
    listen, control = "unix:" + bed.path("a.sock"), bed.path("control")
    text = ('state-dir = "%s"\ncontrol = "%s"\n[[disk]]\nname = "a"\nbackend = "mem:16MiB"\nram = "16MiB"\nnbd = ["%s"]\n'
            % (bed.path("state"), control, listen))
    config = write(bed.path("forebay.toml"), text)
    found, _ = checks(bed, "--config", config, prefix=low)
    assert "this shell: up to 64 KiB" in found["memlock"]["found"], found
    bed.prefix = low
    server = bed.serve(text.partition("\n")[2], [listen])
    found, _ = checks(bed, "--config", config)
    assert "daemon forebay: up to 64 KiB" in found["memlock"]["found"], "the daemon's limits count"
    assert server.stop() == 0
    found, _ = checks(bed, "--config", config, prefix=low)
    assert found["memlock"]["verdict"] == "warning" and "64 KiB" in found["memlock"]["found"], found
    assert found["open-files"]["verdict"] == "warning", found


@test(forebay_only=True)
def the_doctor_sees_that_io_uring_is_forbidden(bed):
    """A filter as of a unit or a container: io_uring_setup fails with EPERM."""
    import ctypes
    import struct
    libc = ctypes.CDLL(None)
    code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 425, 0x06, 0, 0, 0x00050001, 0x06, 0, 0, 0x7fff0000)
    if os.uname().machine != "x86_64":
        raise Skip("the filter of the test is for x86_64")

    def forbid():
        class Program(ctypes.Structure):
            _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.byref(Program(4, code)), 0, 0) == 0
    said = subprocess.run([bed.program, "doctor", "--json"], capture_output=True, text=True, preexec_fn=forbid)
    found = {check["check"]: check for check in json.loads(said.stdout)}
    assert found["io_uring"]["verdict"] == "warning" and "seccomp" in found["io_uring"]["found"], found["io_uring"]


@test(forebay_only=True)
def the_doctor_checks_what_is_configured(bed):
    image = bed.image("disk.raw", 4 * MIB)
    disk = '[[disk]]\nbackend = "file:%s"\nram = "16MiB"\nnbd = ["unix:%s"]\nflash = "%s:64MiB"\n'
    state = 'state-dir = "%s"\n' % bed.path("state")
    good = write(bed.path("good.toml"), state + disk % (image, bed.path("a.sock"), bed.path("pool")))
    found, _ = checks(bed, "--config", good)
    assert found["configuration"]["verdict"] == "ok", found
    assert "a durable write takes" in found["flush"]["found"], found["flush"]
    assert bed.path("pool") in found["flash"]["found"] and image in found["image"]["found"], found
    assert not os.path.exists(bed.path("pool")), "it makes no pool"
    assert sorted(os.listdir(bed.directory)) == ["disk.raw", "good.toml", "log"], "and leaves nothing"

    lost = write(bed.path("lost.toml"), state + disk % (bed.path("gone.raw"), bed.path("a.sock"), bed.path("pool")))
    found, said = checks(bed, "--config", lost, code=1)
    assert found["configuration"]["verdict"] == "bad" and "gone.raw" in found["configuration"]["found"], found
    assert "1 check found something bad" in said, said
    wrong = write(bed.path("wrong.toml"), "colour = 3\n")
    found, _ = checks(bed, "--config", wrong, code=1)
    assert "colour" in found["configuration"]["found"], found


@test(forebay_only=True)
def a_support_bundle_has_neither_data_nor_secrets(bed):
    image = bed.path("disk.raw")
    with open(image, "wb") as f:
        f.write(PAYLOAD * (4 * MIB // len(PAYLOAD)))
        f.truncate(4 * MIB)
    secret = write(bed.path("chap"), SECRET + "\n")
    os.chmod(secret, 0o600)
    control, listen = bed.path("serve.control"), "unix:" + bed.path("db.sock")
    # The secret is also where it does not belong: in a comment, and in a name that events and statistics show.
    config = ('# the password of the array: %s\ncontrol = "%s"\n[[disk]]\nname = "db"\nbackend = "file:%s"\nram = "16MiB"\n'
              'nbd = ["%s", "unix:%s/%s.sock"]\n[[iscsi]]\ntarget = "iqn.2026-01.x:a"\nlisten = ["127.0.0.1:0"]\n'
              'chap-user = "u"\nchap-secret-file = "%s"\n'
              % (OTHER, control, image, listen, bed.directory, SECRET, secret))
    server = bed.serve(config, [listen])
    bed.run(["nbdcopy", server.uri_of("db"), "null:"])
    output = bed.path("bundle.tar.gz")
    said = bed.run([bed.program, "support-bundle", "--config", bed.path("forebay.toml"), "--control", control,
                    "--output", output])
    assert output in said and "no secrets" in said
    with tarfile.open(output) as archive:
        texts = {member.name.partition("/")[2]: archive.extractfile(member).read() for member in archive}
    for name, text in texts.items():
        for hidden in [SECRET.encode(), OTHER.encode(), PAYLOAD]:
            assert hidden not in text, "%s has %s" % (name, hidden)
    daemon = "daemons/forebay/"
    for name in ["README.txt", "versions.txt", "doctor.json", "configuration.json", "memory.txt", "errors.txt",
                 daemon + "daemon.json", daemon + "events.jsonl", daemon + "limits.txt", daemon + "disks/db.json"]:
        assert name in texts, sorted(texts)
    assert b"(secret).sock" in texts["configuration.json"], texts["configuration.json"]
    assert json.loads(texts[daemon + "disks/db.json"])["counters"]["reads"] > 0
    assert json.loads(texts["configuration.json"])["iscsi"][0]["chap-secret-file"] == secret
    assert os.stat(output).st_mode & 0o077 == 0, "it is the user's alone"
    # Nor does it when the file cannot be read any more, which a reload tells.
    write(bed.path("forebay.toml"), config + 'chap-secret = "%s"  # %s\n' % (SECRET, OTHER))
    assert bed.run([bed.program, "reload", "--control", control], code=None).returncode == 1
    output = bed.path("another.tar.gz")
    bed.run([bed.program, "support-bundle", "--config", bed.path("forebay.toml"), "--control", control,
             "--output", output])
    with tarfile.open(output) as archive:
        texts = {member.name: archive.extractfile(member).read() for member in archive}
    assert any(b"chap-secret" in text for name, text in texts.items() if "events" in name), sorted(texts)
    for name, text in texts.items():
        for hidden in [OTHER.encode(), b'"' + SECRET.encode()]:
            assert hidden not in text, "%s has %s" % (name, hidden)


@test(forebay_only=True)
def a_support_bundle_of_a_daemon_that_ended_has_its_events(bed):
    config = ('[[disk]]\nname = "db"\nbackend = "mem:16MiB"\nram = "16MiB"\nnbd = ["unix:%s"]\n' % bed.path("db.sock"))
    server = bed.serve('control = "%s"\n' % bed.path("serve.control") + config, ["unix:" + bed.path("db.sock")])
    eventually(lambda: os.path.exists(bed.path("state/forebay.events")), "it keeps events")
    server.stop()
    output = bed.path("bundle.tar.gz")
    bed.run([bed.program, "support-bundle", "--config", bed.path("forebay.toml"), "--output", output,
             "--control", bed.path("serve.control")])
    with tarfile.open(output) as archive:
        names = [member.name.partition("/")[2] for member in archive]
        kept = archive.extractfile(archive.getmembers()[names.index("events/forebay.events")]).read()
    assert b"SIGTERM" in kept, kept
