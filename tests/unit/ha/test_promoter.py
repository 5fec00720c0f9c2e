"""One attempt of a promotion, step by step: what it asks, claims, stores and answers.  Its broker is a double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.environment import Answer, Exchanged, Json, Outcome, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.model.view import View
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim
from ha.promotion.promoter import GRACE, Promoter, Wish

A, B, C, D = (Member(f"id-{name}", name, f"{name}:1") for name in "abcd")
SET = InSync(1, "id-a", 3, (A, B, C))
REFUSED, SILENT = Answer(Outcome.REFUSED), Answer(Outcome.SILENT)
RECORDED = tuple(HaState(member.id, 1, "id-a", SET) for member in (A, B, C))
GRANTED = {"granted": True, "reason": ""}


def view(member: Member, state: State = State.READY, sequence: int = 100, **fields: Any) -> View:
    values: dict[str, Any] = {"epoch": 1, "leader": "id-a", "position": make(1, sequence), "whole": True}
    return View(member.id, member.name, member.address, state, **{**values, "in_sync": SET, **fields})


def says(member: Member, *rest: Any, **fields: Any) -> Answer:
    return Answer(Outcome.ANSWERED, view(member, *rest, **fields).to_json())


def granted(member: Member) -> Answer:
    return Answer(Outcome.ANSWERED, {**GRANTED, "id": member.id})


def denied(reason: str = "no") -> Answer:
    return Answer(Outcome.ANSWERED, {"granted": False, "reason": reason})


class Attempt:
    """Of broker b, a ready backup; the test answers for the others, and for the registry."""

    def __init__(self, mode: str = "quorum", registry: str = "", wish: Wish | None = None, **fields: Any) -> None:
        settings = NodeSettings(name="b", address="b:1", safety=mode, brokers=("a:1", "b:1", "c:1"))
        self.settings = replace(settings, registry=registry, promote_timeout=2.0, registry_timeout=3.0)  # type: ignore[arg-type]
        self.requests: dict[tuple[str, str], tuple[Json, float, Callable[[Answer], None]]] = {}
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.exchanged: list[tuple[HaState | None, float, Callable[[Exchanged], None]]] = []
        self.steps: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.lines: list[str] = []
        self.fails_at = 0
        """Number of the write from which on the disk takes none."""
        self.writes = 0
        self.hushed: frozenset[str] = frozenset()
        self.record: ManagerRecord | None = None
        self.promoted: list[tuple[Claim, bool]] = []
        self.cannot_stand = ""
        self.taken: list[tuple[Any, ...]] = []
        env: Any = SimpleNamespace(now=lambda: 0.0, after=lambda *it: self.later.append(it), wall=lambda: 0)
        env.request, env.persist, env.exchange = self._request, self._persist, lambda *it: self.exchanged.append(it)
        env.log = lambda level, text: self.lines.append(f"{level}: {text}")
        env.event = lambda kind, **values: self.events.append((kind, values))
        nothing: Any = SimpleNamespace()
        self.local = LocalMember(self.settings, nothing, nothing, env, HaState("id-b", 1, "id-a", SET))
        self.own = view(B, **fields)
        self.promoter = Promoter(self.local, cast(Any, self), wish or Wish())
        self.replies: list[Json] = []
        self.promoter.replies += [self.replies.append, self.replies.append]
        self.stored_before = self.local.persisted

    def _request(self, address: str, method: str, arguments: Json, timeout: float, done: Any) -> None:
        self.requests[method, address] = arguments, timeout, done

    def _persist(self, state: HaState) -> None:
        self.writes += 1
        if self.fails_at and self.writes >= self.fails_at:
            raise StateNotStored("no space")

    # ---- the broker, as the attempt uses it

    def view(self) -> View:
        vote = self.local.persisted
        return replace(self.own, epoch=vote.epoch, leader=vote.leader)

    def recent_record(self) -> ManagerRecord | None:
        return self.record

    def become_primary(self, claim: Claim, forced: bool) -> str:
        if self.cannot_stand:
            raise StateNotStored(self.cannot_stand)
        self.promoted.append((claim, forced))
        return ""

    def take_over(self, *arguments: Any) -> None:
        self.taken.append(arguments)

    def pause_backup(self) -> None:
        self.steps.append("pause")

    def resume_backup(self) -> None:
        self.steps.append("resume")

    def promotion_ended(self) -> None:
        self.steps.append("ended")

    def search_again(self) -> None:
        self.steps.append("search")

    # ---- what the test does

    def start(self) -> Attempt:
        self.promoter.start()
        return self

    def answer(self, method: str, **answers: Answer) -> Attempt:
        for name, answer in answers.items():
            self.requests.pop((f"ha.{method}", f"{name}:1"))[2](answer)
        return self

    def asked(self, **answers: Answer) -> Attempt:
        """Started, and asked; without answers those of a healthy cluster whose primary has died."""
        return self.start().answer("ask", **answers or {"a": REFUSED, "c": says(C)})

    def read(self, *states: HaState, error: str = "") -> Attempt:
        self.exchanged.pop(0)[2](Exchanged(states, error))
        return self

    def ring(self) -> float:
        seconds, call = self.later.pop(0)
        call()
        return seconds

    @property
    def open(self) -> set[tuple[str, str]]:
        return set(self.requests)

    @property
    def refusal(self) -> str:
        """The reason that both callers, the log and the event were told."""
        first, second = self.replies
        assert first == second and first["ok"] is False, first
        text: str = first["error"]
        assert self.lines[-1] == f"warning: {text}" and not self.promoted
        assert self.events[-1] == ("promote_request", {"result": "refused", "reason": text})
        assert self.steps[-2:] == ["ended", "search"]
        return text.removeprefix("b cannot be promoted: ")


# ---- the whole way ----------------------------------------------------------------------------------------------


def test_it_asks_claims_stores_and_leads() -> None:
    attempt = Attempt().start()
    assert attempt.open == {("ha.ask", "a:1"), ("ha.ask", "c:1")} and attempt.writes == 0
    assert attempt.events == [("promote_request", {"attrs": {"force": False}})]
    assert all(timeout == 2.0 for _, timeout, _ in attempt.requests.values())
    attempt.answer("ask", a=REFUSED)
    assert attempt.steps == []
    attempt.answer("ask", c=says(C))
    assert attempt.steps == ["pause"] and attempt.local.persisted.ballot == (2, "id-b") and attempt.writes == 1
    assert attempt.open == {("ha.claim", "a:1"), ("ha.claim", "c:1")}, "also of those that did not answer"
    request, timeout, _ = attempt.requests["ha.claim", "c:1"]
    assert timeout == 2.0 and request == {
        "epoch": 2,
        "claimant": B.to_json(),
        "position": make(1, 100),
        "base": SET.to_json(),
        "force": False,
        "whole": True,
        "behind": False,
    }
    attempt.answer("claim", c=granted(C))
    ((claim, forced),) = attempt.promoted
    assert (claim.epoch, claim.base, forced) == (2, SET, False), "a was silent: it is not waited for"
    assert attempt.steps == ["pause", "ended"]
    assert attempt.replies == [{"ok": True, "result": {}}] * 2 and attempt.lines == []
    assert len(attempt.events) == 1


def test_what_the_manager_wishes_is_in_the_claim() -> None:
    attempt = Attempt(wish=Wish(force=True, behind=True)).asked()
    request, _, _ = attempt.requests["ha.claim", "c:1"]
    assert (request["force"], request["behind"]) == (True, True)
    assert attempt.events == [("promote_request", {"attrs": {"force": True}})]
    attempt.answer("claim", c=granted(C))
    assert [forced for _, forced in attempt.promoted] == [True]


def test_nothing_is_wished_by_itself() -> None:
    assert (Wish().force, Wish().behind, Wish().takeover, Wish().known) == (False, False, False, InSync())


def test_a_set_that_the_manager_knows_counts() -> None:
    """With a reading of the registry, too, new or recent."""
    known = InSync(5, "id-c", 9, (C,))
    assert "may hold more" in Attempt(wish=Wish(known=known)).asked(a=says(A), c=SILENT).refusal
    read = Attempt("manager", "file", Wish(known=known)).start().read()
    assert "may hold more" in read.answer("ask", a=says(A), c=SILENT).refusal
    recent = Attempt("manager", "file", Wish(known=known))
    recent.record = ManagerRecord.read(Exchanged())
    assert "may hold more" in recent.asked(a=says(A), c=SILENT).refusal


# ---- the first step ---------------------------------------------------------------------------------------------


def test_a_refusal_disturbs_nothing() -> None:
    attempt = Attempt().asked(a=says(A, State.ACTIVE))
    assert attempt.refusal == "a is primary (active)", "c is not waited for"
    assert attempt.steps == ["ended", "search"] and attempt.writes == 0
    assert attempt.local.persisted == attempt.stored_before


@pytest.mark.parametrize("answer", [Answer(Outcome.ANSWERED, {"id": "x"}), REFUSED, says(A), SILENT])
def test_only_the_answer_of_a_primary_is_enough(answer: Answer) -> None:
    attempt = Attempt().asked(a=answer)
    assert attempt.steps == [] and attempt.replies == []


def test_without_a_disk_it_asks_no_broker() -> None:
    attempt = Attempt()
    attempt.fails_at = 1
    with pytest.raises(StateNotStored):
        attempt.local.persist(epoch=2, leader="id-a")
    attempt.start()
    assert attempt.open == set() and attempt.exchanged == []
    assert attempt.refusal == "its vote cannot be stored: no space"


def test_members_of_a_newer_list_are_asked_too() -> None:
    longer = SET.change_brokers(("a:1", "b:1", "c:1", "d:1"))
    attempt = Attempt().asked(a=REFUSED, c=says(C, in_sync=longer))
    assert attempt.open == {("ha.ask", "d:1")} and attempt.steps == []
    attempt.answer("ask", d=says(D, State.JOINING, whole=False, in_sync=longer))
    assert attempt.open == {("ha.claim", f"{name}:1") for name in "acd"}


def test_an_address_that_left_the_list_and_is_silent_is_not_missed() -> None:
    shorter = InSync(1, "id-a", 4, (B, C), ("b:1", "c:1"))
    own: dict[str, Any] = {"in_sync": shorter, "whole": False, "state": State.JOINING}
    attempt = Attempt("manager", **own).asked(a=SILENT, c=says(C, State.JOINING, in_sync=shorter, whole=False))
    assert attempt.steps == ["pause"]


def test_it_decides_again_when_it_has_left_its_primary() -> None:
    attempt = Attempt()

    def pause() -> None:
        attempt.steps.append("pause")
        attempt.own = replace(attempt.own, position=make(1, 50))

    cast(Any, attempt).pause_backup = pause
    assert "is ahead" in attempt.asked().refusal
    assert attempt.steps == ["pause", "resume", "ended", "search"] and attempt.writes == 0


def test_a_disk_that_fails_while_it_leaves_its_primary_ends_it() -> None:
    attempt = Attempt()

    def pause() -> None:
        attempt.steps.append("pause")
        attempt.local.disk.error = "no space"
        attempt.fails_at = 1

    cast(Any, attempt).pause_backup = pause
    assert attempt.asked().refusal == "its vote cannot be stored: no space"
    assert attempt.steps == ["pause", "resume", "ended", "search"] and attempt.open == set()


@pytest.mark.parametrize("behind", [False, True])
def test_another_broker_may_be_ahead_if_the_manager_accepts_that(behind: bool) -> None:
    attempt = Attempt(wish=Wish(behind=behind)).asked(a=REFUSED, c=says(C, sequence=200))
    assert bool(attempt.open) is behind
    if not behind:
        assert "is ahead" in attempt.refusal


def test_members_that_are_silent_are_missed() -> None:
    assert Attempt("manager").asked(a=SILENT, c=SILENT).refusal


def test_a_broker_that_left_the_list_and_answers_is_heard() -> None:
    shorter = InSync(1, "id-a", 4, (B, C), ("b:1", "c:1"))
    attempt = Attempt("manager", in_sync=shorter).start()
    attempt.answer("ask", c=says(C, in_sync=shorter)).answer("ask", a=says(A, State.ACTIVE))
    assert attempt.refusal == "a is primary (active)"


# ---- brokers that were silent before -----------------------------------------------------------------------------


def hurried(hushed: str, mode: str = "quorum", record: ManagerRecord | None = None, **answers: Answer) -> Attempt:
    attempt = Attempt(mode, "file" if record else "")
    attempt.hushed, attempt.record = frozenset(f"{name}:1" for name in hushed), record
    attempt.start().answer("ask", **answers)
    (bell,) = [each for each in attempt.later if each[0] == GRACE * 2.0]
    bell[1]()
    return attempt


def test_a_broker_that_was_silent_before_is_given_a_part_of_the_time() -> None:
    assert hurried("a", c=says(C)).steps == ["pause"]


@pytest.mark.parametrize(
    ("hushed", "mode", "answers"),
    [
        ("", "quorum", {"c": says(C)}),
        ("c", "quorum", {"c": says(C)}),
        ("ac", "quorum", {}),
        ("a", "manager", {"c": says(C)}),
        ("a", "quorum", {"c": says(C, sequence=200)}),
        ("a", "manager", {"c": says(C, sequence=200)}),
    ],
)
def test_it_is_waited_for_when_its_answer_could_matter(hushed: str, mode: str, answers: dict[str, Answer]) -> None:
    attempt = hurried(hushed, mode, None, **answers)
    assert attempt.steps == [] and attempt.replies == []


def test_a_registry_that_has_the_newest_set_needs_no_majority() -> None:
    assert hurried("a", "manager", ManagerRecord.read(Exchanged(RECORDED)), c=says(C)).steps == ["pause"]
    assert hurried("a", "manager", ManagerRecord.read(Exchanged()), c=says(C)).steps == []


def test_a_broker_that_is_not_whole_waits_for_all() -> None:
    theirs = {"in_sync": InSync(1, "id-c", 4, (B, C)), "leader": "id-c", "whole": False}
    attempt = Attempt(whole=False, state=State.JOINING)
    attempt.hushed = frozenset({"a:1"})
    attempt.start().answer("ask", c=says(C, State.JOINING, **theirs))
    (bell,) = [call for seconds, call in attempt.later if seconds == GRACE * 2.0]
    bell()
    assert attempt.steps == []
    attempt.answer("ask", a=SILENT)
    assert attempt.steps == ["pause"]


def test_a_round_that_is_over_is_not_ended_again() -> None:
    attempt = Attempt().asked()
    before = list(attempt.steps)
    for seconds, call in list(attempt.later):
        if seconds == GRACE * 2.0:
            call()
    assert attempt.steps == before


def test_what_the_first_round_heard_is_part_of_the_second() -> None:
    longer = SET.change_brokers(("a:1", "b:1", "c:1", "d:1"))
    attempt = Attempt()
    attempt.hushed = frozenset({"a:1", "d:1"})
    attempt.asked(a=SILENT, c=says(C, in_sync=longer)).later[-1][1]()
    assert attempt.steps == [], "two of four were heard"
    attempt = Attempt()
    attempt.hushed = frozenset({"d:1"})
    attempt.asked(a=says(A, State.JOINING, whole=False), c=says(C, in_sync=longer)).later[-1][1]()
    assert attempt.steps == ["pause"], "three of four were heard"


# ---- the second step --------------------------------------------------------------------------------------------


def test_a_denial_ends_it_at_once_and_it_is_a_backup_again() -> None:
    attempt = Attempt().asked(a=says(A, State.JOINING, whole=False), c=says(C)).answer("claim", c=denied("no, c"))
    assert attempt.refusal == "no, c" and attempt.steps == ["pause", "resume", "ended", "search"]


def test_a_grant_is_not_enough_while_one_that_was_heard_is_open() -> None:
    attempt = Attempt().asked(a=says(A, State.JOINING, whole=False), c=says(C)).answer("claim", c=granted(C))
    assert attempt.promoted == [] and attempt.replies == []


def test_a_vote_that_cannot_be_stored_is_claimed_of_no_broker() -> None:
    attempt = Attempt()
    attempt.fails_at = 1
    assert attempt.asked().refusal == "its vote cannot be stored: no space"
    assert attempt.open == set() and attempt.steps == ["pause", "resume", "ended", "search"]
    assert attempt.local.persisted == attempt.stored_before


def test_a_first_set_that_cannot_be_stored_makes_no_primary() -> None:
    attempt = Attempt()
    attempt.cannot_stand = "no space"
    attempt.asked().answer("claim", c=granted(C))
    assert attempt.refusal == "its in-sync set cannot be stored: no space"
    assert attempt.steps == ["pause", "resume", "ended", "search"]


def test_its_own_vote_may_have_gone_to_another_meanwhile() -> None:
    attempt = Attempt().asked()
    attempt.local.persist(epoch=2, leader="id-c")
    attempt.answer("claim", c=granted(C))
    assert attempt.refusal == "epoch 2 was granted to another broker meanwhile"


def test_a_denial_is_named_before_a_vote_for_another() -> None:
    attempt = Attempt().asked()
    attempt.local.persist(epoch=2, leader="id-c")
    assert attempt.answer("claim", c=denied("no, c")).refusal == "no, c"


def test_with_a_quorum_silence_does_not_end_the_claim_of_a_whole_broker() -> None:
    attempt = Attempt().asked(a=says(A, State.JOINING, whole=False), c=says(C)).answer("claim", a=SILENT, c=granted(C))
    assert len(attempt.promoted) == 1


def test_without_quorum_and_registry_it_does() -> None:
    attempt = Attempt("manager").asked(a=REFUSED, c=says(C)).answer("claim", c=SILENT)
    assert attempt.refusal == "c:1 has answered, but not to the claim"


@pytest.mark.parametrize("wish", [Wish(force=True), None])
def test_a_claimant_that_is_not_whole_needs_every_answer(wish: Wish | None) -> None:
    empty: dict[str, Any] = {"whole": False, "state": State.JOINING}
    others = {"a": says(A, State.JOINING, whole=False), "c": says(C, State.JOINING, whole=False)}
    attempt = Attempt(wish=wish, **empty).asked(**others).answer("claim", a=SILENT, c=granted(C))
    assert len(attempt.promoted) == (wish is not None)
    if wish is None:
        assert attempt.refusal == "a:1 has answered, but not to the claim"


def test_availability_asks_for_no_answer() -> None:
    attempt = Attempt("availability").asked(a=REFUSED, c=says(C)).answer("claim", c=SILENT)
    assert len(attempt.promoted) == 1


# ---- a registry -------------------------------------------------------------------------------------------------


def test_the_registry_is_read_first_and_written_with_the_vote() -> None:
    attempt = Attempt("manager", "file").start()
    ((state, timeout, _),) = attempt.exchanged
    assert (state, timeout) == (None, 3.0) and attempt.open == set()
    attempt.read(*RECORDED).answer("ask", a=REFUSED, c=says(C))
    ((state, timeout, _),) = attempt.exchanged
    assert (state, timeout) == (HaState("id-b", 2, "id-b", SET), 3.0)
    attempt.answer("claim", c=granted(C))
    assert attempt.promoted == [], "the registry has not answered"
    attempt.read(*RECORDED)
    assert len(attempt.promoted) == 1 and attempt.exchanged == []


def test_it_waits_for_the_grants_when_the_registry_is_quick() -> None:
    attempt = Attempt("manager", "file").start().read(*RECORDED).answer("ask", a=REFUSED, c=says(C)).read(*RECORDED)
    assert attempt.promoted == []
    assert len(attempt.answer("claim", c=granted(C)).promoted) == 1


def test_a_recent_reading_saves_the_first_one() -> None:
    attempt = Attempt("manager", "file")
    attempt.record = ManagerRecord.read(Exchanged(RECORDED))
    attempt.start()
    assert attempt.exchanged == [] and attempt.open == {("ha.ask", "a:1"), ("ha.ask", "c:1")}


def test_a_recent_reading_counts() -> None:
    newer = SET.shrink(["id-b"])
    attempt = Attempt("manager", "file")
    attempt.record = ManagerRecord.read(Exchanged((HaState("id-a", 1, "id-a", newer), *RECORDED[1:])))
    assert "may hold more" in attempt.asked(a=SILENT, c=says(C, State.JOINING, whole=False)).refusal


def test_a_vote_is_written_with_the_set_that_it_is_based_on_and_whom_that_replaces() -> None:
    newer = SET.shrink(["id-c"])
    states = (HaState("id-a", 1, "id-a", newer, (C,)), *RECORDED[1:])
    attempt = Attempt("manager", "file").start().read(*states).answer("ask", a=REFUSED, c=says(C))
    ((written, _, _),) = attempt.exchanged
    assert written is not None and written == HaState("id-b", 2, "id-b", newer, (C,))
    assert written.replaced == (C,) and attempt.local.persisted.in_sync == SET


def test_the_claim_of_an_old_copy_does_not_vouch_for_it() -> None:
    """By force, and it fails: after a restart it is an old copy still, as the registry shows."""
    states = (HaState("id-b", 3, "id-b", SET), *RECORDED)
    attempt = Attempt("manager", "file", Wish(force=True)).start().read(*states).answer("ask", a=REFUSED, c=says(C))
    assert attempt.local.persisted.ballot == (4, "id-b") and not attempt.local.persisted.vouched[0]
    known = Attempt("manager", "file").start().read(*RECORDED).answer("ask", a=REFUSED, c=says(C))
    assert known.local.persisted.vouched == (2, "id-b", 0)


@pytest.mark.parametrize("force", [False, True])
def test_without_the_registry_only_force_goes_on(force: bool) -> None:
    attempt = Attempt("manager", "file", Wish(force=force)).start().read(error="gone")
    assert bool(attempt.open) is force
    if not force:
        assert attempt.refusal == "the registry does not answer: gone"


def test_the_second_reading_may_contradict() -> None:
    attempt = Attempt("manager", "file").start().read(*RECORDED).answer("ask", a=REFUSED, c=says(C))
    attempt.read(HaState("id-c", 3, "id-c", SET)).answer("claim", c=granted(C))
    assert "has claimed epoch 3 meanwhile" in attempt.refusal


def test_that_all_have_granted_hides_no_contradiction() -> None:
    attempt = Attempt("manager", "file", whole=False, state=State.JOINING).start().read(*RECORDED)
    empty: dict[str, Any] = {"state": State.JOINING, "whole": False}
    attempt.answer("ask", a=says(A, **empty), c=says(C, **empty)).read(HaState("id-c", 3, "id-c", SET))
    assert "has claimed epoch 3 meanwhile" in attempt.answer("claim", a=granted(A), c=granted(C)).refusal


def test_with_a_registry_silence_does_not_end_the_claim_of_a_whole_broker() -> None:
    attempt = Attempt("manager", "file").start().read(*RECORDED).answer("ask", a=REFUSED, c=says(C))
    assert len(attempt.read(*RECORDED).answer("claim", c=SILENT).promoted) == 1


# ---- a takeover -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takeover", "stopped", "state", "asks"),
    [
        (True, False, State.ACTIVE, True),
        (False, False, State.ACTIVE, False),
        (True, True, State.ACTIVE, False),
        (True, False, State.CATCHUP, False),
    ],
)
def test_a_primary_is_asked_to_hand_over_if_that_is_wished(
    takeover: bool, stopped: bool, state: State, asks: bool
) -> None:
    wish = Wish(takeover=takeover)
    attempt = Attempt(wish=wish)
    attempt.local.stopped = stopped
    leader = says(A, state, sequence=300)
    attempt.asked(a=leader, **({} if state.is_primary else {"c": says(C, sequence=200)}))
    if asks:
        ((primary, given, replies),) = attempt.taken
        assert (primary.id, given, replies) == ("id-a", wish, attempt.promoter.replies)
        assert attempt.replies == [] and attempt.steps == ["ended"] and attempt.lines == []
    else:
        assert attempt.taken == [] and attempt.refusal
