"""A broker whose removal was not answered is added again: it may have been removed."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from torture.faults import replace_member
from torture.lab import Lab


def lab(refusal: str) -> SimpleNamespace:
    node1, node2 = (SimpleNamespace(name=f"node{n}", address=f"10.0.0.{n}:5672", member=True) for n in (1, 2))
    return SimpleNamespace(
        rng=random.Random(1),
        brokers=[node1, node2],
        owed=[],
        primary=lambda: node1,
        backups=lambda: [node2],
        expendable=lambda brokers: True,
        request=lambda *arguments, **more: refusal,
        say=lambda text: None,
    )


def begun(made: SimpleNamespace) -> tuple[str, list[Any]]:
    undo: list[Any] = []
    return replace_member(cast(Lab, made), undo), undo


def test_a_removal_in_doubt_is_followed_by_an_addition() -> None:
    made = lab("node1: no answer within 8 s")
    assert begun(made) == ("", [])
    assert made.owed == [made.brokers[1]]
    assert made.brokers[1].member


def test_no_other_member_is_replaced_meanwhile() -> None:
    made = lab("")
    made.owed.append(made.brokers[1])
    assert begun(made) == ("", [])
