"""Where a received message came from."""

from __future__ import annotations

from typing import Protocol

from client_lib.dedup import DuplicateFilter


class Named(Protocol):
    name: str


class Source(Protocol):
    """The part of a subscription that its deliveries need."""

    queue: str

    @property
    def worker(self) -> Named:
        """Of the session."""

    no_ack: bool
    duplicates: DuplicateFilter[Delivery] | None


class Delivery:
    """`copies` are the (generation, delivery tag) pairs settled together with it."""

    __slots__ = ("copies", "delivery_tag", "generation", "message_id", "settled", "subscription")

    def __init__(self, subscription: Source, generation: int, delivery_tag: int) -> None:
        self.subscription, self.generation, self.delivery_tag = subscription, generation, delivery_tag
        self.copies: tuple[tuple[int, int], ...] = ()
        self.message_id: str | None = None
        """The id used by the duplicate filter."""
        self.settled = False
