"""`x-message-deduplication` of queues: which messages count as sent again.  See `core/duplicates.pyx`."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from qpidd_py.broker.arguments import (
    DEDUPLICATION,
    DEDUPLICATION_KEY,
    DEDUPLICATION_TIME,
    DEDUPLICATION_WINDOW,
    first_difference,
)
from qpidd_py.core.window import Window

KEYS: Final = 1_000_000
"""Remembered by a queue that does not say how many; a key takes 36 octets."""
SECRET_SIZE: Final = 16
"""Octets of the secret of the hash.  Part of the declaration: all brokers have the same one."""


def window_of(arguments: Mapping[str, Any], secret: str) -> Window | None:
    """Of a new queue; None for one that takes every message."""
    if not arguments.get(DEDUPLICATION):
        return None
    name = arguments.get(DEDUPLICATION_KEY)
    octets = blake2b(secret.encode(), digest_size=SECRET_SIZE).digest()
    most, time = arguments.get(DEDUPLICATION_WINDOW, KEYS), arguments.get(DEDUPLICATION_TIME)
    return Window(most, time, octets, None if name is None else name.encode())


def check_same(what: str, asked: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """A passive declaration compares nothing; one that asks for `x-message-deduplication` compares that and the key, so
    a publisher finds out what it may rely on.  Raises 406; `what` names the queue or exchange in the text."""
    if DEDUPLICATION in asked:
        names = (DEDUPLICATION, DEDUPLICATION_KEY)
        wanted, found = ({key: table.get(key) for key in names} for table in (asked, arguments))
        first_difference(what, wanted, found)
