"""Exchanges that number their messages (`qpid.msg_sequence`); the way of a message is in `way.py`.                Pure.

Theory.  The number of a message is in the log before the message: an operation of the configuration (`NUMBER`), in the
same batch (`core/numbering.pyx`).  So each broker that has a message knows its number, or a higher one, and goes on
behind it when it becomes the primary.  The last operation of an exchange is kept like that of a declaration, so a
joining backup and each segment of the journal get it with the rest of the configuration.

A queue gets a message with the number of the last numbering exchange that the message has passed on its way to it.
Each numbering exchange counts each message that it gets, also one that it does not pass on: a consumer sees the gap.
"""

from typing import Final

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.host_settings import within
from qpidd_py.broker.snapshot import Records
from qpidd_py.security.entries import HOST

NUMBER: Final = "exchange.number"
"""The operation: the exchange `name` has given the number `last`."""
MOST: Final = (1 << 63) - 1


class Numbers:
    """Of one exchange that numbers."""

    __slots__ = ("_host", "_name", "_records", "last", "position", "replicated")

    def __init__(self, name: str, records: Records, replicated: bool, host: str = HOST) -> None:
        self.last = 0
        self.position = 0  # of the operation that has `last`
        self.replicated = replicated
        self._records = records
        self._name = name
        self._host = host

    def operation(self) -> bytes:
        """That gives the next number; empty for an exchange of this broker only."""
        if not self.replicated:
            return b""
        return encode_table(within({"op": NUMBER, "name": self._name, "last": self.last + 1}, self._host))

    def note(self, last: int, position: int, payload: bytes) -> None:
        """`payload`: the operation at `position`.  A MemoryError changes nothing."""
        self._records.put(position, payload)
        if self.position != position:
            self._records.drop(self.position)
        self.last, self.position = last, position
