"""Members with journals: whose content a restart brings back, who may be promoted with it, and a disk that hangs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ha.backup.advice import advise
from ha.backup.joining import Joining
from ha.model.content import KEPT, Content, NoJournal
from ha.model.difference import Origin, lineage_to_json
from ha.model.environment import Answer, Outcome
from ha.model.journal_watch import JournalWatch
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.protocol import VERSION
from ha.model.safety import Safety
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.model.view import Survey, View
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim, ClaimRequest
from ha.promotion.promotion import Refuse, decide
from ha.promotion.score import PRIMARY, SLOW, WHOLE
from qpidd_py.errors import EXIT_DISK, LinkError
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Host, Publisher, World

A, B, C = (Member(f"id-{name}", name, f"{name}:1", f"{name}.1") for name in "abc")
SET = InSync(1, "id-a", 3, (A, B, C))
BROKERS = ("a:1", "b:1", "c:1")
SILENT, REFUSED = Outcome.SILENT, Outcome.REFUSED


def view(member: Member = B, sequence: int = 100, **fields: Any) -> View:
    found = View(member.id, member.name, member.address, State.READY, 1, "id-a", make(1, sequence), True, SET)
    found = replace(found, writer="id-a", led=((member.id, 1),))
    vouched = fields.get("in_sync", SET).key
    return replace(found, **{"instance": member.instance, "vouched": vouched, **fields})


def restored(member: Member = B, sequence: int = 100, **fields: Any) -> View:
    """Of a later run, as it comes back."""
    how: dict[str, Any] = {"state": State.JOINING, "doubt": True, "stood": True}
    how |= {"instance": f"{member.name}.2", "before": (member.instance,)}
    return view(member, sequence, **{**how, **fields})


def survey(*views: View, **outcomes: Outcome) -> Survey:
    answers = {each.address: Answer(Outcome.ANSWERED, each.to_json()) for each in views}
    return Survey.of("id-b", answers | {f"{name}:1": Answer(outcome) for name, outcome in outcomes.items()})


def refusal(me: View, seen: Survey, mode: str, journals: bool = True, **how: Any) -> str:
    """Empty: it may be promoted."""
    found = decide(me, seen, Safety(mode, BROKERS, 2.0, journals), **how)
    return found.text.partition(" cannot be promoted: ")[2] if isinstance(found, Refuse) else ""


RECORD = ManagerRecord((HaState("id-a", 1, "id-a", SET),), registry=True, gone=frozenset({"id-a"}))


@pytest.mark.parametrize(
    ("mode", "record"),
    [("manager", None), ("quorum", None), ("manager", RECORD)],
    ids=["manager", "quorum", "registry"],
)
def test_a_dead_member_may_come_back_with_what_was_confirmed(mode: str, record: ManagerRecord | None) -> None:
    """Also if its node was certainly stopped: its disk was not."""
    what = "it is not in the in-sync set (a, c)"
    text = f"{what}, and a may hold more: its journal is on its disk. Start it, or use force"
    pair = InSync(1, "id-a", 3, (A, C))
    stranger, others = view(whole=False, in_sync=pair), survey(view(C, whole=False, in_sync=pair), a=REFUSED)
    if record is not None:
        record = replace(record, states=(HaState("id-a", 1, "id-a", pair),))
    assert refusal(stranger, others, mode, record=record) == text
    assert refusal(stranger, others, mode, record=record, force=True) == ""
    assert refusal(stranger, others, "availability", record=record) == ""


def test_a_broker_that_was_away_waits_for_all_that_may_know_of_its_removal() -> None:
    lonely = survey(a=REFUSED, c=REFUSED)
    text = "it was disconnected, and a, which may have gone on without it, does not answer"
    assert refusal(restored(), lonely, "manager", journals=False) == ""
    text = "it was disconnected, and a, c, which may know that it was dropped, does not answer"
    assert refusal(restored(), lonely, "manager") == text
    assert refusal(restored(), survey(restored(A), c=REFUSED), "manager") == text.replace("a, c", "c")
    assert refusal(restored(), survey(restored(A), restored(C)), "manager") == ""
    assert refusal(restored(), lonely, "manager", record=RECORD) == "", "the registry knows"
    assert refusal(restored(), survey(restored(A), c=REFUSED), "quorum") == "", "a majority does"


@pytest.mark.parametrize("mode", ["manager", "quorum", "availability"])
def test_what_a_journal_has_brought_back_is_better_than_an_older_whole_copy(mode: str) -> None:
    """b went on alone, and its power failed in the moment of a promotion: what its journal brings back may lack its
    end.  a was dropped before, and lacks more; it does not know that, and calls itself whole."""
    alone = InSync(2, "id-b", 5, (replace(B, instance="b.9"),))
    b = restored(B, 80, whole=False, in_sync=alone, durable=make(1, 80), epoch=2, leader="id-b")
    b = replace(b, led=(("id-b", 2),))
    a = restored(A, 43)
    assert f"{b} holds more" in refusal(a, Survey.of("id-a", {"b:1": Answer(Outcome.ANSWERED, b.to_json())}), mode)
    assert refusal(b, survey(a), mode) == ""
    for gaps in (
        {"durable": 0},
        {"durable": -1},
        {"durable": make(1, 79)},
        {"state": State.CATCHUP},
        {"position": 0, "durable": 0},
    ):
        assert not replace(b, **gaps).brought_back
    assert replace(b, position=1, durable=1).brought_back
    assert f"{a} holds more" in refusal(replace(b, durable=0), survey(a), mode)


def test_a_fail_over_needs_no_dead_primary() -> None:
    """Its link was closed by the death of the primary: that is no reason to wait for it."""
    assert refusal(view(doubt=True), survey(view(C), a=REFUSED), "manager") == ""


def test_after_a_power_cut_of_all_availability_waits_a_little_for_those_that_may_have_gone_on() -> None:
    """The primary lost its power a moment after the others, dropped both, and confirmed alone; b is back first."""
    me = restored(returned=True)
    text = "it was restarted, and a, which may have gone on without it, is not back yet"
    for away in SILENT, REFUSED:
        assert refusal(me, survey(restored(C), a=away), "availability") == text
        assert refusal(replace(me, returned=False), survey(restored(C), a=away), "availability") == ""
        assert refusal(me, survey(restored(C), a=away), "availability", force=True) == ""
        assert "is not back yet" not in refusal(me, survey(restored(C), a=away), "quorum")
    assert refusal(me, survey(restored(C), restored(A)), "availability") == ""
    alone = InSync(1, "id-a", 5, (A,))
    assert refusal(me, survey(restored(C), restored(A, in_sync=alone)), "availability").endswith(" can")


def test_a_view_says_for_how_long_it_has_been_back() -> None:
    local = member(SET, make(1, 9))
    role: Any = SimpleNamespace(position=make(1, 9), primary_address="", doubt=False, stood=False, isolation="")
    local.journal = SimpleNamespace(position=make(1, 9), complete=True)
    timeout, now = local.settings.backup_timeout, local.env.now()
    for before, seconds, returned in (("b.0",), timeout - 0.1, True), (("b.0",), timeout, False), ((), 0.0, False):
        local.before = before
        env: Any = local.env
        env.now = partial(float, now + seconds)
        assert local.view(role).returned is returned
        assert "returned" not in local.view(role).to_json()


@pytest.mark.parametrize("mode", ["manager", "quorum"])
def test_what_came_back_may_be_an_old_copy(mode: str) -> None:
    """With any other whole member that shows: it has what the member had acknowledged."""
    text = f"{restored(C, 101)} is ahead of position {make(1, 100) >> 48}.100"
    for behind in (False, True):
        assert refusal(restored(), survey(restored(A), restored(C, 101)), mode, behind=behind) == text
    assert refusal(restored(), survey(restored(A), restored(C, 101)), "availability", behind=True) == ""
    assert refusal(view(doubt=True), survey(restored(A), restored(C, 101)), mode, behind=True) == ""


def test_a_new_primary_counts_what_its_backups_have_on_disk() -> None:
    """What one only has in memory is not safe: its disk may be the one that is left."""
    seen = survey(view(A, durable=make(1, 60)), view(C, durable=0))
    found = decide(view(doubt=True), seen, Safety("quorum", BROKERS, 2.0, True))
    assert isinstance(found, Claim)
    assert found.positions == {"id-a": (make(1, 60), "id-a"), "id-c": (0, "id-a")}
    assert View.from_json(view(durable=7).to_json()).stored == 7 and view().stored == make(1, 100)


@pytest.mark.parametrize(
    ("durable", "complete", "expected"),
    [(make(1, 7), True, make(1, 7)), (make(1, 7), False, 0), (make(1, 99), True, make(1, 9))],
    ids=["behind", "other content", "ahead"],
)
def test_a_view_says_what_is_on_disk(durable: int, complete: bool, expected: int) -> None:
    local = member(SET, make(1, 9))
    local.lineage = {1: Origin("id-a")}
    local.journal = SimpleNamespace(position=durable, complete=complete)
    role: Any = SimpleNamespace(position=make(1, 9), primary_address="", doubt=False, stood=False, isolation="")
    assert local.view(role).stored == expected
    local.hole = "a page cannot be read"
    assert local.view(role).durable == 0, "it has not all of what the log brought"
    local.hole, local.journal.position = "", make(0, 50)
    assert local.view(role).stored == 0, "of another epoch, perhaps of another log"


@pytest.mark.parametrize(("mode", "record"), [("quorum", None), ("manager", RECORD)], ids=["quorum", "registry"])
def test_a_set_that_is_older_shows_an_old_copy(mode: str, record: ManagerRecord | None) -> None:
    """A data directory from before the last change of the set; the only other whole member is down."""
    newer = InSync(1, "id-a", 4, (A, B))
    if record is not None:
        record = replace(record, states=(HaState("id-a", 1, "id-a", newer),))
    text = "it has the log up to an in-sync set that is older than the newest one, and so may lack what came later"
    text = f"{text}: a, which would show that, does not answer"
    knows = view(C, whole=False, in_sync=newer)
    assert refusal(restored(), survey(knows, a=REFUSED), mode, record=record) == text
    assert refusal(restored(), survey(knows, a=REFUSED), mode, record=record, force=True) == ""
    assert refusal(restored(), survey(knows, restored(A, in_sync=newer)), mode, record=record) == ""
    assert refusal(restored(in_sync=newer), survey(knows, a=REFUSED), mode, record=record) == ""
    told = restored(in_sync=newer, vouched=SET.key)
    assert refusal(told, survey(knows, a=REFUSED), mode, record=record) == text, "it does not have the log up to there"
    assert refusal(view(), survey(knows, a=REFUSED), mode, record=record) == "", "it was not away"
    assert refusal(restored(), survey(knows, a=REFUSED), "availability") == ""


@pytest.mark.parametrize("mode", ["manager", "quorum", "availability"])
def test_a_broker_that_does_not_know_that_it_has_led_is_an_old_copy(mode: str) -> None:
    """It is the only whole member: what b cannot read (rot) is a reason to ask for another one, and none for this."""
    led = (("id-a", 1), ("id-b", 2))
    rotten, copy = restored(C, 200, epoch=2, whole=False, durable=0, led=led), restored(B, 120, led=(("id-b", 1),))
    others = survey(rotten, a=REFUSED)
    aged = "its data directory is an older copy: it has claimed epoch 2 and does not know that"
    assert refusal(copy, others, mode).startswith(aged)
    assert not refusal(replace(copy, led=(("id-b", 2),)), others, "availability").startswith(aged)
    best = view(C, 200, epoch=2, led=led)
    answers = {"b:1": Answer(Outcome.ANSWERED, copy.to_json()), "a:1": Answer(REFUSED)}
    found = decide(best, Survey.of("id-c", answers), Safety(mode, BROKERS, 2.0, True))
    assert isinstance(found, Claim) and [member.id for member in found.members] == ["id-c"]


@pytest.mark.parametrize("mode", ["manager", "quorum", "availability"])
def test_a_claim_that_others_know_shows_an_old_copy(mode: str) -> None:
    """b led epoch 3, and its log reached nobody.  Its own entry in the registry has that claim; or the vote of a broker
    that granted it; or the set that it made."""
    led = InSync(3, "id-b", 4, (A, B))
    copy = restored(B, 60, led=(("id-b", 1),))
    aged = "its data directory is an older copy: it has claimed epoch 3 and does not know that"
    entries = HaState("id-b", 3, "id-b", SET), HaState("id-b", 4, "id-a", led), HaState("id-a", 3, "id-b", SET)
    for entry in entries:
        record = ManagerRecord((entry,), registry=True)
        for in_sync in (SET, led):
            mine = replace(copy, in_sync=in_sync)
            assert refusal(mine, survey(restored(C, 20), a=SILENT), mode, record=record).startswith(aged)
    for granter in (view(C, 20, epoch=3, leader="id-b"), view(C, 20, epoch=4, in_sync=led)):
        assert refusal(copy, survey(granter, a=SILENT), mode).startswith(aged)
    knows = replace(copy, led=(("id-b", 3),))
    assert not refusal(knows, survey(restored(C, 20), a=SILENT), mode, record=record).startswith(aged)


def test_a_new_primary_does_not_expect_an_old_copy_that_the_registry_shows() -> None:
    """Its set would list the copy, and so vouch for it."""
    led = InSync(3, "id-a", 4, (A, B, C))
    copy, mine = restored(A, 60, led=(("id-a", 1),)), view(C, 200, epoch=2, in_sync=SET, led=(("id-c", 0),))
    record = ManagerRecord((HaState("id-a", 3, "id-a", led),), registry=True)
    answers = {"a:1": Answer(Outcome.ANSWERED, copy.to_json()), "b:1": Answer(REFUSED)}
    found = decide(mine, Survey.of("id-c", answers), Safety("manager", BROKERS, 2.0, True), record=record)
    assert isinstance(found, Claim) and [member.id for member in found.members] == ["id-c"]


def test_a_new_primary_lists_as_before_who_holds_less_than_it() -> None:
    """What is put back may lack what it had; it is listed as this run when it has got everything."""
    for sequence, listed in ((200, "a.2"), (201, "a.2"), (199, "a.1")):
        answers = {"a:1": Answer(Outcome.ANSWERED, restored(A, sequence).to_json()), "b:1": Answer(REFUSED)}
        found = decide(view(C, 200), Survey.of("id-c", answers), Safety("quorum", BROKERS, 2.0, True), behind=True)
        assert isinstance(found, Claim) and [member.instance for member in found.members] == [C.instance, listed]
    foreign = restored(A, 300, writer="id-x")
    answers = {"a:1": Answer(Outcome.ANSWERED, foreign.to_json()), "b:1": Answer(REFUSED)}
    found = decide(view(C, 200), Survey.of("id-c", answers), Safety("quorum", BROKERS, 2.0, True), behind=True)
    assert isinstance(found, Claim) and [member.instance for member in found.members] == [C.instance, "a.1"]


def test_a_vote_for_another_broker_vouches_for_no_content() -> None:
    """A copy grants a claim and restarts: its vote is new, what it holds is not."""
    local = member(SET, make(1, 9), vouched=1)
    local.persist(epoch=4, leader="id-a")
    again = member(SET, make(1, 9), epoch=4, vouched=local.persisted.vouched[0])
    assert again.epochs_led["id-b"] == 1


def test_a_set_vouches_for_what_a_broker_holds_if_it_has_the_log_up_to_there() -> None:
    local = member(SET, make(1, 9), epoch=5, vouched=1)
    listed = InSync(5, "id-a", 7, (A, replace(B, instance="b.2"), C))
    local.persist(in_sync=listed)
    assert local.epochs_led["id-b"] == 1, "it was told, at the beginning of a difference"
    local.receive(listed, complete=False)
    assert local.epochs_led["id-b"] == 1, "the difference is not complete"
    local.receive(listed, complete=True)
    assert local.epochs_led["id-b"] == 5 and local.persisted.vouched == listed.key


def test_a_broker_knows_who_has_led_by_its_log_and_its_own_claims() -> None:
    for vouched, expected in ((1, 4), (4, 4), (7, 7)):
        local = member(SET, make(1, 9), 7, vouched)
        local.lineage = {3: Origin("id-b", 0), 5: Origin("id-x", make(4, 2)), 4: Origin("id-b", make(3, 9))}
        assert local.epochs_led == {"id-b": expected, "id-x": 5}
        local.persist(epoch=9, leader="id-x")
        assert local.epochs_led["id-b"] == expected


def test_who_has_led_is_found_once_for_each_history() -> None:
    """It is asked at every look, and epochs become many."""

    class Counted(dict[int, Origin]):
        asked = 0

        def items(self) -> Any:
            self.asked += 1
            return super().items()

    local = member(SET, make(1, 9), vouched=1)
    local.lineage = history = Counted({1: Origin("id-a"), 2: Origin("id-c")})
    assert local.epochs_led == local.epochs_led == {"id-a": 1, "id-c": 2, "id-b": 1}
    assert history.asked == 1
    local.lineage = {**history, 3: Origin("id-a")}
    assert local.epochs_led["id-a"] == 3


def test_what_a_broker_says_of_epochs_above_its_vote_is_not_believed() -> None:
    """One faulty broker could make the copies of all others look old, for ever."""
    faulty = view(C, led=(("id-b", 60000), ("id-a", 1)))
    heard = survey(faulty).views[0]
    assert heard.led == (("id-a", 1),)
    for wrong in ([["id-b", 1]], {"id-b": "1"}, {"id-b": True}, {"x" * 5000: 1}):
        answer = Answer(Outcome.ANSWERED, {**view(C).to_json(), "led": wrong})
        assert Survey.of("id-b", {"c:1": answer}).views == ()


def test_the_advice_names_the_disks_that_are_missing() -> None:
    pair = InSync(1, "id-a", 3, (A, C))
    me, seen = view(whole=False, in_sync=pair), survey(view(C, whole=False, in_sync=pair), a=REFUSED)
    what = "a does not answer and may hold what was confirmed: bring it back, or promote one by force without it"
    assert advise(me, seen, journals=True) == f"no member that answers holds every confirmed message; {what}"
    assert "starts the cluster again with what survived" in advise(me, seen)


def test_a_copy_elsewhere_stands_for_no_member() -> None:
    run = Member("id-b", "b", "b:1", "b.2", ("b.1",))
    assert run.stands_for(B) and SET.lists(run)
    assert not replace(run, address="e:1").stands_for(B) and not replace(run, before=()).stands_for(B)
    assert replace(B, address="e:1").stands_for(B), "the same process has a new address"


# ---- whose content it is -----------------------------------------------------------------------------------------


def test_a_note_is_read_as_it_was_written() -> None:
    content = Content(("b.1", "b.2"), {1: Origin("id-a"), 2: Origin("id-b", 7)})
    assert Content.decode(content.encode()) == content


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[]",
        b"{}",
        b'{"instances": 1}',
        b'{"instances": [], "lineage": 7}',
        b"\xff",
        b'{"instances": [], "lineage": [], "state": {}}',
        b'{"instances": [], "lineage": [], "state": {"in_sync": 7}}',
        b'{"instances": [], "lineage": [], "state": {"in_sync": {}, "id": "a", "epoch": "x", "leader": ""}}',
    ],
)
def test_what_no_member_has_written_is_refused(note: bytes) -> None:
    with pytest.raises(LinkError):
        Content.decode(note)


def test_the_runs_since_the_listed_one_are_kept_and_a_few_more() -> None:
    runs = tuple(f"b.{number}" for number in range(1, 21))
    listed = InSync(1, "id-a", 1, (replace(B, instance="b.3"),))
    assert Content(runs).known_as("id-b", listed) == runs[2:]
    assert Content(runs).known_as("id-b", SET) == runs
    assert Content(runs).known_as("id-b", InSync()) == runs[-KEPT:]


def test_what_may_lack_something_stands_for_no_run() -> None:
    """Acknowledgements did not wait for the disk, and the machine was started again."""
    content = Content(("b.1",), {1: Origin("id-a")}, "monday")
    assert Content.decode(content.encode()) == content == content.after("monday")
    assert content.after("tuesday").known_as("id-b", SET) == () and content.after("tuesday").lineage == content.lineage
    assert replace(content, boot="").after("tuesday").instances == ("b.1",)
    local = member(SET, make(1, 9))
    local.restore(content.after("tuesday"))
    assert not local.whole and local.acknowledged == make(1, 9), "it may be the only copy: it is put aside, not dropped"


@pytest.mark.parametrize("mode", ["manager", "quorum"])
def test_the_best_copy_is_promoted_when_the_power_of_all_has_taken_something(mode: str) -> None:
    """Acknowledgements did not wait for the disk: none is whole.  One that is missing may have more."""
    lost: dict[str, Any] = {"whole": False, "before": ()}
    me, others = restored(**lost), (restored(A, 90, **lost), restored(C, 100, **lost))
    assert refusal(me, survey(*others), mode) == ""
    assert "holds more" in refusal(me, survey(others[0], restored(C, 101, **lost)), mode)
    assert "its journal is on its disk" in refusal(me, survey(others[0], c=REFUSED), mode)


def member(in_sync: InSync, position: int, epoch: int = 1, vouched: int = 0) -> LocalMember:
    env: Any = SimpleNamespace(now=lambda: 0.0, log=lambda *line: None, persist=lambda state: None)
    env.event = lambda *kind, **fields: None
    journal: Any = SimpleNamespace(note=lambda note: None)
    settings = NodeSettings(name="b", address="b:1", brokers=BROKERS)
    state = HaState("id-b", epoch, "id-a", in_sync, vouched=(vouched, "", 0))
    engine: Any = SimpleNamespace(position=position)
    return LocalMember(settings, engine, SimpleNamespace(), env, state, "b.2", journal=journal)


def test_a_restart_is_whole_if_the_set_on_its_disk_lists_its_content() -> None:
    content = Content(("b.1",), {1: Origin("id-a")})
    local = member(SET, make(1, 9))
    local.restore(content)
    assert local.whole and local.acknowledged == make(1, 9) and local.before == ("b.1",)
    for other in (InSync(1, "id-a", 4, (A, C)), InSync(1, "id-a", 4, (replace(B, instance="b.0"),))):
        local = member(other, make(1, 9))
        local.restore(content)
        assert not local.whole and local.acknowledged == make(1, 9)


def test_a_note_without_the_leader_of_the_last_epoch_is_refused_in_words() -> None:
    with pytest.raises(LinkError, match="names no leader of epoch 3"):
        member(SET, make(3, 9)).restore(Content(("b.1",), {1: Origin("id-a")}))


def test_a_vote_that_is_older_than_the_journal_is_raised() -> None:
    local = member(SET, make(3, 9))
    local.restore(Content(("b.1",), {1: Origin("id-a"), 3: Origin("id-c", make(1, 4))}))
    assert local.persisted.ballot == (3, "id-c")


def test_a_journal_that_was_put_back_from_a_copy_does_not_count() -> None:
    """Also if the same run had written it: it had come further once."""
    local = member(SET, make(1, 9))
    local.restore(Content(("b.1",), {1: Origin("id-a")}), mark=make(1, 10))
    assert not local.whole and "ends at 1.9 and had come to 1.10" in local.copied
    local.receive(replace(SET, version=4), True)
    assert local.copied, "listed is an earlier run"
    local.receive(replace(SET, version=5, members=(A, replace(B, instance="b.2"), C)), True)
    assert not local.copied


@pytest.mark.parametrize("newer", [{"epoch": 2, "leader": "id-c"}, {"in_sync": InSync(1, "id-a", 4, (A, C))}])
def test_a_state_file_that_was_put_back_from_a_copy_is_found(newer: dict[str, Any]) -> None:
    noted = HaState("id-b", 1, "id-a", SET).advance(**newer)
    content = Content(("b.1",), {1: Origin("id-a")}, state=noted)
    assert Content.decode(content.encode()) == content
    local = member(SET, make(1, 9))
    local.restore(content)
    assert not local.whole and "its journal knows" in local.copied
    assert (local.persisted.ballot, local.persisted.in_sync) == (noted.ballot, noted.in_sync), "what was forgotten"


def test_the_journal_of_another_broker_does_not_count() -> None:
    local = member(SET, make(1, 9))
    local.restore(Content(("b.1",), {1: Origin("id-a")}, state=HaState("id-c", 1, "id-a", SET)))
    assert not local.whole and "its journal is that of id-c" in local.copied


def test_a_broker_that_has_lost_its_identity_says_so_and_does_not_vote() -> None:
    world = World()
    world.cluster()
    world["c"].kill()
    world["c"].disk = HaState("id-new")
    world["c"].boot()
    claim = {"epoch": 2, "claimant": world["b"].node.local.member.to_json(), "position": 0}
    claim |= {"base": world["b"].disk.in_sync.to_json(), "whole": True}
    c = world["c"].node
    assert not c.view().lost and "lost" not in c.view().to_json()
    answer = c.claimed(ClaimRequest.from_json(claim))
    assert View.from_json(c.view().to_json()).lost
    assert answer["abstains"] and answer["lost"] and "its identity and its votes are lost" in answer["reason"]
    world.run(3)
    assert c.local.state is State.READY and not c.local.lost, "a primary has listed it"


@pytest.mark.parametrize("told", [False, True])
def test_a_primary_tells_a_broker_that_it_holds_an_old_copy(told: bool) -> None:
    local: Any = member(SET, make(1, 9))
    notes: list[bytes] = []
    local.journal = SimpleNamespace(note=notes.append, differ=lambda: None)
    local.configuration = SimpleNamespace(replicated=list)
    local.engine = SimpleNamespace(position=make(1, 9), safe=0)
    local.restore(Content(("b.1",), {1: Origin("id-a")}))
    link: Any = SimpleNamespace(send_frame=lambda *frame: None, hold_batches=lambda hold: None)
    unlisted: list[bool] = []
    joiner: Any = SimpleNamespace(welcomed=lambda leader: None, salvaged=lambda: None, not_salvaged=None)
    joiner.not_listed = lambda: unlisted.append(True)
    joining = Joining(local, link, joiner, make(1, 9), {})
    more = {"whole": False} if told else {}
    lineage = lineage_to_json({1: Origin("id-a")})
    joining.on_control("welcome", {**A.to_json(), "epoch": 1, "version": VERSION, "lineage": lineage, **more})
    assert bool(unlisted) == told and (local.before == ()) == told
    assert [Content.decode(note).instances for note in notes] == [("b.2",)] * told, "also after the next restart"


# ---- a disk that hangs -------------------------------------------------------------------------------------------


class Disk:
    """A journal, and the time."""

    def __init__(self, patience: float = 10.0) -> None:
        self.time, self.waiting, self.durable, self.full = 100.0, 0, 5, False
        self.said: list[str] = []
        env: Any = SimpleNamespace(now=lambda: self.time, log=lambda level, text: self.said.append(text))
        env.event = lambda kind, **fields: self.said.append(f"{kind} {fields['result']}")
        self.watch = JournalWatch(env, self, 2.0, patience)  # type: ignore[arg-type]
        self.watch.look()

    def wait(self, seconds: float) -> bool:
        """The last answer."""
        end, answer = self.time + seconds, 0.0
        while self.time < end:
            self.time += 0.5
            answer = self.watch.look()
        return answer > 1


def test_a_disk_that_writes_nothing_hangs_until_it_does() -> None:
    disk = Disk()
    assert not disk.wait(60) and not disk.watch.hangs, "nothing waits"
    disk.waiting = 7
    assert not disk.wait(2) and not disk.watch.hangs
    assert not disk.wait(1) and disk.watch.hangs == "the disk of its journal has written nothing for 3.0 s"
    assert not disk.wait(7) and disk.wait(1)
    disk.durable += 1
    assert not disk.wait(0.5) and not disk.watch.hangs
    assert [line.partition(" for ")[0] for line in disk.said] == [
        "the disk of its journal has written nothing",
        "state_file slow",
        "the disk of its journal writes again",
        "state_file fast",
    ]


def test_a_full_disk_and_a_pause_are_no_hanging_disk() -> None:
    disk = Disk()
    disk.waiting, disk.full = 7, True
    assert not disk.wait(60) and not disk.watch.hangs
    disk.full = False
    disk.time += 60
    assert not disk.wait(1) and not disk.watch.hangs


def test_patience_may_have_no_end() -> None:
    disk = Disk(patience=0.0)
    disk.waiting = 7
    assert not disk.wait(600) and disk.watch.hangs


def hang(world: World, name: str) -> None:
    """From now on nothing comes to the disk of its journal."""
    world[name].node.local.journal_watch._journal = SimpleNamespace(waiting=7, durable=5, full=False)


def test_a_broker_ends_if_others_can_do_without_it() -> None:
    world = World()
    world["a"].promote()
    world.run(2)
    for name in "bca":
        hang(world, name)
        world.run(2)
        assert world[name].node.advice() or name == "a"
        world.run(12)
        assert bool(world[name].ended) == (name != "a"), world[name].ended
    assert world["b"].exit_code == EXIT_DISK and "others can do without this broker" in world["b"].ended
    stall = world["a"].node.stall()
    assert stall is not None and stall["why"].startswith("the disk of its journal has written nothing for 1")


def test_a_primary_with_a_ready_backup_ends() -> None:
    world = World()
    world["a"].promote()
    world.run(2)
    hang(world, "a")
    world.run(15)
    assert not world["a"].ended, "with a disk for all of them its backups end first"
    world.run(10)
    assert world["a"].ended


# ---- what is on disk ---------------------------------------------------------------------------------------------


class SlowJournal(NoJournal):
    """While `stuck` nothing comes to the disk."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.engine)
        self._host = host
        self._at = 0
        self._whole = True
        self.stuck = False

    @property
    def position(self) -> int:
        if not self.stuck:
            self._at = self._engine.position
        return self._at

    @property
    def complete(self) -> bool:
        self._whole = self._whole or not self.stuck
        return self._whole

    def differ(self) -> None:
        self._whole = False

    def go_on(self) -> None:
        self.stuck = False
        self._host.node.durable(self.position)


