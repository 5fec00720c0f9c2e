"""What a request shows to its user: all there is, or only what is the user's.                                  Pure.

Who has the tag monitoring sees all.  Others see the virtual hosts that they may enter, and there their own connections.
`rights` says which it is, for each request anew; nothing else of other users and virtual hosts is told, not by counts
either.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

SIGHT: Final = "sight"
"""Among the arguments of a request; set for each, so that no peer brings its own."""


class Sight(NamedTuple):
    """Of one request."""

    hosts: frozenset[str] | None = None
    """The virtual hosts that are shown; None: all."""
    user: str = ""
    """Whose connections are, unless all are."""

    def sees(self, host: object, user: object = None) -> bool:
        """`host`: where something is, `user`: whose connection it is of."""
        return self.hosts is None or (host in self.hosts and user in (None, self.user))

    @property
    def mark(self) -> str:
        """Tells the virtual hosts of one sight from those of another; empty for all."""
        if self.hosts is None:
            return ""
        return hashlib.sha256("\0".join(sorted(self.hosts)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


ALL: Final = Sight()


def sight_of(arguments: dict[str, Any]) -> Sight:
    found: Sight = arguments[SIGHT]
    return found
