"""iSCSI: a target of Forebay, libiscsi's test suites, and a small initiator of our own for what no good one does."""
import collections
import hashlib
import os
import re
import signal
import socket
import struct
import subprocess

from bed import eventually, need_program

TARGET = "iqn.2026-11.local.forebay:disk"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def portal(server, number=0):
    """HOST:PORT of a portal, as the start-up summary tells it."""
    return re.findall(r"iscsi://([^/\s]+)/", server.said)[number]


def url(server, lun=0, target=TARGET, user=None, number=0):
    return "iscsi://%s%s/%s/%d" % (user + "@" if user else "", portal(server, number), target, lun)


def start(bed, backend="mem:100MiB", extra=(), **more):
    for program in ("iscsi-ls", "iscsi-test-cu"):
        need_program(program)
    return bed.disk(backend, extra=["--iscsi", "127.0.0.1:0", *extra], **more)


# ---- libiscsi's suites

def suites():
    """Names of suites and their tests."""
    listed = subprocess.run(["iscsi-test-cu", "--list"], capture_output=True, text=True).stdout
    found = collections.OrderedDict()
    for word in listed.split():
        family, _, rest = word.partition(".")
        suite, _, name = rest.partition(".")
        if family == "ALL" and name:
            found.setdefault(suite, []).append(name)
    return found


def run_suite(name, urls, seconds=60):
    """Runs one suite in a process of its own: {test: (result, why)}."""
    command = ["stdbuf", "-o0", "iscsi-test-cu", "--dataloss", "-v", "-t", "ALL." + name, *urls]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True)
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        said += "\nHUNG"
    results = {}
    pieces = re.split(r"^\s+Test: (\S+) \.\.\.", said, flags=re.M)
    for test, body in zip(pieces[1::2], pieces[2::2]):
        body = body.split("Run Summary")[0]
        # CUnit's verdict, not what the test logs of commands that it expects to fail. It counts a test that was
        # skipped as passed.
        why = re.findall(r"\[(?:FAILED|SKIPPED)\]\s*(.*)|^\s+\d+\. (.*)", body, flags=re.M)
        why = "; ".join(" ".join(parts).strip() for parts in why[:3])
        if re.search(r"FAILED\s+1\. ", body):
            results[test] = (FAILED, why)
        elif "[SKIPPED]" in body:
            results[test] = (SKIPPED, why)
        elif "passed" in body:
            results[test] = (PASSED, "")
        else:
            results[test] = ("hung" if "HUNG" in said else "crashed", body[-200:])
    return results, said


# ---- an initiator

LOGIN, TEXT, LOGOUT, NOP, COMMAND, TASK, DATA_OUT = 0x43, 0x04, 0x46, 0x40, 0x01, 0x42, 0x05


def crc_table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
        yield value


CRC_TABLE = list(crc_table())


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