class SlowHost(Host):
    journal: SlowJournal

    def make_journal(self) -> SlowJournal:
        self.journal = SlowJournal(self)
        return self.journal


class SlowWorld(World):
    host_type = SlowHost

    def journal(self, name: str) -> SlowJournal:
        host = self[name]
        assert isinstance(host, SlowHost)
        return host.journal


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_confirm_waits_for_the_disk_of_each_member(name: str) -> None:
    world = SlowWorld()
    world.cluster()
    client: Publisher = filled(world)
    world.journal(name).stuck = True
    client.publish("q", b"one more")
    world.run(0.9)
    assert client.confirmed == 20 and len(world["b"].contents("q")) == 21
    world.journal(name).go_on()
    world.run(0.1)
    assert client.confirmed == 21


def test_a_backup_is_listed_when_its_disk_has_what_it_took_over() -> None:
    world = SlowWorld()
    world.cluster()
    filled(world)
    world["c"].kill()
    world.until(lambda: "id-c" not in world["a"].disk.in_sync)
    world["c"].boot()
    world.journal("c").stuck = True
    world.run(0.9)
    assert len(world["c"].contents("q")) == 20 and "id-c" not in world["a"].disk.in_sync
    world.journal("c").go_on()
    world.run(0.1)
    assert "id-c" in world["a"].disk.in_sync and world["c"].state is State.READY


