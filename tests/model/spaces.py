"""What is explored: SPACES by `make model`, SMALL by `make test`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.model.bounds import Bounds
from tests.model.state import Left

SMALL: Final[Mapping[str, Bounds]] = {
    "one-promotion": Bounds(Left(publishes=1, claims=1)),
    "registry-pair-small": Bounds(Left(publishes=1, claims=1), 2, "registry"),
}

LISTED = ("publish at a", "add D at a", "connects to d a", "is welcomed d", "has copied all d", "hears a d")
"""A fourth broker has entered: it is a member and in sync.  The others have heard nothing of it, or of the message."""
CLAIMING = (*LISTED, "gives up a b", "applies d set", "applies d set", "crash a", "claims epoch 2 d having heard bc")
"""It is the only one that knows the newest list and set, and claims; with one crash left."""

SPACES: Final[Mapping[str, Bounds]] = {
    **SMALL,
    "registry-pair": Bounds(Left(publishes=1, claims=1, losses=1), 2, "registry"),
    "registry-pair-crash": Bounds(Left(publishes=1, claims=1, crashes=1, losses=1), 2, "registry"),
    "registry-pair-look": Bounds(Left(publishes=1, claims=1, losses=1, looks=1), 2, "registry"),
    "shrink": Bounds(Left(publishes=1, claims=1, losses=1)),
    "crash": Bounds(Left(publishes=1, claims=1, crashes=1)),
    "promotions": Bounds(Left(publishes=1, claims=2)),
    "demote": Bounds(Left(publishes=1, claims=1, demotes=1)),
    "member-leaves": Bounds(Left(publishes=1, claims=1, members=1)),
    "four": Bounds(Left(publishes=1, claims=1), 4, symmetric=True),
    "enters": Bounds(Left(publishes=1, claims=1, members=1), 4, listed=3, symmetric=True, prefix=LISTED),
    "enters-crash": Bounds(
        Left(publishes=1, claims=1, crashes=2, losses=1, members=1), 4, listed=3, symmetric=True, prefix=CLAIMING
    ),
}
