"""Two groups of clients at work all the time: one through the address list, one through the virtual address.   Shell.

Each group is what `torture.load` makes: producers and consumers of `client_lib`, plain pika and transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from testkit.record import read
from torture.load import BUSY
from torture.loaders import Loaders, Place

LIST, VIRTUAL = "list", "vip"
RATE: Final = 120.0
"""Messages a second of a group: the nodes and the clients share two processors."""
CONNECT: Final = 0.15
"""Seconds for an attempt to connect.  While the virtual address moves a SYN may be lost; the kernel repeats it after a
second, so a client in a LAN tries again earlier."""


class Clients:
    """Both groups; `name` tells the queues of one trial from those of another."""

    def __init__(
        self, directory: Path, place: Place, name: str, addresses: Iterable[str], virtual: str, rate: float = RATE,
        login: str = "guest/guest",
    ) -> None:  # fmt: skip
        """Addresses with ports.  An empty `virtual`: there is only the list."""
        self.directory = directory
        ways = {LIST: ",".join(addresses), VIRTUAL: virtual}
        self.groups: Mapping[str, Loaders] = {
            way: Loaders(directory, place, text, rate, f"{name}.{way}", CONNECT, login=login)
            for way, text in ways.items()
            if text
        }

    def start(self) -> None:
        for group in self.groups.values():
            group.start()

    def check(self) -> None:
        """Raises LoadFailed."""
        for group in self.groups.values():
            group.check()

    def served_since(self, moment: int) -> bool:
        """Everyone that has something to do has got something done since then (µs of CLOCK_MONOTONIC)."""
        return not self.waiting_since(moment)

    def waiting_since(self, moment: int) -> list[str]:
        """Who has not."""
        return [
            f"{way}#{slot}"
            for way, group in self.groups.items()
            for slot in BUSY
            if group.board.read(slot).last <= moment
        ]

    def stop(self, role: str) -> None:
        """In an orderly way: producers have everything settled, consumers have acknowledged.  Raises LoadFailed."""
        for group in self.groups.values():
            group.stop(role, _tick)

    def drain(self) -> None:
        for group in self.groups.values():
            group.drain()

    def kill(self) -> None:
        for group in self.groups.values():
            group.kill()

    def history(self) -> list[dict[str, object]]:
        return list(read(self.directory / "history"))


def _tick() -> None:
    time.sleep(0.02)


def way_of(client: str) -> str:
    """`list` or `vip`, from a client's name in the history."""
    return client.split(".")[-2]


def by_way(values: Mapping[str, float]) -> dict[str, list[float]]:
    """Client → value as way → values."""
    found: dict[str, list[float]] = {}
    for client, value in sorted(values.items()):
        found.setdefault(way_of(client), []).append(value)
    return found
