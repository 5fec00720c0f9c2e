"""Moves octets between a TLS connection of asyncio and a connection of the core; both ends of a connection use it.

asyncio decrypts and encrypts, the core parses as it does for plain TCP.  Back-pressure both ways: while asyncio's
buffer is full the output stays in the core, which bounds and counts it; while the core has paused a connection's input,
reading is paused.  When it wants input again the core calls for a flush, as for output.  Octets leave asyncio's buffer
without a call: while `pending` the owner calls `look` at each tick.
"""

import asyncio
from typing import Final

from qpidd_py.core import Connection

BUFFER: Final = 1 << 20
"""Octets that asyncio buffers before it pauses writing."""
CHUNK: Final = 1 << 18
"""Octets that are taken from the core in one go, if a link has that many."""


class TlsPump:
    """One connection, from the end of the TLS handshake on."""

    def __init__(self, transport: asyncio.Transport, core: Connection) -> None:
        self._transport, self._core = transport, core
        self._writable = self._reading = True
        self.pending = False
        """Output has not left yet: it has to be looked at again."""
        transport.set_write_buffer_limits(BUFFER)

    @property
    def waiting(self) -> int:
        """Octets that left the core and that the kernel has not got yet, encrypted or not."""
        inner = getattr(getattr(self._transport, "_ssl_protocol", None), "_transport", None)
        encrypted: int = inner.get_write_buffer_size() if inner is not None else 0
        return self._transport.get_write_buffer_size() + encrypted

    def feed(self, data: bytes) -> None:
        """Octets have come.  Ends the turn."""
        self._core.feed(data)
        self._core.engine.end_turn()
        self.look()

    def look(self) -> None:
        """Pauses or resumes reading as the core asks, and reports to it how much output has left."""
        waiting = self.waiting
        self._core.left(waiting)
        self.pending = waiting > 0
        wanted = self._core.reads()
        if wanted and not self._reading:
            self._transport.resume_reading()
        elif self._reading and not wanted:
            self._transport.pause_reading()
        self._reading = wanted

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.flush()

    def flush(self) -> None:
        """Writes what the core has, unless asyncio has enough."""
        while self._writable:
            output = self._core.take_output(False, CHUNK)
            if not output:
                break
            self._transport.write(output)
        self.look()

    def finish(self) -> None:
        """Writes everything and closes."""
        self._writable = True
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
