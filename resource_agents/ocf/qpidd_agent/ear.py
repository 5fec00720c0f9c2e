"""Receives the signs of life: a socket for the beats, a query to the port.  Shell.

A separate module, because importing `socket` takes as long as all other imports, and most calls do not need it.
"""

import contextlib
import os
import socket
import sys

from qpidd_agent.parameters import Parameters
from qpidd_agent.process import Process
from qpidd_agent.score import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = 1
"""First octet of connection.start."""
HANDSHAKE_RECORD = 22
"""First octet of what a TLS server says."""


class Ear:
    """Receives beats of one process and ignores those of others."""

    def __init__(self, path: str, process: Process) -> None:
        """Replaces the socket of an earlier listener."""
        self._pid = process.pid
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._socket.bind(path)
        with contextlib.suppress(OSError):  # it has ended, or we are not root and it is our own
            os.chown(path, -1, os.stat(f"/proc/{process.pid}").st_gid)
        os.chmod(path, 0o660)  # the kernel tells us the sender's pid
        self.descriptor = self._socket.fileno()

    def hear(self) -> "list[Mapping[str, str]]":
        """The beats received, oldest first."""
        heard: list[Mapping[str, str]] = []
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(12))
            except BlockingIOError:
                return heard
            if _sender(ancillary) == self._pid:
                heard.append(parse(data))

    def close(self) -> None:
        """The file is left: the next monitor replaces it."""
        self._socket.close()


def _sender(ancillary: "list[tuple[int, int, bytes]]") -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int.from_bytes(data[:4], sys.byteorder)
    return 0


class Question:
    """Asks the port for an AMQP greeting, or for the first record of TLS, without waiting: a second sign of life when
    the beats are late."""

    def __init__(self, parameters: Parameters) -> None:
        family = socket.AF_INET6 if ":" in parameters.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self.descriptor = self._socket.fileno()
        self._asked = False
        self._words, self._wanted = (HEADER, METHOD_FRAME) if parameters.tls is None else (_hello(), HANDSHAKE_RECORD)
        with contextlib.suppress(OSError):  # in progress; an error shows in `look`
            self._socket.connect((parameters.host, int(parameters.door)))

    def look(self) -> "bool | None":
        """Call when the descriptor is ready.  True: an answer; None: not yet; False: there will be none."""
        try:
            if not self._asked:
                self._socket.send(self._words)
                self._asked = True
            answer = self._socket.recv(1)
        except BlockingIOError:
            return None
        except OSError:
            return False
        return answer[:1] == bytes([self._wanted])

    def close(self) -> None:
        self._socket.close()


def _hello() -> bytes:
    """The first words of a TLS client."""
    import ssl

    told, heard = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(heard, told, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return told.read()
