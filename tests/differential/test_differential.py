"""Random conversations with RabbitMQ, with a broker that stands alone, and with a cluster: all answer alike.

`SEQUENCES=5000 SEED=7 pytest tests/differential` takes more of them, and others.
"""

from __future__ import annotations

from typing import Any

from tests.differential.alike import SEQUENCES, assert_alike
from tests.differential.differences import first_difference, only_counts
from tests.differential.steps import conversations


def test_all_brokers_answer_alike(ports: dict[str, int]) -> None:
    """A queue of RabbitMQ may count before it takes what its channel has just handed over.  We do not."""
    assert_alike(ports, conversations(), SEQUENCES, doubt=only_counts)


def test_a_second_conversation_is_for_counts_only() -> None:
    ours = [[("Basic.Ack", 1), ("queues", (1, 0))]]
    assert only_counts([[("Basic.Ack", 1), ("queues", (0, 0))]], ours, 0)
    assert not only_counts([[("Basic.Nack", 1), ("queues", (0, 0))]], ours, 0)
    assert not only_counts([], ours, 0)


def test_a_known_difference_is_no_other_one() -> None:
    steps: list[Any] = [("declare", {"arguments": {"x-max-length": 0}}), ("commit", {})]
    theirs: list[Any] = [[], [("Tx.CommitOk",), ("queues", (0, 1)), ("Basic.Deliver", {}, {}, b"1")]]
    assert first_difference(steps, theirs, [[], [("Tx.CommitOk",), ("queues", (0, 0))]]) is None
    assert first_difference(steps, theirs, [[], [("Channel.Close", 406), ("queues", (0, 0))]]) == 1
    assert first_difference(steps, theirs, [[], [("Tx.CommitOk",), ("Basic.Return", {}, {}, b"1")]]) == 1
    assert first_difference([("commit", {})], theirs[1:], [[("Tx.CommitOk",)]]) == 0
