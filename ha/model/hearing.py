"""Which brokers hear which: what a primary must know that cannot store a set, before it gives way (`primary/stall.py`).

Each question (`ha.ask`) and each answer says which brokers its sender has *heard*, and how many seconds ago: those with
whom a question and its answer got through.  A backup that is asked tells its primary (`CONTROL heard`).  So a primary
knows of a majority without it also where it is not linked to all of them, and where octets of one of them do not reach
it.  Used for availability only: each claim is judged by its own answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ha.model.environment import Environment
from qpidd_py.errors import LinkError

HEARD_MAX: Final = 1000
"""Brokers that one may have heard."""
LONG_AGO: Final = 1e12
"""Seconds."""


def ages(value: Mapping[str, Any]) -> dict[str, float]:
    """The field `heard` of a question or an answer; it may be missing.  Raises LinkError when it is something else."""
    found = value.get("heard") or {}
    if not isinstance(found, Mapping) or len(found) > HEARD_MAX or not all(map(_is_age, found.values())):
        raise LinkError(f"not who was heard: {found!r:.80}")
    return {str(address): float(age) for address, age in found.items()}


def _is_age(found: object) -> bool:
    return isinstance(found, int | float) and 0 <= found < LONG_AGO


class Hearing:
    """What one broker knows of that; all times are those of its own clock."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._heard: dict[str, float] = {}
        """Address -> when."""
        self._said: dict[str, dict[str, float]] = {}
        """Address -> when it has heard others, and itself (when it said that)."""

    def answered(self, address: str) -> None:
        """The broker at this address has answered a question of ours."""
        self._heard[address] = self._env.now()

    def said(self, address: str, heard: Mapping[str, float], own: str) -> None:
        """A question or an answer came from `address`.  If it has heard us, its question and our answer got through."""
        now = self._env.now()
        self._said[address] = {other: now - age for other, age in heard.items()} | {address: now}
        if own in heard:
            self._heard[address] = max(now - heard[own], self._heard.get(address, 0.0))

    def ages(self) -> dict[str, float]:
        """Address -> seconds ago."""
        now = self._env.now()
        return {address: round(now - when, 3) for address, when in self._heard.items()}

    def apart(self, brokers: Iterable[str], since: float) -> int:
        """How many of these brokers there are at most of which one has heard the others, all of that since then.  A
        broker that was heard has heard as well, also if it cannot tell us."""
        groups: dict[str, set[str]] = {address: set() for address in brokers}
        for speaker, said in self._said.items():
            for other, when in said.items():
                if when >= since and speaker in groups and other in groups:
                    groups[speaker] |= {speaker, other}
                    groups[other] |= {speaker, other}
        return max(map(len, groups.values()), default=0)
