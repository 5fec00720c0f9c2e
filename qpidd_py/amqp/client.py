"""The client's side of AMQP 0-9-1: frames, heartbeats.  Octets in, events and octets out; no I/O.

Theory.  Two layers, because there are two kinds of caller:

* `ClientHandshake` takes *method payloads* and leaves encoded frames in its output.  A caller whose frames are split
  elsewhere (by the data path, for the replication link) uses it alone, and may stop feeding it at `Opened`.
* `AmqpClient` takes *octets*, splits frames, and adds heartbeats.  With `stop_when_open=True` it stops after
  `open-ok`: later octets belong to another protocol; `left_over()` returns them.

After the end (`ClientState.CLOSED`) all input is ignored.
"""

from collections.abc import Iterator

from qpidd_py.amqp.client_handshake import ClientHandshake, ClientState, ContentReceived, Event, Opened, PeerSilent
from qpidd_py.amqp.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
)
from qpidd_py.errors import ConnectionException, ReplyCode


class _Wait:
    """More octets are needed."""


class AmqpClient:
    """Octets in, events out, heartbeats; see the theory above.  Times are seconds of any steady clock."""

    def __init__(self, handshake: ClientHandshake, *, stop_when_open: bool = False) -> None:
        self.handshake = handshake
        self._stop_when_open = stop_when_open
        self._input = bytearray()
        self._handed_over = False
        self._last_received: float | None = None
        self._last_sent: float | None = None
        self._heard = False
        self._spoke = False
        handshake.begin()

    @property
    def state(self) -> ClientState:
        return self.handshake.state

    def take_output(self) -> bytes:
        output = self.handshake.take_output()
        self._spoke = self._spoke or bool(output)
        return output

    def left_over(self) -> bytes:
        """Octets received after `open-ok` (with `stop_when_open`), for another parser."""
        taken = bytes(self._input)
        self._input.clear()
        return taken

    def feed(self, data: bytes) -> list[Event]:
        """Raises `ConnectionException` when the peer breaks the protocol."""
        self._input += data
        self._heard = self._heard or bool(data)
        return list(self._events())

    def _events(self) -> Iterator[Event]:
        while not self._handed_over and self.state is not ClientState.CLOSED:
            event = self._next()
            if isinstance(event, _Wait):
                return
            if event is not None:
                yield event
            if isinstance(event, Opened) and self._stop_when_open:
                self._handed_over = True

    def _next(self) -> Event | _Wait | None:
        """One frame's event, None for a frame without one, `_Wait` when more octets are needed."""
        if self.state is ClientState.START and self._input[:4] == b"AMQP"[: len(self._input)] and self._input:
            return self.handshake.version_refused(bytes(self._input[:8])) if len(self._input) >= 8 else _Wait()
        if len(self._input) < 7:
            return _Wait()
        length = int.from_bytes(self._input[3:7], "big")
        self._check_length(length)
        if len(self._input) < length + FRAME_OVERHEAD:
            return _Wait()
        return self._frame(length)

    def _check_length(self, length: int) -> None:
        opened = self.state in (ClientState.OPEN, ClientState.CLOSING)
        # `start` carries a table of any size; allow more than the limit before tune, but bounded.
        limit = self.handshake.frame_max if opened and self.handshake.frame_max else 1 << 20
        if length + FRAME_OVERHEAD > limit:
            self.handshake.state = ClientState.CLOSED
            raise ConnectionException(
                ReplyCode.FRAME_ERROR, f"FRAME_ERROR - frame of {length + FRAME_OVERHEAD} octets, at most {limit}"
            )

    def _frame(self, length: int) -> Event | None:
        kind, channel = self._input[0], int.from_bytes(self._input[1:3], "big")
        payload, end = bytes(self._input[7 : 7 + length]), self._input[7 + length]
        del self._input[: length + FRAME_OVERHEAD]
        if end != FRAME_END:
            self.handshake.state = ClientState.CLOSED
            raise ConnectionException(ReplyCode.FRAME_ERROR, f"FRAME_ERROR - frame end 0xce wanted, found {end:#04x}")
        if kind == FRAME_METHOD:
            return self.handshake.method(channel, payload)
        if kind in (FRAME_HEADER, FRAME_BODY) and self.state is ClientState.OPEN:
            return ContentReceived(channel, kind == FRAME_HEADER, payload)
        if kind == FRAME_HEARTBEAT or self.state is ClientState.CLOSING:
            return None
        self.handshake.state = ClientState.CLOSED
        raise ConnectionException(ReplyCode.UNEXPECTED_FRAME, f"UNEXPECTED_FRAME - kind {kind} on channel {channel}")

    def tick(self, now: float) -> PeerSilent | None:
        """Call a few times per heartbeat interval: queues a heartbeat, or reports that the peer is gone."""
        if self._heard or self._last_received is None:
            self._last_received, self._heard = now, False
        if self._spoke or self._last_sent is None:
            self._last_sent, self._spoke = now, False
        interval = self.handshake.heartbeat
        if not interval or self.state is not ClientState.OPEN:
            return None
        if now - self._last_sent >= interval / 2:
            self.handshake.write(HEARTBEAT_FRAME)
        silence = now - self._last_received
        return PeerSilent(silence) if silence > 2 * interval else None
