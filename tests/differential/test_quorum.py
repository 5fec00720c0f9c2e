"""Random conversations about quorum queues and exchanges that hash: RabbitMQ and we answer alike."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.differential.conversation import Conversation, Line
from tests.differential.differences import first_difference, report
from tests.differential.quorum_steps import hash_conversations, quorum_conversations
from tests.differential.steps import Step
from tests.differential.test_differential import PHASES, SEED, SEQUENCES


class Uncounted(Conversation):
    """Asks which queues are there, and not what is in them."""

    def _states(self) -> list[Any]:
        return [each if isinstance(each, int) else "there" for each in super()._states()]

    def _entry(self) -> list[Any]:
        return [_uncounted(item) for item in super()._entry()]


def _uncounted(item: Any) -> Any:
    name, *rest = item
    if name in ("Queue.DeclareOk", "Queue.DeleteOk", "Queue.PurgeOk"):
        return name
    if name == "Basic.GetOk":
        fields, *content = rest
        return name, {key: value for key, value in fields.items() if key != "message_count"}, *content
    return item


@pytest.mark.parametrize("conversations", [quorum_conversations, hash_conversations])
def test_all_brokers_answer_alike(
    ports: dict[str, int], conversations: Callable[[], st.SearchStrategy[list[Step]]]
) -> None:
    numbers, lines = count(), [Line(port) for port in ports.values()]
    name = conversations.__name__

    @seed(SEED)
    @settings(
        max_examples=max(SEQUENCES // 4, 10),
        deadline=None,
        database=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(conversations())
    def compare(steps: list[Step]) -> None:
        prefix = f"{name}.{next(numbers)}."
        theirs, *ours = (Uncounted(line, prefix).hold(steps) for line in lines)
        for transcript in ours:
            place = first_difference(steps, theirs, transcript)
            assert place is None, report(steps, theirs, transcript, place)

    try:
        compare()
    finally:
        for line in lines:
            line.client.close()
