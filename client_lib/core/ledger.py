"""The unsettled deliveries of a channel, and the methods that settle them (pure, not thread-safe by itself).

Acknowledgements are collected and sent together: if the oldest unsettled deliveries of the channel are all
acknowledged, one basic.ack with `multiple` covers them.  `multiple` reaches over all consumers of a
channel, so the ledger must know every delivery of the channel that needs an answer.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any


class _WithReason(EnumMeta):
    """`Disposition(REJECTED, code=, text=)` as in Qpid.  AMQP 0-9-1 has no room for the reason: it is dropped."""

    def __call__(cls, value: Any, *names: Any, code: int | None = None, text: str | None = None, **more: Any) -> Any:
        return super().__call__(value, *names, **more)


class Disposition(Enum, metaclass=_WithReason):
    ACCEPT = "accept"
    REJECT = "reject"  # dead-lettered or dropped by the broker
    RELEASE = "release"  # back to the queue

    if TYPE_CHECKING:  # type checkers do not read the metaclass

        def __init__(self, value: Any, code: int | None = None, text: str | None = None) -> None: ...


ACCEPTED, REJECTED, RELEASED = Disposition.ACCEPT, Disposition.REJECT, Disposition.RELEASE
"""Qpid's names; `Disposition(RELEASED)` is the same as RELEASED."""


@dataclass(frozen=True)
class Settle:
    """One method to send: basic.ack if ACCEPT, else basic.reject with requeue for RELEASE."""

    delivery_tag: int
    disposition: Disposition
    multiple: bool = False


class Ledger:
    def __init__(self) -> None:
        self._open: OrderedDict[int, Disposition | None] = OrderedDict()
        self._decided: list[int] = []

    def __len__(self) -> int:
        """Deliveries that are not settled, counting decided ones until `take`."""
        return len(self._open)

    def delivered(self, delivery_tag: int) -> None:
        self._open[delivery_tag] = None

    def settle(self, delivery_tag: int, disposition: Disposition) -> bool:
        """Returns False if the tag is unknown or already decided; the first decision counts."""
        if self._open.get(delivery_tag, disposition) is not None:
            return False
        self._open[delivery_tag] = disposition
        self._decided.append(delivery_tag)
        return True

    @property
    def decided(self) -> int:
        """The number of decisions that `take` would report."""
        return len(self._decided)

    def take(self) -> list[Settle]:
        """The methods to send now for all decisions since the last call."""
        if not self._decided:
            return []
        methods = self._prefix()
        for tag in self._decided:
            disposition = self._open.pop(tag, None)
            if disposition is not None:
                methods.append(Settle(tag, disposition))
        self._decided = []
        return methods

    def _prefix(self) -> list[Settle]:
        last, count = 0, 0
        while self._open:
            tag, disposition = next(iter(self._open.items()))
            if disposition is not Disposition.ACCEPT:
                break
            self._open.popitem(last=False)
            last, count = tag, count + 1
        return [Settle(last, Disposition.ACCEPT, multiple=count > 1)] if count else []

    def connection_lost(self) -> None:
        """The broker has requeued every unsettled delivery already; nothing will be written for them."""
        self._open.clear()
        self._decided.clear()
