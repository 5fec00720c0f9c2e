"""Puts the method, the header and the body frames of a content together (pure)."""

from __future__ import annotations

from typing import Any

import pika.exceptions
from pika.frame import Body, Header
from pika.spec import Basic

WITH_CONTENT = (Basic.Deliver, Basic.GetOk, Basic.Return)
Content = tuple[Any, Any, bytes]
"""method, properties, body."""


class Contents:
    """One per channel."""

    def __init__(self) -> None:
        self._method: Any = None
        self._header: Any = None
        self._pieces: list[bytes] = []
        self._missing = 0

    def begin(self, method: Any) -> None:
        """One of WITH_CONTENT."""
        self._method, self._header = method, None

    def add(self, frame: Any) -> Content | None:
        """A header or body frame; the content, if it is complete.  Raises UnexpectedFrameError, BodyTooLongError."""
        if isinstance(frame, Header) and self._method is not None and self._header is None:
            self._header, self._pieces, self._missing = frame, [], int(frame.body_size)
        elif isinstance(frame, Body) and self._header is not None:
            self._pieces.append(frame.fragment)
            self._missing -= len(frame.fragment)
        else:
            raise pika.exceptions.UnexpectedFrameError(frame)
        if self._missing < 0:
            size = int(self._header.body_size)
            raise pika.exceptions.BodyTooLongError(size - self._missing, size)
        return None if self._missing else self._finish()

    def _finish(self) -> Content:
        found = self._method, self._header.properties, b"".join(self._pieces)
        self._method, self._header, self._pieces = None, None, []
        return found
