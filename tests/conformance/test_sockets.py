"""Sockets that listen before Forebay does, as systemd passes them."""
import json
import os
import socket
import subprocess

from bed import MIB, eventually, pattern, test
import nbd


def passed(sockets):
    """What a command line is put behind so that it gets `sockets` as systemd passes them, and what spawns it."""
    def place():
        # Above all of them first, so that none is overwritten before it is copied.
        high = [os.dup2(sock.fileno(), 100 + number) for number, sock in enumerate(sockets)]
        for number, fd in enumerate(high):
            os.dup2(fd, 3 + number)
            os.close(fd)
    fds = [3 + number for number in range(len(sockets))]
    shell = "export LISTEN_PID=$$ LISTEN_FDS=%d; exec \"$@\"" % len(sockets)
    return ["sh", "-c", shell, "sh"], {"preexec_fn": place, "pass_fds": fds}


def listening(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(16)
    return sock


def serve(bed, config, sockets):
    """A daemon that is passed sockets, when it is ready."""
    path = bed.path("forebay.toml")
    with open(path, "w") as f:
        f.write('state-dir = "%s"\ncontrol = "%s"\n' % (bed.path("state"), bed.path("control")) + config)
    prefix, how = passed(sockets)
    log = open(bed.path("passed.server-log"), "a")
    process = bed.spawn([*prefix, bed.program, "serve", "--config", path], stdout=subprocess.PIPE, stderr=log,
                        text=True, **how)
    lines = iter(process.stdout.readline, "")
    assert "ready\n" in lines, open(bed.path("passed.server-log")).read()
    return process


def end(process):
    process.terminate()
    assert process.wait(60) == 0


def events(bed):
    said = bed.run([bed.program, "events", "--control", bed.path("control"), "--json"])
    return [json.loads(line)["text"] for line in said.splitlines()]


@test(forebay_only=True)
def who_connects_while_forebay_restarts_is_served_by_the_next_one(bed):
    path, image = bed.path("db.sock"), bed.image("disk.raw", 4 * MIB)
    control, unix, tcp = listening(bed.path("control")), listening(path), socket.create_server(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % tcp.getsockname()[1]
    config = ('[[disk]]\nname = "db"\nbackend = "file:%s"\nram = "16MiB"\nnbd = ["unix:%s", "%s"]\n'
              % (image, path, address))
    end(serve(bed, config, [control, unix, tcp]))
    assert os.path.exists(path), "the socket is not Forebay's to remove"

    # The client connects while nobody serves, and waits for its answer.
    client = bed.spawn(["nbdinfo", "--size", "nbd+unix:///db?socket=" + path],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = serve(bed, config, [control, unix, tcp])
    said = client.communicate(timeout=60)[0]
    assert said == "%d\n" % (4 * MIB), said
    for uri in ["nbd://%s/db" % address, "nbd+unix:///db?socket=" + path]:
        h = nbd.NBD()
        h.connect_uri(uri)
        assert bytes(h.pread(512, 512)) == pattern(0, 1024)[512:]
    assert not [text for text in events(bed) if "socket" in text]
    end(process)


@test(forebay_only=True)
def a_hypervisor_finds_its_device_at_a_socket_that_was_passed(bed):
    path = bed.path("db.vhost")
    device = listening(path)
    config = '[[disk]]\nname = "db"\nbackend = "mem:16MiB"\nram = "16MiB"\nvhost-user = "%s"\n' % path
    for _ in range(2):
        process = serve(bed, config, [device])
        show = [bed.program, "stats", "db", "--control", bed.path("control"), "--json"]

        def sessions():
            return json.loads(bed.run(show))["vhost_user"]["sessions"]
        with socket.socket(socket.AF_UNIX) as hypervisor:
            hypervisor.connect(path)
            eventually(lambda: sessions() == 1, "the device has a session")
        end(process)
        assert os.path.exists(path)


@test(forebay_only=True)
def a_disk_that_is_detached_and_opened_again_is_at_its_sockets_again(bed):
    unix, tcp, device = listening(bed.path("db.sock")), socket.create_server(("127.0.0.1", 0)), listening(bed.path("db.vhost"))
    address = "127.0.0.1:%d" % tcp.getsockname()[1]
    config = ('[[disk]]\nname = "db"\nbackend = "mem:16MiB"\nram = "16MiB"\nnbd = ["unix:%s", "%s"]\nvhost-user = "%s"\n'
              % (bed.path("db.sock"), address, bed.path("db.vhost")))
    process = serve(bed, config, [unix, tcp, device])
    control = ["db", "--control", bed.path("control")]
    for _ in range(3):
        for uri in ["nbd://%s/db" % address, "nbd+unix:///db?socket=" + bed.path("db.sock")]:
            h = nbd.NBD()
            h.connect_uri(uri)
            h.shutdown()
        with socket.socket(socket.AF_UNIX) as hypervisor:
            hypervisor.connect(bed.path("db.vhost"))
            eventually(lambda: json.loads(bed.run([bed.program, "stats", *control, "--json"]))["vhost_user"]["sessions"] == 1,
                       "the device has a session")
        bed.run([bed.program, "disk", "detach", *control])
        said = bed.run([bed.program, "disk", "open", *control])
        assert "not everywhere" not in said, said
    end(process)


@test(forebay_only=True)
def a_socket_that_nothing_asks_for_is_reported_and_closed(bed):
    path = bed.path("old.sock")
    config = '[[disk]]\nname = "db"\nbackend = "mem:16MiB"\nram = "16MiB"\nnbd = ["unix:%s"]\n' % bed.path("db.sock")
    other = listening(path)
    pipe = os.fdopen(os.pipe()[0])
    process = serve(bed, config, [other, pipe])
    other.close()
    said = "\n".join(events(bed))
    assert "listens at " + path in said and "number 1, and no listening stream socket" in said, said
    with socket.socket(socket.AF_UNIX) as client:
        assert client.connect_ex(path) != 0, "nobody holds it open"
    end(process)
