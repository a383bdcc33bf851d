"""Restarts in order under load: sockets that systemd keeps, clients that come back, and nobody who notices."""
import json
import os
import socket
import statistics
import time

import guest
import iscsi
import test_sockets
import vm
from bed import MIB, eventually, need_program, test
from test_vhost_guest import ATTACH

# How often a service is restarted under each client. `make soak` has 50.
RESTARTS = int(os.environ.get("FOREBAY_RESTARTS", "4"))


class Service:
    """A daemon with sockets that are kept while it restarts."""

    def __init__(self, bed, config, sockets):
        self.bed, self.config, self.sockets = bed, config, sockets
        self.process = test_sockets.serve(bed, config, sockets)
        self.pauses = []

    def stats(self):
        command = [self.bed.program, "stats", "db", "--control", self.bed.path("control"), "--json"]
        return json.loads(self.bed.run(command))

    def requests(self):
        counters = self.stats()["counters"]
        return counters["reads"] + counters["writes"]

    def restart_under_load(self):
        """Restarts it while requests come; notes how long none was answered."""
        before = self.requests()
        eventually(lambda: self.requests() > before + 30, "requests come", seconds=120)
        began = time.time()
        test_sockets.end(self.process)
        self.process = test_sockets.serve(self.bed, self.config, self.sockets)
        eventually(lambda: self.requests() > 0, "the client has come back", seconds=60)
        self.pauses.append(time.time() - began)

    def end(self):
        test_sockets.end(self.process)
        print("%d restarts, paused for %.2f to %.2f s, median %.2f" % (
            len(self.pauses), min(self.pauses), max(self.pauses), statistics.median(self.pauses)))
        assert len(self.pauses) >= RESTARTS


def config(bed, more):
    return ('http = "off"\n[[disk]]\nname = "db"\nbackend = "file:%s"\nram = "16MiB"\nflash = "%s:64MiB"\n%s\n'
            % (bed.image("disk.raw", 96 * MIB, "holes"), bed.path("flash"), more))


def client_that_comes_back(bed, more, listener, driver):
    """fio verifies through a client of QEMU, which connects again and repeats what had no answer."""
    for program in ("fio", "qemu-storage-daemon"):
        need_program(program)
    front = bed.path("front.sock")
    service = Service(bed, config(bed, more), [test_sockets.listening(bed.path("control")), listener])
    bed.spawn(["qemu-storage-daemon", "--blockdev", "node-name=db," + driver,
               "--nbd-server", "addr.type=unix,addr.path=" + front,
               "--export", "type=nbd,id=out,node-name=db,writable=on"])
    eventually(lambda: os.path.exists(front), "the client listens")
    load = bed.spawn(["fio", "--name=verify", "--ioengine=nbd", "--uri=nbd+unix:///db?socket=" + front,
                      "--rw=randrw", "--bsrange=4k-64k", "--iodepth=16", "--size=64m", "--verify=crc32c",
                      "--verify_fatal=1", "--verify_backlog=512", "--randseed=7", "--time_based",
                      "--runtime=1000000", "--output-format=terse"])
    for _ in range(RESTARTS):
        service.restart_under_load()
        assert load.poll() is None, "fio saw an error"
    # fio ends what is in flight, and verifies it.
    load.terminate()
    assert load.wait(60) in (0, 128), load.returncode
    service.end()


def nbd_client_that_comes_back(bed, mode):
    path = bed.path("db.sock")
    driver = "driver=nbd,server.type=unix,server.path=%s,export=db,reconnect-delay=30" % path
    client_that_comes_back(bed, 'nbd = ["unix:%s"]\n%s' % (path, mode), test_sockets.listening(path), driver)


@test(forebay_only=True, timeout=120 + 10 * RESTARTS)
def an_iscsi_initiator_that_comes_back_does_not_notice_restarts_in_write_back(bed):
    listener = socket.create_server(("127.0.0.1", 0))
    portal = "127.0.0.1:%d" % listener.getsockname()[1]
    more = ('mode = "write-back"\n[[iscsi]]\nlisten = ["%s"]\ntarget = "%s"\n[iscsi.luns]\n0 = "db"\n'
            % (portal, iscsi.TARGET))
    driver = "driver=iscsi,transport=tcp,portal=%s,target=%s,lun=0" % (portal, iscsi.TARGET)
    client_that_comes_back(bed, more, listener, driver)


@test(forebay_only=True, timeout=120 + 10 * RESTARTS)
def an_nbd_client_that_comes_back_does_not_notice_restarts_in_write_through(bed):
    nbd_client_that_comes_back(bed, "")


@test(forebay_only=True, timeout=120 + 10 * RESTARTS)
def an_nbd_client_that_comes_back_does_not_notice_restarts_in_write_back(bed):
    nbd_client_that_comes_back(bed, 'mode = "write-back"\n')


GUEST = ATTACH + """
mkfs.ext4 -q -F /dev/vda
mount -t ext4 /dev/vda /mnt
fio --name=verify --directory=/mnt --size=8m --rw=randwrite --bsrange=512-64k --ioengine=libaio --iodepth=16 \\
    --direct=1 --verify=crc32c --verify_fatal=1 --verify_backlog=64 --fsync=64 --time_based --runtime=1000000 \\
    --output-format=terse > /tmp/fio 2>&1 &
load=$!
hostsync restart
kill -0 $load
kill $load
wait $load || [ $? = 128 ] || { cat /tmp/fio; exit 5; }
umount /mnt
e2fsck -f -n /dev/vda
""" + guest.NO_ERROR


@test(forebay_only=True, timeout=300 + 20 * RESTARTS)
def a_guest_does_not_notice_restarts_of_the_service(bed):
    path = bed.path("db.vhost")
    sockets = [test_sockets.listening(bed.path("control")), test_sockets.listening(path)]
    service = Service(bed, config(bed, 'vhost-user = "%s"\nmode = "write-back"\n' % path), sockets)

    def on_sync(_):
        for _ in range(RESTARTS):
            service.restart_under_load()
        return "done"
    guest.run(GUEST.replace("[ \"$(cat /sys/block/vda/serial)\" = disk ]", "[ \"$(cat /sys/block/vda/serial)\" = db ]"),
              on_sync, 280 + 20 * RESTARTS, vm.vhost_user(path, 1), SECTORS=96 * MIB // 512, QUEUES=1,
              CACHE="write back")
    service.end()
