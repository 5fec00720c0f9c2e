"""Which events have met a broker in which state: what schedules have reached, and what they hardly ever reach.

A *pair* is (state, event): the state is that of the broker (state, step of joining, promotion under way, frozen, in
doubt), the event a frame, a request, the end of a link, a vote or a set that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ha.backup.backup import Backup
from ha.model.local_member import LocalMember
from ha.model.protocol import Kind
from ha.node import Node
from ha.primary.primary import Primary

Pair = tuple[str, str]
RARE: Final = 2
"""Seen in so many seeds or fewer."""
KINDS: Final = {int(value): name for name, value in vars(Kind).items() if isinstance(value, int)}


class CoveredNode(Node):
    """Notes what comes to it, and changes nothing."""

    pairs: set[Pair]

    def note(self, event: str) -> None:
        self.pairs.add((self._where(), event))

    def _where(self) -> str:
        role, flags = self.role, ["claims"] if self.promoter is not None else []
        if isinstance(role, Backup):
            flags += [role.step.value] if role.step is not None else []
            flags += ["doubt"] if role.doubt else []
            flags += ["whole"] if self.local.whole else []
        elif isinstance(role, Primary):
            flags += ["frozen"] if role.frozen else []
            flags += ["removing"] if role.roster.removing else []
            flags += ["recording"] if not role.roster.record.idle else []
            flags += ["relocating"] if self.relocation is not None else []
        return " ".join([self.local.state.value, *flags])

    def link_frame(self, link: Any, kind: int, position: int, body: bytes) -> None:
        self.note(f"frame {KINDS.get(kind, kind)}")
        super().link_frame(link, kind, position, body)

    def link_batches(self, link: Any, position: int) -> None:
        self.note("frame BATCH")
        super().link_batches(link, position)

    def link_closed(self, link: Any, reason: str) -> None:
        self.note("link closed")
        super().link_closed(link, reason)

    def __init__(self, local: LocalMember) -> None:
        super().__init__(local)
        persist = self.local.persist

        def noted(**changes: Any) -> None:
            self.note(f"persists {' '.join(changes)}")
            persist(**changes)

        self.local.persist = noted  # type: ignore[method-assign]


@dataclass
class Coverage:
    """Of many seeds."""

    seeds: dict[Pair, list[int | str]] = field(default_factory=dict)
    """The first seeds that reached a pair, at most RARE + 1."""

    def add(self, seed: int | str, pairs: Iterable[Pair]) -> bool:
        """Was there a new one?"""
        before = len(self.seeds)
        for pair in pairs:
            found = self.seeds.setdefault(pair, [])
            if len(found) <= RARE and seed not in found:
                found.append(seed)
        return len(self.seeds) > before

    def update(self, other: Mapping[Pair, list[int | str]]) -> None:
        for pair, seeds in other.items():
            for seed in seeds:
                self.add(seed, [pair])

    def text(self) -> str:
        """For people: how many, and how to see each rare one."""
        rare = sorted((pair, seeds) for pair, seeds in self.seeds.items() if len(seeds) <= RARE)
        lines = [f"{len(self.seeds)} pairs of state and event, {len(rare)} of them in {RARE} seeds or fewer:"]
        lines += [f"  {state:40} {event:28} seed {seeds[0]}" for (state, event), seeds in rare]
        return "\n".join(lines)
