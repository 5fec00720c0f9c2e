"""Random conversations about quorum queues and exchanges that hash: RabbitMQ and we answer alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.differential.alike import SEQUENCES, assert_alike
from tests.differential.conversation import Conversation
from tests.differential.quorum_steps import hash_conversations, quorum_conversations
from tests.differential.steps import Step


class Uncounted(Conversation):
    """Asks which queues are there, and not what is in them: a quorum queue of RabbitMQ counts some time later."""

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
    sequences = max(SEQUENCES // 4, 10)
    assert_alike(ports, conversations(), sequences, f"{conversations.__name__}.", Uncounted)
