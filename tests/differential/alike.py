"""The comparison: random conversations with all brokers, on connections that are opened once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.conversation import Conversation, Line
from tests.differential.differences import first_difference, report
from tests.differential.steps import Step
from tests.support.slow import few

SEQUENCES = int(os.environ.get("SEQUENCES", few(200)))
SEED = int(os.environ.get("SEED", 0))
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def assert_alike(
    ports: Mapping[str, int],
    conversations: st.SearchStrategy[list[Step]],
    sequences: int,
    name: str = "",
    kind: type[Conversation] = Conversation,
    doubt: Callable[[list[Any], list[Any], int], bool] = lambda *_: False,
) -> None:
    """`ports`: RabbitMQ's first.  `name`: begins the names of all objects.  `doubt`: whether a difference at this place
    is reason to ask RabbitMQ once more."""
    numbers, lines = count(), [Line(port) for port in ports.values()]

    @seed(SEED)
    @settings(
        max_examples=sequences, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck)
    )
    @given(conversations)
    def compare(steps: list[Step]) -> None:
        prefix = f"{name}{next(numbers)}."
        theirs, *ours = (kind(line, prefix).hold(steps) for line in lines)
        for transcript in ours:
            place = first_difference(steps, theirs, transcript)
            if place is not None and doubt(theirs, transcript, place):
                theirs = kind(lines[0], prefix).hold(steps)
                place = first_difference(steps, theirs, transcript)
            assert place is None, report(steps, theirs, transcript, place)

    try:
        compare()
    finally:
        for line in lines:
            line.client.close()
