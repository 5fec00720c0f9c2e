"""Which modules of `ha` a plain `make mutants` tries: those of which every survivor was reviewed, that is killed by a
new test or excused with a reason.  A module of `ha` is on exactly one of the two lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REVIEWED: Final = ("claims", "safety")
UNREVIEWED: Final[Mapping[str, tuple[str, ...]]] = {}
"""Reason -> modules."""


def said() -> str:
    """For people: what was left out, and why."""
    lines = [f"reviewed: {' '.join(sorted(REVIEWED))}"]
    lines += [f"not tried, {reason}: {' '.join(sorted(names))}" for reason, names in UNREVIEWED.items()]
    return "\n".join(lines)
