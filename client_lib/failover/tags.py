"""Delivery tags that outlive connections (pure, not thread-safe by itself).

Theory.  A broker numbers the deliveries of one channel from 1 and starts again after a fail-over, so its tags cannot be
shown to an application.  Ours grow for ever: a tag belongs to one delivery and is

    open       issued, to be settled
    settled    by `take`, or never to be settled (automatic acknowledgement)
    lost       issued before the last loss of the connection: its message is delivered again under another tag

Settling a lost tag does nothing.  Settling one that is settled already or was never issued is an error of the program;
a broker closes the channel for it, so `take` raises.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class UnknownTag(Exception):
    """Settled before, or never issued: the argument."""


class DeliveryTags(Generic[T]):
    def __init__(self) -> None:
        self._open: dict[int, T] = {}
        self._last = 0
        self._lost = 0

    def __len__(self) -> int:
        """Open tags."""
        return len(self._open)

    def issue(self, delivery: T | None) -> int:
        """A new tag; None for a delivery that needs no answer."""
        self._last += 1
        if delivery is not None:
            self._open[self._last] = delivery
        return self._last

    def take(self, tag: int, multiple: bool) -> list[T]:
        """The deliveries settled by this tag, oldest first; with `multiple` all up to it, and 0 means all.

        Raises UnknownTag."""
        if not multiple:
            delivery = self.take_one(tag)
            return [] if delivery is None else [delivery]
        if tag not in self._open and tag != 0 and not 0 < tag <= self._lost:
            raise UnknownTag(tag)
        through = tag or self._last
        tags = []
        for number in self._open:
            if number > through:
                break
            tags.append(number)
        return [self._open.pop(number) for number in tags]

    def take_one(self, tag: int) -> T | None:
        """The delivery of this tag; None for one that is lost.  Raises UnknownTag."""
        delivery = self._open.pop(tag, None)
        if delivery is None and not 0 < tag <= self._lost:
            raise UnknownTag(tag)
        return delivery

    def take_all(self) -> list[T]:
        """Everything open, oldest first; the tags count as lost, since the outcome at the broker is unknown."""
        left = list(self._open.values())
        self.lost()
        return left

    def lost(self, keep: bool = False) -> None:
        """The connection was lost.  With `keep` open deliveries can still be settled (a duplicate filter attaches their
        next copy to them)."""
        self._lost = self._last
        if not keep:
            self._open.clear()
