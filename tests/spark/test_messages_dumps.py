"""What is still in a queue explains why it was not taken; what was there before the queue was drained does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.messages_judge import Summary, judge
from tests.spark.test_messages_judge import client, producer

LOST = ("publish", "x", 1), ("confirm", "x", 1, {"ts_wall": 5})
DRAINED = 99


def dump(at: int, *numbers: int, unnamed: str | None = None, queue: str = "q") -> list[dict[str, Any]]:
    common = {"source": "broker", "kind": "queue_dump", "queue": queue, "ts_wall": at}
    ids: list[dict[str, Any]] = [
        {"producer": "x", "pub_first": number, "pub_last": number, "attrs": {"count": "1"}} for number in numbers
    ]
    head: list[dict[str, Any]] = [] if unnamed is None else [{"attrs": {"count": unnamed}}]
    return [{**common, **more} for more in [*head, *ids]]


def judged(*rows: dict[str, Any], drained: bool | None = None) -> Summary:
    return judge([*producer("p", *LOST), *client("c", ("ack", "y", 9)), *rows], drained)


def test_what_is_in_the_last_dump_is_explained() -> None:
    assert judged(*dump(DRAINED + 1, 1)).causes == {"queue_dump": 1}


@pytest.mark.parametrize("at", [DRAINED, 6])
def test_what_was_there_before_the_queue_was_drained_is_lost(at: int) -> None:
    assert judged(*dump(at, 1)).lost == 1
    assert judged(*dump(at, 1), *dump(DRAINED + 1, 1)).causes == {"queue_dump": 1}


def test_a_queue_that_was_not_drained() -> None:
    assert judged(*dump(6, 1), drained=False).causes == {"queue_dump": 1}
    assert judged(*dump(6, 1), drained=True).lost == 1


@pytest.mark.parametrize(("unnamed", "lost"), [("0", 1), ("2", 0), (None, 1)])
def test_a_row_without_ids_is_a_doubt_unless_it_stands_for_no_message(unnamed: str | None, lost: int) -> None:
    summary = judged(*dump(DRAINED + 1, unnamed=unnamed))
    assert (summary.lost, summary.unaccounted) == (lost, 1 - lost)


def test_a_doubt_is_about_its_own_queue() -> None:
    assert judged(*dump(DRAINED + 1, unnamed="2", queue="other")).lost == 1
