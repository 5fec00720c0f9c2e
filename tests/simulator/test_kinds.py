"""The judges of queues of special kinds, by themselves: each convicts what its promise excludes."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.simulator.groups import Groups
from tests.simulator.kinds import Kinds
from tests.simulator.ledger import Change, Chapter, Ledger
from tests.simulator.records import Copy
from tests.simulator.scheduler import Violation
from tests.simulator.tokens import Tokens


class Consumer(NamedTuple):
    """As `Groups` sees one."""

    stream: str
    attached: str
    holds: list[str]


def test_what_a_group_must_not_do() -> None:
    groups = dict.fromkeys(("p1.1@1", "p1.2@1", "p1.3@1"), "red") | {"p1.4@1": "blue"}
    one, two, over = Consumer("g1:1", "a", ["p1.2@1"]), Consumer("g2:1", "a", []), Consumer("g1:1", "", ["p1.2@1"])
    for consumers, name, wrong in (
        ((two, one), "p1.3@1", True),
        ((two, one), "p1.4@1", False),
        ((two, over), "p1.3@1", False),
        ((over, one), "p1.3@1", False),
        ((one, two), "p1.1@1", True),  # behind number 2
        ((one, two), "p1.3@1", False),
    ):
        judge = Groups()
        judge.given(one._replace(holds=[]), [], "p1.2@1", groups)
        with pytest.raises(Violation, match="I29") if wrong else nullcontext():
            judge.given(consumers[0], consumers, name, groups)
    judge.gave_back("g1:1", "p1.2@1")
    judge.given(one, [two], "p1.2@1", groups)
    with pytest.raises(Violation, match="I29"):
        judge.given(one, [two], "p1.2@1", groups)


def _kinds(**copies: Copy) -> tuple[Kinds, Chapter]:
    """A judge with these copies, as `p1_1`, and the log of one primary."""
    names = {f"{name.replace('_', '.')}@1": copy for name, copy in copies.items()}
    history: Any = SimpleNamespace(copies=names, ledger=Ledger(), counts=Counter(), acknowledged={})
    history.simulation = SimpleNamespace(scheduler=SimpleNamespace(now=1.0))
    history.copies_in = lambda queue: [each for each in names.items() if queue in each[1].queues]
    return Kinds(history), history.ledger.open((1, "id-a"), "", 0)


def _came(chapter: Chapter, queue: str, name: str, id: int) -> None:
    chapter.order.append((id, 7, name))
    chapter.arrivals.setdefault((queue, name), []).append((7, id))
    chapter.names[7] = queue


def test_what_a_key_must_not_do() -> None:
    copies = {f"p1_{number}": Copy(("once-few",), b"", 0.0, key="ab"[number % 2]) for number in range(1, 4)}
    others = {f"p2_{number}": Copy(("once-few",), b"", 0.0, key=str(number)) for number in range(1, 4)}
    kinds, chapter = _kinds(**copies, **others)
    for id, name in enumerate(("p1.1", "p2.1", "p2.2", "p2.3"), 1):
        _came(chapter, "once-few", f"{name}@1", id)
        kinds.arrived((1, "id-a"), "once-few", f"{name}@1", id)
    _came(chapter, "once-few", "p1.3@1", 5)
    with pytest.raises(Violation, match="I27: p1"):
        kinds.arrived((1, "id-a"), "once-few", "p1.3@1", 5)  # the window of four has p1.1 still
    chapter.order.insert(4, (4, 7, "p1.2@1"))
    chapter.order[-1] = (6, 7, "p1.3@1")
    chapter.arrivals["once-few", "p1.3@1"] = [(7, 6)]
    kinds.arrived((1, "id-a"), "once-few", "p1.3@1", 6)


def test_what_a_delay_must_not_be() -> None:
    kinds, chapter = _kinds(p1_1=Copy(("amq.delayed.later",), b"", 0.5, delay=0.4), p1_2=Copy((), b"", 0.5, delay=0.6))
    for name in ("p1.1@1", "p1.2@1"):
        _came(chapter, "due", name, 1)
    kinds.arrived((1, "id-a"), "due", "p1.1@1", 1)
    with pytest.raises(Violation, match="I28: p1"):
        kinds.arrived((1, "id-a"), "due", "p1.2@1", 1)


def test_what_a_last_value_must_not_be() -> None:
    kinds, chapter = _kinds(p1_1=Copy(("values",), b"", 0.0, key="red"), p1_2=Copy(("values",), b"", 0.0, key="red"))
    _came(chapter, "values", "p1.1@1", 1)
    _came(chapter, "values", "p1.2@1", 2)
    log = chapter.whole()
    assert kinds.may_leave("values", "p1.1@1", log, False) and not kinds.may_leave("values", "p1.2@1", log, True)
    kinds.check_values("a", {"values": {"p1.2@1": b""}}, log)
    with pytest.raises(Violation, match="I30: p1"):
        kinds.check_values("a", {"values": {"p1.1@1": b""}}, log)
    with pytest.raises(Violation, match="I30: at the end values has red more than once"):
        kinds.check_end({"values": {"p1.1@1": b"", "p1.2@1": b""}}, {})
    with pytest.raises(Violation, match="I31: at the end short has 4"):
        kinds.check_end({}, {"short": 4, "main": 9})


def test_what_a_token_must_not_be() -> None:
    a, b = (1, "id-a"), (2, "id-b")
    for second in ("k2:1", 5, a), ("k1:1", 0, a), ("k2:1", 5, b), ("k2:1", 4, a):
        tokens = Tokens()
        tokens.given("k1:1", 5, a, "p1.1@1")
        tokens.given("k1:1", 5, a, "p1.1@1")
        tokens.given("k3:1", 9, b, "p1.1@1")
        with pytest.raises(Violation, match="I26: k"):
            tokens.given(*second, "p1.1@1")


def test_what_a_home_must_not_do() -> None:
    kinds, chapter = _kinds()
    kinds._history.alone = {"h1": "own.h1.1", "h2": ""}
    kinds.began[chapter.ballot] = 1.0
    kinds.stays("own.h2", chapter.ballot, since=2.0, timeout=1)
    chapter.changes["queue own.h2"] = [Change(1, 2.0, True), Change(2, 2.5, False), Change(5, 3.0, False)]
    kinds.check_homes(chapter, 2, 1.0)
    kinds.check_homes(chapter, 1, 2.0)  # by its clock it is a second
    with pytest.raises(Violation, match="I33: own"):
        kinds.check_homes(chapter, 1, 1.0)
    kinds.began[chapter.ballot] = 2.5
    with pytest.raises(Violation, match="I33: own"):
        kinds.check_homes(chapter, 2, 1.0)
    chapter.changes = {"queue own.h1.1": [Change(1, 2.0, True)]}
    with pytest.raises(Violation, match="I34"):
        kinds.check_homes(chapter, 0, 1.0)
