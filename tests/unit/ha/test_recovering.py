"""What others conclude from the answers of a broker that reads its journal: it lives, and that is all."""

from __future__ import annotations

from typing import Any

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.membership import InSync, Member
from ha.model.safety import Safety
from ha.model.status import RECOVERING_JOURNAL, State
from ha.model.view import Survey, View
from ha.promotion.claims import Claim, fell_silent
from ha.promotion.promotion import Refuse, decide
from ha.requests import STEERING
from ha.shell.recovering import Recovering
from qpidd_py.store.progress import Step

STEP = Step("check the journal", "segments", 3, 12, 1.5)
ADDRESSES = ("a:1", "b:1", "c:1")
A, B, C = (Member(f"id-{address[0]}", address[0], address, "run") for address in ADDRESSES)


def ask(method: str, user: str = "ha", **arguments: Any) -> dict[str, Any] | None:
    """The answer; None if there is none."""
    found: list[dict[str, Any]] = []
    table = Recovering("c", lambda: STEP, "ha", ",".join(ADDRESSES))
    assert table.request(method, arguments, found.append, user)
    return found[0] if found else None


def answers(restarted: Answer) -> dict[str, Answer]:
    """Of the others: b is not whole, c gives this one."""
    in_sync = InSync(2, "id-c", 5, (A, C))
    view = View("id-b", "b", "b:1", State.JOINING, 2, "id-c", 7, False, in_sync, instance="run")
    return {"b:1": Answer(Outcome.ANSWERED, view.to_json()), "c:1": restarted}


def verdict(restarted: Answer, mode: str, whole: bool) -> Refuse | Claim:
    """Of a's promotion."""
    in_sync = InSync(2, "id-c", 5, (A, C) if whole else (C,))
    me = View("id-a", "a", "a:1", State.JOINING, 2, "id-c", 9, whole, in_sync, instance="run", before=("old",))
    survey = Survey.of("id-a", answers(restarted), "run")
    return decide(me, survey, Safety(mode, ADDRESSES, 0.0, True))


def reading() -> Answer:
    found = ask("ha.ask")
    assert found is not None and found["ok"]
    return Answer(Outcome.ANSWERED, found["result"])


def test_a_survey_takes_it_for_silent() -> None:
    survey = Survey.of("id-a", answers(reading()), "run")
    assert [view.name for view in survey.views] == ["b"]
    assert survey.outcome(C) is Outcome.SILENT
    assert survey.outcomes["c:1"] is Outcome.SILENT


@pytest.mark.parametrize("mode", ["quorum", "manager", "availability"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_promotion_is_decided_as_if_it_had_not_answered(mode: str, whole: bool) -> None:
    assert verdict(reading(), mode, whole) == verdict(Answer(Outcome.SILENT), mode, whole)


def test_it_may_hold_more() -> None:
    found = verdict(reading(), "manager", whole=False)
    assert isinstance(found, Refuse)
    assert "may hold more" in found.text


def test_a_claim_is_neither_granted_nor_denied() -> None:
    """It had answered as a whole member, and has restarted since: the claim fails; if not, others decide."""
    assert ask("ha.claim", epoch=3) is None
    before = {"c:1": Answer(Outcome.ANSWERED, View.to_json(View("id-c", "c", "c:1", State.READY, 2, "id-c", 9, True)))}
    survey = Survey.of("id-a", {**answers(reading()), **before}, "run")
    assert "c:1 has answered, but not to the claim" in fell_silent(survey, {"c:1": Answer(Outcome.SILENT)})


@pytest.mark.parametrize("method", sorted({*STEERING, "ha.salvage"} - {"ha.claim"}))
def test_it_is_steered_by_nobody(method: str) -> None:
    found = ask(method)
    assert found is not None and not found["ok"]
    assert found["error"].startswith("c is recovering-journal and takes part in nothing yet; it is reading its journal")
    refused = ask(method, user="guest", action="restore")
    assert refused is not None and not refused["ok"]


def test_what_it_shows() -> None:
    status, query = ask("ha.status", user="guest"), ask("ha.query", user="guest")
    assert status is not None and query is not None
    assert status["result"]["state"] == query["result"]["status"] == RECOVERING_JOURNAL
    assert status["result"]["score"] is None
    assert status["result"]["journal"] == {
        "step": "check the journal", "unit": "segments", "seconds": 1.5, "done": 3, "of": 12, "rate": 2.0,
        "remaining": 4.5,
    }  # fmt: skip
    assert query["result"]["brokers_url"] == "a:1,b:1,c:1"
