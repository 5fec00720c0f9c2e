"""A connected socket, plain or with TLS, that one thread reads and every thread may write to (shell).

* `write` sends at once, in the thread that calls it: no other thread has to be woken for it.  What the kernel does not
  take is kept, in order, and sent by the loop's thread; so is everything written meanwhile.
* Everything else is called in the loop's thread.
* `_lock` guards `_out` and each send and, with TLS, each receive: OpenSSL takes one call at a time.  No call waits with
  it held, since the socket does not block, and no other lock is taken inside it.
* The end is told once, through the loop, as None (the peer has closed it, or `abort`) or an error.  After a failed
  write, what had arrived before (possibly confirms) is still read.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from client_lib.connecting.lending import Lending
from client_lib.connecting.services import Services

RECEIVE = 16384  # octets
TURN = 8  # receives, before others get their turn
AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True)
class Reader:
    """Who is told: `received` of each piece, `closed` before the end if the peer caused it, `lost` of the end."""

    received: Callable[[bytes], None]
    closed: Callable[[], Any]
    lost: Callable[[BaseException | None], None]
    quick: Callable[[bytes], bytes | None] | None = None
    """As `received`, in any thread; returns what it has not read.  None: only the loop's thread reads."""


class Stream:
    """Takes the socket over, which does not block and is not read by anybody else."""

    def __init__(self, sock: socket.socket, services: Services, reader: Reader) -> None:
        self.sock = sock
        self.reading = True
        self._services, self._reader = services, reader
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._lock = threading.Lock()
        self._out = bytearray()
        self._ended = False
        self._read_when_writable = False
        self.lending: Lending | None = None
        """How threads that wait read."""
        if reader.quick is not None and not self._tls:
            self.lending = Lending(sock, services, reader.quick)
        services.set_reader(sock.fileno(), self._readable)
        if self._tls:  # the handshake may have read more than it needed
            services.add_callback_threadsafe(self._readable)

    # -- writing

    @property
    def backlog(self) -> int:
        """Octets that the kernel has not taken yet."""
        return len(self._out)

    def write(self, data: bytes) -> None:
        """From any thread.  Nothing happens after the end."""
        with self._lock:
            if self._ended:
                return
            if self._out:
                self._out += data
                return
            try:
                sent = self.sock.send(data)
            except AGAIN:
                sent = 0
            except OSError as error:
                failure = error
                sent = -1
            if sent == len(data):
                return
            if sent >= 0:
                self._out += memoryview(data)[sent:]
        self._services.add_callback_threadsafe(self._watch if sent >= 0 else lambda: self.fail(failure))

    def _watch(self) -> None:
        if not self._ended and (self._out or self._read_when_writable):
            self._services.set_writer(self.sock.fileno(), self._writable)

    def _writable(self) -> None:
        if self._ended:
            return
        if self._read_when_writable:
            self._read_when_writable = False
            self._readable()
        self._send_more()

    def _send_more(self) -> None:
        try:
            with self._lock:
                while self._out and not self._ended:
                    del self._out[: self.sock.send(self._out)]
                if not self._ended:
                    self._services.remove_writer(self.sock.fileno())
        except AGAIN:
            pass
        except OSError as error:
            self.fail(error)

    # -- reading

    def read_on(self, on: bool) -> None:
        """Stops reading, or goes on with it."""
        if self._ended or on == self.reading:
            return
        self.reading = on
        if not on:
            self._services.remove_reader(self.sock.fileno())
        elif self.lending is None or not self.lending.lent:
            self._services.set_reader(self.sock.fileno(), self._readable)
            self._services.add_callback_threadsafe(self._readable)  # TLS may have read more than it gave out

    def _readable(self) -> None:
        lending = self.lending
        if lending is not None and lending.lent:
            return
        try:
            for _ in range(TURN):
                if self._ended or not self.reading:
                    return
                more = self._receive()
                if lending is not None and lending.wanted is not None and self._lend(lending):
                    return
                if not more:
                    return
        except Exception as error:  # of the socket, or of what was received
            self.fail(error)
            return
        if self._tls:  # the rest may be in OpenSSL's buffer, where no loop sees it
            self._services.add_callback_threadsafe(self._readable)

    def _lend(self, lending: Lending) -> bool:
        lent = not self._ended and self.reading and lending.lend(self._resume)
        if lent:
            self._services.remove_reader(self.sock.fileno())
        return lent

    def _resume(self, rest: bytes, error: BaseException | None) -> None:
        """Reading is ours again; `rest` comes first.  An error of the thread that has read ends the stream."""
        if self._ended:
            return
        try:
            if rest:
                self._reader.received(rest)
        except Exception as failure:
            error = failure
        if error is not None:
            self.fail(error)
            return
        if not self._ended and self.reading:
            self._services.set_reader(self.sock.fileno(), self._readable)

    def _receive(self) -> bool:
        """False if there is nothing more now."""
        try:
            data = self._received()
        except ssl.SSLWantWriteError:
            self._read_when_writable = True
            self._watch()
            return False
        except AGAIN:
            if self._tls and self._out:  # it may have waited for what has just been read
                self._send_more()
            return False
        if not data:
            self._reader.closed()
            self._end(None)
            return False
        self._reader.received(data)
        return self._tls or len(data) == RECEIVE

    def _received(self) -> bytes:
        if not self._tls:
            return self.sock.recv(RECEIVE)
        with self._lock:
            return self.sock.recv(RECEIVE)

    # -- the end

    def abort(self) -> None:
        """Ends it without sending what waits."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """It is broken; what can be read is read."""
        if self._ended:
            return
        with contextlib.suppress(Exception):  # the end of what can be read, in whatever way it shows
            if self.lending is not None and (rest := self.lending.end()):
                self._reader.received(rest)
            while not self._ended and (data := self._received()):
                self._reader.received(data)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._out.clear()
        self._services.remove_reader(self.sock.fileno())
        self._services.remove_writer(self.sock.fileno())
        self._services.add_callback_threadsafe(lambda: self._finish(error))

    def _finish(self, error: BaseException | None) -> None:
        try:
            self._reader.lost(error)
        finally:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
            if self.lending is not None:
                self.lending.end()
            self.sock.close()
