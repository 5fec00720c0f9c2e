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
}
