"""Listeners and portals that are given by name, and a name server that does not answer."""
import json
import os
import socket
import struct
import subprocess

from bed import Skip, eventually, test
from test_systemd import Manager, end

DISKS = 12
HOST = "store.example"


class DeadNameServer:
    """Hears questions, and answers none. Forebay alone asks it, once for each look-up, and waits a second."""

    def __init__(self, bed):
        number = os.getpid() & 0xffff
        address = "127.53.%d.%d" % (number >> 8, number & 0xff)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.bind((address, 53))
        except PermissionError as error:
            raise Skip("this user may not be a name server") from error
        self.socket.setblocking(False)
        self.count = 0
        with open(bed.path("resolv.conf"), "w") as f:
            f.write("nameserver %s\noptions timeout:1 attempts:1\n" % address)
        self.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                       'mount --bind "$0" /etc/resolv.conf && exec "$@"', bed.path("resolv.conf")]
        subprocess.run([*self.prefix, "getent", "ahostsv4", HOST], capture_output=True)
        if not self.questions():
            raise Skip("this user may not make mount namespaces, or this host asks others than /etc/resolv.conf says")
        self.count = 0

    def questions(self):
        """How often it was asked by now for the IPv4 address of the host."""
        name = b"".join(bytes([len(part)]) + part.encode() for part in HOST.split(".")) + b"\0"
        while True:
            try:
                question = self.socket.recv(512)
            except BlockingIOError:
                return self.count
            self.count += question[12:].startswith(name + struct.pack(">HH", 1, 1))


@test(forebay_only=True)
def a_name_server_that_is_dead_is_asked_once_for_all_disks(bed):
    server, manager = DeadNameServer(bed), Manager(bed)
    names = ["d%d" % number for number in range(DISKS)]
    disks = "".join('[[disk]]\nname = "%s"\nbackend = "mem:1MiB"\nram = "1MiB"\nnbd = ["unix:%s"]\n' % (name, bed.path(name))
                    for name in names)
    listed = json.dumps(names)
    with open(bed.path("forebay.toml"), "w") as f:
        f.write('state-dir = "%s"\ncontrol = "%s"\nhttp = "off"\n' % (bed.path("state"), bed.path("control")) + disks
                + '[[nbd]]\nlisten = "%s:10809"\ndisks = %s\n' % (HOST, listed)
                + '[[iscsi]]\nlisten = ["%s:3260"]\ntarget = "iqn.2026-01.org.example:t"\ndisks = %s\n' % (HOST, listed))
    environment = dict(os.environ, NOTIFY_SOCKET=bed.path("notify"))
    with open(bed.path("names.server-log"), "w") as log:
        process = bed.spawn([*server.prefix, bed.program, "serve", "--config", bed.path("forebay.toml")],
                            stdout=log, stderr=log, env=environment)
    while manager.hear("STATUS", seconds=60) != "%d of %d disks open" % (DISKS, DISKS):
        pass
    assert int(manager.hear("EXTEND_TIMEOUT_USEC")) >= 60e6, "a start that waits for names has time"
    manager.hear("READY")
    assert server.questions() == 1, server.count
    # Who tries again wants to know it anew.
    said = bed.run([bed.program, "disk", "open", "d7", "--control", bed.path("control")], code=None).stderr
    assert "cannot listen at %s:10809: its name is not found" % HOST in said, said
    assert "cannot listen at %s:3260: its name is not found" % HOST in said, said
    assert server.questions() >= 2
    eventually(lambda: server.questions() >= 3, "it is tried again by itself")
    end(process)


@test(forebay_only=True)
def a_hypervisor_finds_no_device_while_a_start_waits_for_a_name_server(bed):
    """Its whole guest would stand still until it is let in. It tries again, and the guest's I/O waits."""
    server, device = DeadNameServer(bed), bed.path("a.vhost")
    entry = '[[disk]]\nname = "%s"\nbackend = "mem:1MiB"\nram = "1MiB"\n%s\n'
    with open(bed.path("forebay.toml"), "w") as f:
        f.write('state-dir = "%s"\ncontrol = "%s"\nhttp = "off"\n' % (bed.path("state"), bed.path("control"))
                + entry % ("a", 'vhost-user = "%s"' % device) + entry % ("b", 'nbd = ["%s:10809"]' % HOST))
    with open(bed.path("names.server-log"), "w") as log:
        process = bed.spawn([*server.prefix, bed.program, "serve", "--config", bed.path("forebay.toml")],
                            stdout=log, stderr=log, env=dict(os.environ, RES_OPTIONS="timeout:5"))
    eventually(server.questions, "the host is looked up")
    assert not os.path.exists(device)
    eventually(lambda: os.path.exists(device), "the name server is given up", seconds=60)
    end(process)
    assert not os.path.exists(device)