def test_the_score_of_a_primary_whose_disk_hangs_falls_if_a_backup_has_a_better_one() -> None:
    """After `ha-slow-backup-timeout`, so that its manager moves the role; it rises when the disk writes again."""
    world = SlowWorld()
    world.cluster()
    filled(world)
    a, client = world["a"], Publisher(world["a"])
    writes = a.node.local.journal_watch._journal
    world.journal("a").stuck = True
    hang(world, "a")
    world.run(11)
    assert a.node.candidacy.score == PRIMARY, "no backup has more on its disk: theirs may be the same"
    client.publish("q", b"late")
    world.run(1)
    assert a.node.candidacy.score == SLOW and a.state.is_primary
    assert world["b"].node.candidacy.score == WHOLE, "the manager has another one to choose"
    a.node.local.journal_watch._journal = writes
    world.journal("a").stuck = False
    world.run(1)
    assert a.node.candidacy.score == PRIMARY


def test_a_primary_whose_disk_hangs_hands_over_when_it_is_asked_to() -> None:
    """Nothing is safe without its disk: what the backups hold is enough, and the clients lack their confirms."""
    world = SlowWorld()
    world.cluster()
    filled(world)
    client = Publisher(world["a"])
    world.journal("a").stuck = True
    hang(world, "a")
    client.publish("q", b"late")
    world.run(4)
    assert world["a"].node.alarms()["journal disk"] and client.confirmed == 0
    assert world["b"].node.role.position == world["a"].engine.position
    replies: list[Any] = []
    assert world["a"].requests.request("ha.relocate", {"to": "b"}, replies.append, "")
    world.until(lambda: bool(replies))
    assert replies[0]["ok"] and world["b"].state.is_primary and world["a"].state is not State.ACTIVE
    assert b"late" in world["b"].contents("q"), "the backups hold it"
    assert client.confirmed == 0