class Initiator:
    """Sends PDUs as they are wanted, and reads answers."""

    def __init__(self, server, name="iqn.2026-01.org.example:raw", isid=1, target=TARGET):
        host, port = portal(server).rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)))
        self.socket.settimeout(30)
        self.name, self.target, self.isid = name, target, isid
        self.cmd_sn, self.tag = 1, 0
        self.has_digests = self.spoil = False

    def send(self, opcode, flags=0x80, *, lun=0, tag=None, fields=(), data=b"", sn=None, cut=None):
        """One PDU; `fields`: {offset: 32-bit number or bytes}."""
        header = bytearray(48)
        header[0], header[1], header[9] = opcode, flags, lun
        header[5:8] = len(data).to_bytes(3, "big")
        self.tag = self.tag + 1 if tag is None else tag
        struct.pack_into(">I", header, 16, self.tag)
        struct.pack_into(">I", header, 24, self.cmd_sn if sn is None else sn)
        for at, value in dict(fields).items():
            value = value if isinstance(value, bytes) else struct.pack(">I", value)
            header[at:at + len(value)] = value
        padded = data + bytes(-len(data) % 4)
        pdu = bytes(header) + self.digest(header) + padded
        if data:
            pdu += bytes(4) if self.spoil else self.digest(padded)
        self.socket.sendall(pdu[:cut])
        if not opcode & 0x40 and opcode != DATA_OUT and sn is None:
            self.cmd_sn += 1
        return self.tag

    def digest(self, data):
        return crc32c(data).to_bytes(4, "little") if self.has_digests else b""

    def exactly(self, count):
        out = b""
        while len(out) < count:
            piece = self.socket.recv(count - len(out))
            if not piece:
                raise EOFError
            out += piece
        return out

    def receive(self):
        """(header, data) of the next PDU."""
        header = self.exactly(48)
        assert not self.has_digests or self.exactly(4) == self.digest(header), "digest of a header"
        length = int.from_bytes(header[5:8], "big")
        data = self.exactly(length + -length % 4)
        assert not (self.has_digests and data) or self.exactly(4) == self.digest(data), "digest of data"
        return header, data[:length]

    def login_step(self, stage, next_stage, keys):
        flags = (0x80 | next_stage if next_stage is not None else 0) | stage << 2
        text = b"".join(b"%s=%s\0" % (k.encode(), v.encode()) for k, v in keys.items())
        isid = bytes([0x80, 0, 0, 0, 0, self.isid, 0, 0])
        self.send(LOGIN, flags, tag=0, fields={8: isid}, data=text)
        header, data = self.receive()
        assert header[0] == 0x23, header.hex()
        answered = dict(pair.split("=", 1) for pair in data.decode().split("\0") if pair)
        return int.from_bytes(header[36:38], "big"), answered

    def names(self):
        return {"InitiatorName": self.name, "SessionType": "Normal", "TargetName": self.target}

    def login(self, **keys):
        """Through in one step; the status."""
        return self.login_step(1, 3, {**self.names(), **keys})[0]

    def chap(self, user, secret, algorithm="7"):
        """The status of a login with CHAP."""
        status, _ = self.login_step(0, None, {**self.names(), "AuthMethod": "CHAP"})
        if status:
            return status
        _, asked = self.login_step(0, None, {"CHAP_A": algorithm})
        hasher = {"5": hashlib.md5, "7": hashlib.sha256}[asked["CHAP_A"]]
        challenge = bytes.fromhex(asked["CHAP_C"][2:])
        proof = hasher(bytes([int(asked["CHAP_I"])]) + secret + challenge).hexdigest()
        status, _ = self.login_step(0, 1, {"CHAP_N": user, "CHAP_R": "0x" + proof})
        return status or self.login_step(1, 3, {})[0]

    def command(self, cdb, *, read=0, write=0, data=b"", final=True, **more):
        flags = (0x80 if final else 0) | (0x40 if read else 0) | (0x20 if write else 0) | 1
        fields = {20: read or write, 32: bytes(cdb) + bytes(16 - len(cdb))}
        return self.send(COMMAND, flags, fields=fields, data=data, **more)

    def ready(self, lun=0):
        """Until no unit attention is left."""
        def is_ready():
            self.command([0] * 6, lun=lun)
            header, _ = self.receive()
            return header[0] == 0x21 and header[3] == 0
        eventually(is_ready, "the unit is ready")

    def status(self, cdb, **more):
        """The SCSI status of a command that brings no data back, or none that matter."""
        tag = self.command(cdb, **more)
        while True:
            header, self.sense = self.receive()
            if header[0] == 0x21 or header[0] == 0x25 and header[1] & 1:
                assert struct.unpack_from(">I", header, 16)[0] == tag, header.hex()
                return header[3]

    def inquiry(self, page):
        """A page of vital product data."""
        self.command([0x12, 1, page, 0, 255, 0], read=255)
        header, data = self.receive()
        assert header[0] == 0x25 and header[3] == 0, header.hex()
        return data

    def write(self, block, data):
        """WRITE(10), with its data: the status."""
        cdb = struct.pack(">BBIBHB", 0x2a, 0, block, 0, len(data) // 512, 0)
        return self.status(cdb, write=len(data), data=data)

    def persistent(self, action, *, kind=0, key=0, new_key=0, flags=0):
        """PERSISTENT RESERVE OUT: the status. `flags`: 1 APTPL."""
        data = struct.pack(">QQIBBH", key, new_key, 0, flags, 0, 0)
        return self.status(struct.pack(">BBBHIB", 0x5f, action, kind, 0, len(data), 0),
                           write=len(data), data=data)

    def read(self, block, count):
        """READ(10): the data."""
        cdb = struct.pack(">BBIBHB", 0x28, 0, block, 0, count, 0)
        self.command(cdb, read=count * 512)
        out = b""
        while True:
            header, data = self.receive()
            out += data
            if header[0] == 0x21 or header[1] & 1:
                assert header[3] == 0, header.hex()
                return out

    def close(self):
        self.socket.close()
