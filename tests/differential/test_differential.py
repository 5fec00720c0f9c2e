"""Random conversations with RabbitMQ, with a broker that stands alone, and with a cluster: all answer alike.

`SEQUENCES=5000 SEED=7 pytest tests/differential` takes more of them, and others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.conversation import Conversation
from tests.differential.differences import first_difference, report
from tests.differential.steps import Step, conversations
from tests.support import three_ways
from tests.support.rabbit import rabbit_cluster
from tests.support.slow import few

SEQUENCES = int(os.environ.get("SEQUENCES", few(200)))
SEED = int(os.environ.get("SEED", 0))
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """RabbitMQ's is the first."""
    members = three_ways.cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with rabbit_cluster() as rabbit, three_ways.alone(tmp_path_factory.mktemp("alone")) as alone:
            yield {"RabbitMQ": rabbit.ports[0], "alone": alone.port, "cluster": members.brokers["a"].port}
    finally:
        members.close()


def test_all_brokers_answer_alike(ports: dict[str, int]) -> None:
    numbers = count()

    @seed(SEED)
    @settings(
        max_examples=SEQUENCES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck)
    )
    @given(conversations())
    def compare(steps: list[Step]) -> None:
        prefix = f"{next(numbers)}."
        theirs, *ours = (Conversation(port, prefix).hold(steps) for port in ports.values())
        for transcript in ours:
            place = first_difference(steps, theirs, transcript)
            assert place is None, report(steps, theirs, transcript, place)

    compare()
