"""An NBD client that sends whatever it is told to: for what no honest client sends."""
import struct

READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
EINVAL, EIO = 22, 5
REQUEST, SIMPLE_REPLY = 0x25609513, 0x67446698
OPTION_REPLY = 0x3E889045565A9
OPT_GO, REP_ACK, REP_INFO, REP_ERROR = 7, 1, 3, 1 << 31


def receive(stream, length):
    data = b""
    while len(data) < length:
        more = stream.recv(min(length - len(data), 1 << 20))
        if not more:
            raise EOFError("the server closed the connection after %d of %d bytes" % (len(data), length))
        data += more
    return data


def greet(stream):
    """Reads the greeting, answers with flags."""
    magic, option, _flags = struct.unpack(">8s8sH", receive(stream, 18))
    assert magic == b"NBDMAGIC" and option == b"IHAVEOPT"
    stream.sendall(struct.pack(">I", 3))


def option(code, data=b"", length=None):
    return b"IHAVEOPT" + struct.pack(">II", code, len(data) if length is None else length) + data


def option_reply(stream):
    """(kind, data) of the next option reply."""
    magic, _code, kind, length = struct.unpack(">QIII", receive(stream, 20))
    assert magic == OPTION_REPLY, "bad magic %x" % magic
    return kind, receive(stream, length)


def go(stream, export=""):
    """The whole handshake; the size of the export."""
    greet(stream)
    name = export.encode()
    stream.sendall(option(OPT_GO, struct.pack(">I", len(name)) + name + struct.pack(">H", 0)))
    size = None
    while True:
        kind, data = option_reply(stream)
        if kind == REP_ACK:
            return size
        assert not kind & REP_ERROR, "refused: %s" % data
        if kind == REP_INFO and data[:2] == b"\0\0":
            size = struct.unpack(">Q", data[2:10])[0]


def request(kind, offset, length, cookie=1, flags=0, magic=REQUEST):
    return struct.pack(">IHHQQI", magic, flags, kind, cookie, offset, length)


def simple_reply(stream, length=0):
    """(error, cookie, data); `length` bytes of data follow when there is no error."""
    magic, error, cookie = struct.unpack(">IIQ", receive(stream, 16))
    assert magic == SIMPLE_REPLY, "bad magic %x" % magic
    return error, cookie, b"" if error else receive(stream, length)


def is_closed(stream):
    """Waits until the server closes the connection (True), or sends something (False)."""
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True
