"""Random conversations with RabbitMQ, with a broker that stands alone, and with a cluster: all answer alike.

`SEQUENCES=5000 SEED=7 pytest tests/differential` takes more of them, and others.
"""

from __future__ import annotations

import os
from itertools import count

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.conversation import Conversation, Line
from tests.differential.differences import first_difference, only_counts, report
from tests.differential.steps import Step, conversations
from tests.support.slow import few

SEQUENCES = int(os.environ.get("SEQUENCES", few(200)))
SEED = int(os.environ.get("SEED", 0))
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def test_all_brokers_answer_alike(ports: dict[str, int]) -> None:
    numbers = count()
    lines = [Line(port) for port in ports.values()]

    @seed(SEED)
    @settings(
        max_examples=SEQUENCES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck)
    )
    @given(conversations())
    def compare(steps: list[Step]) -> None:
        prefix = f"{next(numbers)}."
        theirs, *ours = (Conversation(line, prefix).hold(steps) for line in lines)
        for transcript in ours:
            place = first_difference(steps, theirs, transcript)
            if place is not None and only_counts(theirs, transcript, place):
                # A queue of RabbitMQ may count before it takes what its channel has just handed over.  We do not.
                theirs = Conversation(lines[0], prefix).hold(steps)
                place = first_difference(steps, theirs, transcript)
            assert place is None, report(steps, theirs, transcript, place)

    try:
        compare()
    finally:
        for line in lines:
            line.client.close()


def test_a_second_conversation_is_for_counts_only() -> None:
    ours = [[("Basic.Ack", 1), ("queues", (1, 0))]]
    assert only_counts([[("Basic.Ack", 1), ("queues", (0, 0))]], ours, 0)
    assert not only_counts([[("Basic.Nack", 1), ("queues", (0, 0))]], ours, 0)
    assert not only_counts([], ours, 0)
