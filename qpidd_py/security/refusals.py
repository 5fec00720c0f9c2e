"""Lines about refused logins, each with the peer's address, few enough to be read.                             Pure.

    login refused from 192.0.2.7:41234: user 'anna' using PLAIN
    login refused from 192.0.2.7:0: 1203 more in 10 s

The address comes first and the name is quoted, so that no name can pretend to be an address: a program that blocks
addresses, such as fail2ban, can rely on the line (`docs/security.md` has its filter).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

NAME: Final = 64
"""Characters of a name that are shown."""
LINES: Final = 5
"""Lines for one address in one period; the rest is counted."""
PERIOD: Final = 10.0
"""Seconds."""
ADDRESSES: Final = 100
"""Addresses with lines of their own in one period; the others are counted together."""


def shown(name: str) -> str:
    """A name from a peer, quoted, in ASCII, at most NAME characters of it."""
    return ascii(name[:NAME]) + ("..." if len(name) > NAME else "")


class Refusals:
    """Counts within periods."""

    def __init__(self) -> None:
        self._began = 0.0
        self._counts: Counter[str] = Counter()
        self._others = 0

    def refused(self, peer: str, what: str, now: float) -> list[str]:
        """The lines to write now."""
        lines = self.period(now)
        host = peer.rpartition(":")[0]
        if host not in self._counts and len(self._counts) >= ADDRESSES:
            self._others += 1
            return lines
        self._counts[host] += 1
        if self._counts[host] <= LINES:
            lines.append(f"login refused from {peer}: {what}")
        return lines

    def period(self, now: float) -> list[str]:
        """The lines about a period that has ended; nothing while it goes on."""
        if now - self._began < PERIOD:
            return []
        lines = [
            f"login refused from {host}:0: {count - LINES} more in {PERIOD:g} s"
            for host, count in self._counts.items()
            if count > LINES
        ]
        if self._others:
            lines.append(f"logins refused from more than {ADDRESSES} addresses: {self._others} more in {PERIOD:g} s")
        self._counts.clear()
        self._others, self._began = 0, now
        return lines
