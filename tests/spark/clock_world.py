"""Clocks and messages with the truth known: what nodes would write, at true times that we choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from spark_jobs.clocks.pairs import Observation, thinned

BEGIN = 1_795_226_000_000_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND


@dataclass(frozen=True)
class Clock:
    """us; `steps`: (true time since BEGIN, jump)."""

    offset: int = 0
    ppm: float = 0.0
    steps: tuple[tuple[int, int], ...] = ()
    resolution: int = 1

    def exact(self, t: int) -> float:
        """What it shows at `t` (us since BEGIN)."""
        return BEGIN + t + self.offset + t * self.ppm / 1e6 + sum(jump for at, jump in self.steps if t >= at)

    def read(self, t: int) -> int:
        """What is written down."""
        return int(self.exact(t)) // self.resolution * self.resolution

    @property
    def slack(self) -> int:
        return self.resolution


@dataclass(frozen=True)
class World:
    clocks: dict[str, Clock]
    messages: Sequence[tuple[int, int, str, str]]
    """(sent, received, sender, receiver) in true time"""

    def observations(self) -> list[Observation]:
        return thinned(
            Observation(
                sender,
                receiver,
                self.clocks[sender].read(sent),
                self.clocks[receiver].read(received) - self.clocks[sender].read(sent),
                self.clocks[receiver].slack,
                "clock",
            )
            for sent, received, sender, receiver in self.messages
        )

    def event(self, node: str, t: int, **more: object) -> dict[str, object]:
        clock = self.clocks[node]
        return {"node": node, "kind": "state", "ts_wall": clock.read(t), "ts_res": clock.resolution} | more


def messages(
    random: Random, nodes: Sequence[str], count: int, seconds: int, fast: int = 300, slow: int = 2_000
) -> list[tuple[int, int, str, str]]:
    """Both ways between all pairs, with delays that differ by direction and have heavy tails."""
    made = []
    for _ in range(count):
        sender, receiver = random.sample(list(nodes), 2)
        sent = random.randrange(seconds * SECOND)
        least = fast if sender < receiver else slow
        made.append((sent, sent + int(least * random.paretovariate(1.2)), sender, receiver))
    return made


def plain_clocks() -> st.SearchStrategy[Clock]:
    """Without steps."""
    return st.builds(
        Clock,
        st.integers(-5 * SECOND, 5 * SECOND) | st.sampled_from([HOUR, -HOUR * 11 // 2]),
        st.floats(-90, 90, allow_nan=False),
        st.just(()),
        st.sampled_from([1, 1_000, SECOND]),
    )
