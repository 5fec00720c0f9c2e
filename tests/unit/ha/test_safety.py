"""How long a primary waits before it goes on without a lost backup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha.model.environment import Outcome
from ha.model.membership import InSync, Member
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View

ANSWERED, REFUSED, SILENT = Outcome.ANSWERED, Outcome.REFUSED, Outcome.SILENT


@pytest.mark.parametrize(
    ("others", "waits"),
    [
        ((ANSWERED, SILENT), False),
        ((REFUSED, REFUSED), False),
        ((REFUSED,), False),
        ((SILENT,), True),
        ((SILENT, SILENT), True),
        # The host of a dead broker proves that we have a network, not that no broker was promoted behind the cut.
        ((REFUSED, SILENT), True),
        ((REFUSED, REFUSED, ANSWERED, SILENT), False),
        ((ANSWERED, SILENT, SILENT, SILENT), True),
    ],
)
def test_a_primary_that_may_be_the_one_cut_off_waits(others: tuple[Outcome, ...], waits: bool) -> None:
    survey = Survey((), {f"host{i}:5672": outcome for i, outcome in enumerate(others)})
    members = [Member("lost", "lost", "host0:5672")]
    assert Safety("manager", (), 2.0).patience(survey, members, InSync()) == (2.0 if waits else 0.0)
    assert Safety("availability", (), 2.0).patience(survey, members, InSync()) == 0.0


def test_a_lost_broker_that_could_not_even_be_asked_is_waited_for() -> None:
    assert Safety("manager", (), 2.0).patience(Survey((), {}), [Member("lost")], InSync()) == 2.0


def in_sync(names: str, brokers: str = "") -> InSync:
    members = tuple(Member(f"id-{name}", name, f"{name}:1") for name in names)
    return InSync(1, "id-a", 1, members, tuple(f"{name}:1" for name in brokers))


def heard(known: InSync, name: str = "b", instance: str = "") -> View:
    return View(f"id-{name}", name, f"{name}:1", State.JOINING, 1, "id-a", 7, False, known, instance=instance)


@pytest.mark.parametrize(
    ("lost", "known", "waits"),
    [
        ("c", "abc", False),  # b has to acknowledge the smaller set, before anything is confirmed without c
        ("bc", "abc", True),  # it restarted, answers both sides, and would agree to the promotion of c
        ("bc", "ab", False),  # it has heard of the set without c
        ("bc", "older", True),
    ],
)
def test_a_broker_that_knows_of_no_set_without_the_silent_one_accounts_for_nothing(
    lost: str, known: str, waits: bool
) -> None:
    ours = in_sync("abc")
    theirs = replace(ours, version=0, members=()) if known == "older" else in_sync(known)
    survey = Survey((heard(theirs),), {"b:1": ANSWERED, "c:1": SILENT}, {"b:1": "id-b"})
    members = [member for member in ours.members if member.name in lost]
    assert Safety("manager", (), 2.0).patience(survey, members, ours) == (2.0 if waits else 0.0)


@pytest.mark.parametrize(
    ("others", "waits"),
    [
        ((heard(InSync(), "d"),), False),  # another one's knowledge is not b's
        ((heard(in_sync("abcd"), "b", "copy"),), True),  # of two with one identity that answers the other side, too
    ],
)
def test_what_each_of_several_brokers_knows(others: tuple[View, ...], waits: bool) -> None:
    ours = in_sync("abcd")
    answers = {"b:1": ANSWERED, "c:1": SILENT, "d:1": ANSWERED}
    survey = Survey((heard(in_sync("abd")), *others), answers, {"b:1": "id-b", "d:1": "id-d"})
    lost = [member for member in ours.members if member.name in "bc"]
    assert Safety("manager", (), 2.0).patience(survey, lost, ours) == (2.0 if waits else 0.0)


@pytest.mark.parametrize(
    ("mode", "members", "brokers", "confirms"),
    [
        ("quorum", "ab", "", True),
        ("quorum", "a", "", False),
        ("quorum", "ab", "abcd", False),
        ("quorum", "abc", "abcd", True),
        # x is on no list: b and c go on without both.
        ("quorum", "ax", "", False),
        ("manager", "a", "", True),
        ("availability", "a", "", True),
    ],
)
def test_a_set_confirms_when_a_majority_of_the_newest_list_is_in_it(
    mode: str, members: str, brokers: str, confirms: bool
) -> None:
    safety, found = Safety(mode, ("a:1", "b:1", "c:1"), 2.0), in_sync(members, brokers)
    assert safety.may_confirm(found) == confirms
    assert safety.may_shrink(found, []) == confirms
    assert safety.may_shrink(in_sync(f"{members}y", brokers), ["id-y"]) == confirms


def test_a_majority_is_more_than_half() -> None:
    sizes = {"": 2, "a": 1, "ab": 2, "abc": 2, "abcd": 3, "abcde": 3}
    safety = Safety("quorum", ("a:1", "b:1", "c:1"), 2.0)
    assert {brokers: safety.majority(in_sync("", brokers)) for brokers in sizes} == sizes
    assert [Safety(mode, (), 2.0).probes for mode in ("quorum", "manager", "availability")] == [True, True, False]


def test_a_set_never_shrinks_below_a_majority() -> None:
    safety = Safety("quorum", ("a:1", "b:1", "c:1"), 2.0)
    assert safety.may_shrink(in_sync("abc"), ["id-b"])
    assert not safety.may_shrink(in_sync("abc"), ["id-b", "id-c"])
    assert not safety.may_shrink(in_sync("ab"), ["id-b"])
    assert Safety("manager", ("a:1", "b:1", "c:1"), 2.0).may_shrink(in_sync("ab"), ["id-b"])
