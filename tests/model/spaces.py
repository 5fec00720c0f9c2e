"""What is explored: SPACES by `make model`, SMALL by `make test`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.model.bounds import Bounds
from tests.model.state import Left


def _replacing(left: Left, prefix: tuple[str, ...] = ()) -> Bounds:
    """Of three brokers one loses its disk, and a fourth one starts."""
    return Bounds(left, 4, listed=3, spare=True, symmetric=True, prefix=prefix)


SMALL: Final[Mapping[str, Bounds]] = {
    "one-promotion": Bounds(Left(publishes=1, claims=1)),
    "registry-pair-small": Bounds(Left(publishes=1, claims=1), 2, "registry"),
    "disk-lost": _replacing(Left(publishes=1, claims=1, disks=1)),
}

LISTED = ("publish at a", "add D at a", "connects to d a", "is welcomed d", "has copied all d", "hears a d")
"""A fourth broker has entered: it is a member and in sync.  The others have heard nothing of it, or of the message."""
CLAIMING = (*LISTED, "gives up a b", "applies d set", "applies d set", "crash a", "claims epoch 2 d having heard bc")
"""It is the only one that knows the newest list and set, and claims; with one crash left."""

REPLACED = ("publish at a", "loses its disk c", "gives up a c")
"""The primary goes on without a broker whose disk is lost.  Then the members are changed, and another one enters."""

DIVIDED = ("publish at a", "gives up a d", "gives up a e", "applies b message", *("applies b set",) * 2, "hears a b")
"""The set is `abc`; of the others only `b` knows that."""

SPACES: Final[Mapping[str, Bounds]] = {
    **SMALL,
    "registry-pair": Bounds(Left(publishes=1, claims=1, losses=1), 2, "registry"),
    "registry-pair-crash": Bounds(Left(publishes=1, claims=1, crashes=1, losses=1), 2, "registry"),
    "registry-pair-look": Bounds(Left(publishes=1, claims=1, losses=1, looks=1), 2, "registry"),
    "shrink": Bounds(Left(publishes=1, claims=1, losses=1)),
    "crash": Bounds(Left(publishes=1, claims=1, crashes=1)),
    "promotions": Bounds(Left(publishes=1, claims=2)),
    "isolated": Bounds(Left(publishes=1, claims=1, losses=1), isolated=True),
    "isolated-four": Bounds(Left(publishes=1, claims=1, losses=2), 4, isolated=True, symmetric=True),
    "demote": Bounds(Left(publishes=1, claims=1, demotes=1)),
    "member-leaves": Bounds(Left(publishes=1, claims=1, members=1)),
    "disk-lost-shrink": _replacing(Left(publishes=1, claims=1, disks=1, losses=1)),
    "replaced": _replacing(Left(publishes=1, claims=1, disks=1, losses=2, members=2), REPLACED),
    "five-claim": Bounds(
        Left(publishes=1, claims=1, losses=2),
        brokers=5,
        symmetric=True,
        prefix=(*DIVIDED, "claims epoch 2 d having heard ce"),
    ),
    "four": Bounds(Left(publishes=1, claims=1), 4, symmetric=True),
    "enters": Bounds(Left(publishes=1, claims=1, members=1), 4, listed=3, symmetric=True, prefix=LISTED),
    "enters-crash": Bounds(
        Left(publishes=1, claims=1, crashes=2, losses=1, members=1), 4, listed=3, symmetric=True, prefix=CLAIMING
    ),
}
