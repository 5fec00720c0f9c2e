"""A thread that waits for the broker reads the socket itself: no other thread has to wake it (shell).

Theory.  The loop's thread reads, unless it has *lent* reading to the threads that wait.

* It lends when a thread has asked for it (`read` while it was not lent), just after it has read something, and only if
  no other thread waits.  From then on the loop does not watch the socket; the thread is woken, to read.
* A thread that waits reads with `_lock` held.  It takes deliveries and basic.ack; whatever begins with another frame is
  given back, together with reading: all that changes channels and connections runs in the loop's thread only.
* A thread takes `_lock` while it holds the monitor of its session and what it waits for has not come.  What it waits
  for can come only from a thread that reads, so it cannot be missed.  Other changes are noticed after PATIENCE.
* A thread that waits for more than the broker is woken by `nudge`, from any other thread.
* Reading is given back when nothing has come for PATIENCE, when a thread stops waiting while another one still waits,
  when a thread begins to wait that does not read, and when no thread has read for LEASE: the loop's thread looks.
* `lent` changes in the loop's thread only: what was given back is read there before anything else.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from client_lib.connecting.services import Services

Resume = Callable[[bytes, BaseException | None], None]
PATIENCE = 0.02  # seconds
LEASE = 0.01  # seconds
RECEIVE = 16384  # octets
DEBT = 32
"""How many wishes are not granted after it had to be taken back for somebody else."""


class Lending:
    """One per stream."""

    def __init__(self, sock: socket.socket, services: Services, quick: Callable[[bytes], bytes | None]) -> None:
        """`quick` reads what any thread may read, and returns the rest that only the loop's thread may."""
        self.lent = False
        self.wanted: Any = None
        """The monitor of a thread that would have liked to read."""
        self._sock, self._services, self._quick = sock, services, quick
        self._lock = threading.Lock()
        """Held by the thread that reads."""
        self._given_back = self._over = False
        self._rest = b""
        self._error: BaseException | None = None
        self._count = threading.Lock()
        self._readers = self._others = 0
        """Threads that wait, and call `read` or do not."""
        self._used = self._recalled = False
        self._debt = 0
        self._resume: Resume = lambda _rest, _error: None
        self._ear = self._bell = -1
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)

    # -- threads that wait

    def enter(self, reads: bool) -> None:
        """A thread begins to wait for something of the broker.  `reads`: it calls `read`."""
        with self._count:
            self._readers += reads
            self._others += not reads
        if self.lent and not reads:
            self.recall()

    def leave(self, reads: bool) -> None:
        with self._count:
            self._readers -= reads
            self._others -= not reads
            left = self._readers + self._others
        if left and self.lent:
            self.recall()

    def recall(self) -> None:
        """The loop shall read what comes next: at once or, if a thread reads now, after that."""
        self._debt, self._recalled = DEBT, True
        self._take_back()

    def read(self, monitor: Any, timeout: float | None) -> bool:
        """Reads once, with the `monitor`, which the caller holds once, released meanwhile.  False: another thread
        reads; wait for its notice."""
        if not self.lent:
            self.wanted = monitor
            return False
        if not self._lock.acquire(blocking=False):
            return False
        if self._given_back or self._over:
            self._lock.release()
            return False
        self._used = True
        monitor.release()
        try:
            self._read(PATIENCE if timeout is None else min(timeout, PATIENCE))
        finally:
            self._lock.release()
            if self._recalled:
                self._take_back()
            monitor.acquire()
        return True

    def listen(self) -> bool:
        """Whether there may be nudges: they need two descriptors, which most connections are spared."""
        with self._count:
            if self._ear < 0 and not self._over:
                try:
                    self._ear, self._bell = os.pipe()
                except OSError:
                    return False
                for end in (self._ear, self._bell):
                    os.set_blocking(end, False)
                self._poll.register(self._ear, select.POLLIN)
        return True

    def nudge(self) -> None:
        """Lets a thread that waits in `read` return, from any other thread, after `listen`."""
        if self._lock.locked():
            with self._count:
                if self._bell >= 0:
                    with contextlib.suppress(BlockingIOError):  # it has enough to wake up for
                        os.write(self._bell, b"x")

    def _read(self, timeout: float) -> None:
        ready = self._poll.poll(timeout * 1000)
        if not ready:
            self._give_back(b"")
            return
        if any(descriptor == self._ear for descriptor, _ in ready):
            os.read(self._ear, 4096)
            if len(ready) == 1:
                return
        try:
            data = self._sock.recv(RECEIVE)
            rest = self._quick(data)
        except (BlockingIOError, InterruptedError):
            return
        except BaseException as error:  # of the socket, or an interrupt: what was read may be lost
            self._give_back(b"", error)
            if not isinstance(error, Exception):
                raise
            return
        if rest or not data:
            self._give_back(rest or b"")

    def _give_back(self, rest: bytes, error: BaseException | None = None) -> None:
        """Lock held."""
        if self.lent and not self._given_back and not self._over:
            self._given_back, self._rest, self._error = True, rest, error
            self._services.add_callback_threadsafe(self._returned)

    def _take_back(self) -> bool:
        """False while a thread reads."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._give_back(b"")
        finally:
            self._lock.release()
        return True

    # -- the loop's thread

    def lend(self, resume: Resume) -> bool:
        """The loop does not read from now on, until `resume` is called with what must be read first, or with an error
        that ends the stream.  No lock is held."""
        monitor, self.wanted = self.wanted, None
        if self._debt:
            self._debt -= 1
            return False
        if self._readers != 1 or self._others or self._over:
            return False
        self._resume, self._used, self._recalled, self.lent = resume, False, False, True
        if self._readers != 1 or self._others:  # just now
            self.recall()
        self._services.call_later(LEASE, self._look)
        if monitor is not None:
            with monitor:
                monitor.notify_all()
        return True

    def _look(self) -> None:
        used, self._used = self._used, False
        if not self.lent or self._over:
            return
        if used or not self._take_back():
            self._services.call_later(LEASE, self._look)

    def _returned(self) -> None:
        if not self._over:
            self.lent = self._given_back = False
            rest, self._rest = self._rest, b""
            self._resume(rest, self._error)

    def end(self) -> bytes:
        """Waits until no thread reads, which is at most PATIENCE, and lends no more.  Returns what must be read."""
        with self._lock, self._count:
            self._over = True
            if self._ear >= 0:
                os.close(self._ear)
                os.close(self._bell)
                self._ear = self._bell = -1
            rest, self._rest = self._rest, b""
        return rest
