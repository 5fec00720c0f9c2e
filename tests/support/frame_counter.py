"""Where in a stream of AMQP 0-9-1 frames to cut it, so that it ends inside a frame.  Pure."""

from __future__ import annotations

from typing import Final

HEADER: Final = 7
"""Octets: type, channel, size."""
PROTOCOL_HEADER: Final = 8
"""Octets a client begins with, before its first frame."""


class FrameCounter:
    """One direction of a connection; knows where frames begin from the first octet on."""

    def __init__(self, before: int = 0) -> None:
        """`before`: octets that precede the first frame."""
        self.frames = 0
        """Frames that have begun."""
        self._offset = 0
        self._skip = before
        self._header = b""
        self._begin = 0
        self._wanted: tuple[int, int] | None = None
        self._cut: int | None = None

    def arm(self, frame: int, octets: int) -> None:
        """`feed` shall cut after `octets` of the `frame`-th frame that begins from now on, 1 is the next one.

        The cut lies inside: at least 1 octet is passed and the last one is not.  Raises ValueError."""
        if frame < 1 or octets < 1:
            raise ValueError(f"frame {frame} and octets {octets} must be at least 1")
        self._wanted = (self.frames + frame, octets)

    def disarm(self) -> None:
        """Whatever was asked for is off."""
        self._wanted = self._cut = None

    def feed(self, data: bytes) -> int | None:
        """The next octets of the stream.  How many of them come before the cut; None: all, and no cut."""
        start, position = self._offset, 0
        while position < len(data):
            position = self._skipped(data, position) if self._skip else self._head(data, position)
        self._offset = start + len(data)
        if self._cut is None or self._cut > self._offset:
            return None
        return max(0, self._cut - start)

    def _skipped(self, data: bytes, position: int) -> int:
        step = min(self._skip, len(data) - position)
        self._skip -= step
        return position + step

    def _head(self, data: bytes, position: int) -> int:
        if not self._header:
            self.frames += 1
            self._begin = self._offset + position
            if self._wanted is not None and self._wanted[0] == self.frames:
                self._cut = self._begin + self._wanted[1]
                self._wanted = None
        taken = data[position : position + HEADER - len(self._header)]
        self._header += taken
        if len(self._header) == HEADER:
            self._skip = int.from_bytes(self._header[3:], "big") + 1
            self._header = b""
            if self._cut is not None:
                self._cut = min(self._cut, self._begin + HEADER + self._skip - 1)
        return position + len(taken)
