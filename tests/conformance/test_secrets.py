"""CHAP secrets that change, or cannot be used, while their daemon serves."""
import fcntl
import os
import signal
import time

from bed import Skip, eventually, free_port, test
from test_reload import Served, client, disk, images


@test(forebay_only=True)
def other_chap_secrets_count_from_the_next_login_on(bed):
    images(bed, "a")
    portal = "127.0.0.1:%d" % free_port()

    def write_secrets(host, target):
        for name, secret in (("host", host), ("target", target)):
            with open(bed.path(name), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
                f.write(secret)

    def comes_in(secret):
        inquiry = ["iscsi-inq", "iscsi://user%%%s@%s/iqn.2026-01.test:t/0" % (secret, portal)]
        return bed.run(inquiry, code=None).returncode == 0

    write_secrets("the first secret", "the target's own")
    text = '[[iscsi]]\nlisten = ["%s"]\ntarget = "iqn.2026-01.test:t"\nchap-user = "user"\nchap-secret-file = "%s"\n' \
        'mutual-chap-user = "us"\nmutual-chap-secret-file = "%s"\n' % (portal, bed.path("host"), bed.path("target"))
    served = Served(bed, disk(bed, "a"), more=text)
    assert comes_in("the first secret") and served.reload() == {}
    write_secrets("the second secret", "the target's own")
    assert served.reload("--dry-run") == {None: ("secrets", None)}
    assert comes_in("the first secret"), "nothing was taken over"
    assert served.reload() == {None: ("secrets", None)} and served.reload() == {}
    assert comes_in("the second secret") and not comes_in("the first secret")
    assert "has other CHAP secrets" in served.events()
    # One that cannot be used changes nothing.
    write_secrets("the second secret", "the second secret")
    (kind, error), = served.reload(code=1).values()
    assert kind == "secrets" and "they must differ" in error, error
    assert comes_in("the second secret")
    assert served.server.stop() == 0


@test(forebay_only=True)
def a_secret_that_cannot_be_used_costs_a_start_its_target_alone(bed):
    images(bed, "a", "b")
    portal = "127.0.0.1:%d" % free_port()
    for name in ("secret", "other"):
        with open(bed.path(name), "w", opener=lambda path, flags: os.open(path, flags, 0o644)) as f:
            f.write("the first secret")
    text = '[[iscsi]]\nlisten = ["%s"]\ntarget = "iqn.2026-01.test:t"\ndisks = ["a"]\nchap-user = "user"\nchap-secret-file = "%s"\n' % (
        portal, bed.path("secret"))
    served = Served(bed, disk(bed, "a"), more=text)
    client(bed, "a").pread(4096, 0)
    assert "not everywhere" in served.events() and "chmod 600" in served.events(), served.events()
    check = bed.run([bed.program, "serve", "--check", "--config", bed.path("forebay.toml")], code=None)
    assert check.returncode == 2 and "chmod 600" in check.stderr, check
    os.chmod(bed.path("secret"), 0o600)
    inquiry = ["iscsi-inq", "iscsi://user%%the first secret@%s/iqn.2026-01.test:t/0" % portal]
    eventually(lambda: bed.run(inquiry, code=None).returncode == 0, "the target is served then")
    # Nor does it keep others from being changed.
    os.chmod(bed.path("secret"), 0o644)
    served.write(disk(bed, "a", 'iops-limit = 1000\n'), more=text)
    said = served.reload(code=1)
    assert said["a"] == ("changed", None) and "chmod 600" in said[None][1], said
    assert bed.run(inquiry, code=None).returncode == 0, "with the secret of before"
    # One more target with it is told of before, and costs nobody anything.
    other = text.replace(portal, "127.0.0.1:%d" % free_port()).replace("test:t", "test:other").replace('"a"', '"b"')
    other = other.replace(bed.path("secret"), bed.path("other"))
    os.chmod(bed.path("secret"), 0o600)
    served.write(disk(bed, "a", 'iops-limit = 1000\n'), disk(bed, "b"), more=text + other)
    for options in (["--dry-run"], []):
        command = [bed.program, "reload", "--json", "--control", served.control, *options]
        said = bed.run(command, code=None).stdout
        assert "chmod 600" in said, said
    assert bed.run(inquiry, code=None).returncode == 0
    # So is another file of one that is served.
    os.chmod(bed.path("other"), 0o640)
    served.write(disk(bed, "a", 'iops-limit = 1000\n'), more=text.replace(bed.path("secret"), bed.path("other")))
    before = served.events().count("cannot be used")
    served.reload(code=1)
    assert served.events().count("cannot be used") == before + 1, served.events()
    assert served.server.stop() == 0


@test(forebay_only=True)
def secrets_that_hang_cost_a_start_their_time_once(bed):
    images(bed, "a", "b", "c")
    # Who opens a file with a lease waits until its holder gives it back.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    text, leased, urls = "", [], []
    for name in "abc":
        secret, portal = bed.path(name + ".secret"), "127.0.0.1:%d" % free_port()
        leased.append(os.open(secret, os.O_CREAT | os.O_RDWR, 0o600))
        os.write(leased[-1], b"the first secret")
        try:
            fcntl.fcntl(leased[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            raise Skip("no leases on this file system: %s" % error)
        text += '[[iscsi]]\nlisten = ["%s"]\ntarget = "iqn.2026-01.test:%s"\ndisks = ["%s"]\nchap-user = "user"\n' \
            'chap-secret-file = "%s"\n' % (portal, name, name, secret)
        urls.append("iscsi://user%%the first secret@%s/iqn.2026-01.test:%s/0" % (portal, name))
    begun = time.monotonic()
    served = Served(bed, *[disk(bed, name) for name in "abc"], more=text)
    took = time.monotonic() - begun
    assert 4 < took < 14, "the start took %.1f s, where each hangs for 5 s" % took
    client(bed, "c").pread(4096, 0)
    assert served.events().count("does not answer") >= 3, served.events()
    for file in leased:
        os.close(file)
    for url in urls:
        eventually(lambda: bed.run(["iscsi-inq", url], code=None).returncode == 0, "the target is served then")
    signal.signal(signal.SIGIO, before)
    assert served.server.stop() == 0
