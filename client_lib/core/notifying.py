"""Errors as qpid.messaging shows them: a handler that is called when one happens, and `get_error`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from client_lib.errors import MessagingError

LOGGER = logging.getLogger("client_lib")
Told = Callable[[Any], None]
Handler = Callable[[Any, Any], object]


def silent(_error: Any) -> None:
    """No handler."""


def notifier(owner: Any, handler: Handler | None) -> Told:
    """Calls `handler(owner, error)`; what it raises is logged.  Raises TypeError."""
    if handler is None:
        return silent
    if not callable(handler):
        raise TypeError(f"the handler is {handler!r}, expected a function")

    def told(error: Any) -> None:
        try:
            handler(owner, error)
        except Exception:
            LOGGER.exception("the handler of %r raised for: %s", owner, error)

    return told


def error_of(check: Callable[[], None]) -> MessagingError | None:
    """What `check` raises."""
    try:
        check()
    except MessagingError as error:
        return error
    return None
