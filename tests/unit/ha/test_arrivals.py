"""The primary's side of joining, frame by frame: what it sends, refuses and reports.  The primary is a double."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.difference import Origin
from ha.model.environment import Json
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.protocol import VERSION, Kind, decode_control, encode_control, encode_held
from ha.model.pulse import Pulse
from ha.model.settings import NodeSettings
from ha.primary.arrivals import Arrivals
from ha.primary.peer import Peer, Phase
from qpidd_py.broker.snapshot import encode_snapshot
from qpidd_py.errors import LinkError

A, B, C = (Member(f"id-{name}", name, f"{name}:1", "first") for name in "abc")
SET = InSync(2, "id-a", 3, (A, B))
CUT, SEALED, POSITION = 70, 80, 90
HELLO = {**B.to_json(), "epoch": 2, "leader": "id-a", "version": VERSION, "replicate": "all", "whole": True}
HELLO |= {"position": 55, "state": "joining"}


class Link:
    """The primary's end: keeps what is sent."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []

    def send_frame(self, kind: int, position: int, body: bytes) -> None:
        self.frames.append((kind, position, body))

    def said(self) -> list[tuple[str, Json]]:
        """The controls since the last call, all of them at the end of the log."""
        controls = [frame for frame in self.frames if frame[0] == Kind.CONTROL]
        self.frames = []
        assert {position for _, position, _ in controls} <= {POSITION}
        return [decode_control(body) for _, _, body in controls]


class Primary:
    """Of broker a in epoch 2."""

    def __init__(self) -> None:
        self.stopped, self.position, self.refused = False, POSITION, ""
        self.calls: list[tuple[Any, ...]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.events: list[tuple[str, Json]] = []
        self.repeated = 0
        self.other: Peer | None = None
        self.time = 4.0
        settings = NodeSettings(name="a", address="a:1", safety="quorum", brokers=("a:1", "b:1", "c:1"))
        env: Any = SimpleNamespace(now=lambda: self.time, after=lambda *it: self.later.append(it), log=lambda *it: None)
        env.event = lambda kind, **fields: self.events.append((kind, fields))
        engine: Any = SimpleNamespace(repeat_delivered=self._repeat)
        configuration: Any = SimpleNamespace(replicated=list, snapshot=partial(encode_snapshot, []))
        state = HaState("id-a", 2, "id-a", SET)
        self.local = LocalMember(settings, engine, configuration, env, state, "first")
        self.arrivals = Arrivals(cast(Any, self))

    def _repeat(self) -> None:
        self.repeated += 1

    def elsewhere(self, peer: Peer, member: Member) -> Peer | None:
        self.calls.append(("elsewhere", peer, member))
        return self.other

    def refusal(self, peer: Peer) -> str:
        return self.refused

    def go_live(self, link: Any) -> int:
        self.calls.append(("live", link))
        return CUT

    def seal(self) -> int:
        return SEALED

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.calls.append((name, *arguments))

    def called(self) -> list[tuple[Any, ...]]:
        found, self.calls = [call for call in self.calls if call[0] != "elsewhere"], []
        return found

    # ---- what the test does

    def peer(self, phase: Phase = Phase.HELLO, member: Member = B) -> tuple[Peer, Link]:
        link = Link()
        return Peer(member, Pulse(0.0, 0.0), link=cast(Any, link), phase=phase, started=1.0), link

    def control(self, peer: Peer, op: str, **fields: Any) -> None:
        self.arrivals.on_control(peer, 0, encode_control(op, **fields))


def refused(primary: Primary, **fields: Any) -> str:
    """The reason of the error, which the backup was told, too."""
    peer, link = primary.peer()
    with pytest.raises(LinkError) as caught:
        primary.control(peer, "hello", **{**HELLO, **fields})
    ((op, said),) = link.said()
    assert op == "refused" and str(caught.value).endswith(f": {said['reason']}") and set(said) == {"reason"}
    assert primary.called() == [] and peer.phase is Phase.HELLO and primary.events == []
    reason: str = said["reason"]
    return reason


# ---- the order of the conversation ------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize(("op", "wanted"), [("hello", "HELLO"), ("held-end", "HELD"), ("complete", "CLOSING")])
def test_each_word_has_its_phase(op: str, wanted: str, phase: Phase) -> None:
    if phase is not Phase[wanted]:
        primary = Primary()
        peer, link = primary.peer(phase)
        with pytest.raises(LinkError, match=f"control {op} in phase {phase.value}"):
            primary.control(peer, op, **HELLO)
        assert link.frames == [] and peer.phase is phase and primary.calls == []


@pytest.mark.parametrize("phase", list(Phase))
def test_any_other_word_is_an_error(phase: Phase) -> None:
    primary = Primary()
    with pytest.raises(LinkError, match=f"control what in phase {phase.value}"):
        primary.control(primary.peer(phase)[0], "what", **HELLO)


def test_a_backup_that_asks_is_answered_in_any_phase() -> None:
    for phase in Phase:
        primary = Primary()
        peer, link = primary.peer(phase)
        primary.control(peer, "still-there", number=7)
        assert link.said() == [("still-there", {"number": 7})]


def test_a_backup_that_refuses_ends_the_link() -> None:
    primary = Primary()
    with pytest.raises(LinkError, match="b refuses us: no"):
        primary.control(primary.peer()[0], "refused", reason="no")


# ---- hello ------------------------------------------------------------------------------------------------------


def test_a_backup_is_welcomed() -> None:
    primary = Primary()
    peer, link = primary.peer(member=Member(""))
    primary.control(peer, "hello", **HELLO)
    assert (peer.member, peer.member.instance, peer.phase) == (B, "first", Phase.HELD)
    assert (peer.whole, peer.state) == (True, "joining")
    ((op, said),) = link.said()
    assert (op, said) == ("welcome", {**primary.local.member.to_json(), "epoch": 2, "version": VERSION, "lineage": []})
    assert primary.called() == [("take_place", peer, 55), ("heartbeat", link, peer)]
    assert primary.events == [("backup_connected", {"peer": "b", "old": "joining", "attrs": {"whole": True}})]


def test_a_run_that_came_back_with_less_than_it_acknowledged_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it is whole in its own eyes until it is complete, and might be promoted."""
    primary = Primary()
    peer, link = primary.peer(member=Member(""))
    monkeypatch.setattr(primary, "take_place", lambda peer, position: setattr(peer, "whole", False))
    primary.control(peer, "hello", **{**HELLO, "instance": "second", "before": ["first"], "durable": 55})
    ((op, said),) = link.said()
    assert op == "welcome" and said["whole"] is False


@pytest.mark.parametrize("keeps", [False, True])
def test_members_with_and_without_a_journal_are_a_warning(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    primary = Primary()
    lines: list[str] = []
    monkeypatch.setattr(primary.local.env, "log", lambda level, text: lines.append(f"{level} {text}"))
    primary.local.keeps = keeps
    for fields in (HELLO, {**HELLO, "durable": 55}):
        peer, _ = primary.peer(member=Member(""))
        primary.control(peer, "hello", **fields)
    (line,) = [line for line in lines if "keeps a journal" in line]
    one, other = ("this broker", "b") if keeps else ("b", "this broker")
    assert line.startswith(f"warning {one} keeps a journal and {other} does not")


@pytest.mark.parametrize(
    ("knows", "whole"), [({"id-b": 1}, False), ({"id-b": 2}, True), ({}, False), ({"id-c": 2}, False)]
)
def test_a_backup_that_does_not_know_that_it_has_led_is_an_old_copy(knows: dict[str, int], whole: bool) -> None:
    primary = Primary()
    primary.local.lineage = {1: Origin("id-b", 0), 2: Origin("id-b", make(1, 5))}
    peer, link = primary.peer(member=C)
    primary.control(peer, "hello", **{**HELLO, "led": knows, "before": ["zero"]})
    ((op, said),) = link.said()
    assert op == "welcome" and peer.whole is whole and ("whole" in said) is not whole


@pytest.mark.parametrize("missing", ["epoch", "leader", "whole", "position"])
def test_a_hello_must_be_whole(missing: str) -> None:
    primary = Primary()
    peer, _ = primary.peer()
    with pytest.raises(LinkError):
        primary.control(peer, "hello", **{name: value for name, value in HELLO.items() if name != missing})
    assert peer.phase is Phase.HELLO


def test_a_state_may_be_missing() -> None:
    primary = Primary()
    peer, _ = primary.peer()
    primary.control(peer, "hello", **{name: value for name, value in HELLO.items() if name != "state"})
    assert peer.state == "" and peer.phase is Phase.HELD


@pytest.mark.parametrize(("epoch", "leader"), [(3, "id-0"), (2, "id-b")])
def test_a_higher_ballot_deposes_us(epoch: int, leader: str) -> None:
    primary = Primary()
    peer, link = primary.peer()
    primary.control(peer, "hello", **{**HELLO, "epoch": epoch, "leader": leader})
    assert primary.called() == [("depose", (epoch, leader), f"b has granted epoch {epoch}", "")]
    assert link.frames == [] and peer.phase is Phase.HELLO


def test_a_lower_ballot_is_welcome() -> None:
    primary = Primary()
    peer, _ = primary.peer()
    primary.control(peer, "hello", **{**HELLO, "epoch": 1, "leader": "id-z"})
    assert peer.phase is Phase.HELD


def test_only_a_broker_of_this_cluster_and_of_this_version_is_welcome() -> None:
    assert refused(Primary(), version=VERSION + 1) == f"link protocol {VERSION + 1}, a has {VERSION}"
    found = refused(Primary(), replicate="none")
    assert found == "ha-replicate is none, at the primary a it is all"
    found = refused(Primary(), address="x:1")
    assert found == "no member of the cluster: x:1, expected one of a:1, b:1, c:1"
    assert refused(Primary(), **A.to_json()) == "a has connected to itself"
    found = refused(Primary(), address="")
    assert found == "no member of the cluster: its address is not known, expected one of a:1, b:1, c:1"
    primary = Primary()
    primary.refused = "wait"
    assert refused(primary) == "wait"


# ---- twins ------------------------------------------------------------------------------------------------------


def test_a_copy_of_ourselves_is_told_and_sent_away() -> None:
    primary = Primary()
    peer, link = primary.peer()
    primary.control(peer, "hello", **{**HELLO, **A.to_json(), "instance": "second", "address": "x:1"})
    ((op, said),) = link.said()
    assert op == "refused" and said["twin"] is True and "a has a link to" in said["reason"]
    assert primary.called() == [("send_away", peer)] and peer.phase is Phase.HELLO
    assert len(primary.local.sightings.shown()) == 1


def met() -> tuple[Primary, Peer, Link, Peer, Link]:
    """b has a link, and a second process of b says hello."""
    primary = Primary()
    first, one = primary.peer(Phase.COMPLETE)
    second, other = primary.peer(member=Member(""))
    primary.other = first
    primary.control(second, "hello", **{**HELLO, "instance": "second"})
    (found,) = primary.calls
    assert found == ("elsewhere", second, B) and found[2].instance == "second"
    primary.calls = []
    assert one.said() == other.said() == [("alive", {"number": 1})] and second.phase is Phase.HELLO
    return primary, first, one, second, other


def test_a_second_process_is_refused_when_both_are_alive() -> None:
    primary, first, one, second, other = met()
    primary.control(first, "alive", number=1)
    assert other.frames == []
    primary.control(second, "alive", number=1)
    ((op, said),) = other.said()
    assert op == "refused" and said["twin"] is True and one.frames == []
    assert primary.called() == [("send_away", second)]


def test_a_second_process_has_its_turn_when_the_first_has_gone() -> None:
    primary, first, _, second, _ = met()
    primary.other = None
    primary.arrivals.left(first)
    ((seconds, call),) = primary.later
    assert seconds == 0.0 and second.phase is Phase.HELLO
    call()
    assert second.phase is Phase.HELD and second.member.instance == "second"


@pytest.mark.parametrize("why", ["stopped", "no link", "phase"])
def test_it_has_none_when_the_role_or_its_link_has_ended(why: str) -> None:
    primary, first, _, second, other = met()
    primary.other = None
    primary.arrivals.left(first)
    primary.stopped = why == "stopped"
    if why == "no link":
        second.link = None
    if why == "phase":
        second.phase = Phase.HELD
    primary.later[0][1]()
    assert primary.calls == [] and other.frames == []


def test_an_error_of_a_hello_that_waited_breaks_its_link() -> None:
    primary, first, _, _, other = met()
    primary.other, primary.refused = None, "wait"
    primary.arrivals.left(first)
    primary.later[0][1]()
    ((name, link, error),) = primary.called()
    assert (name, link, str(error)) == ("break_link", other, "b: wait")


# ---- what it holds ----------------------------------------------------------------------------------------------


def test_what_it_holds_is_kept_by_queue() -> None:
    primary = Primary()
    peer, _ = primary.peer(Phase.HELD)
    primary.arrivals.on_held(peer, 0, encode_held(4, 9, b"x"))
    primary.arrivals.on_held(peer, 0, encode_held(5, 9, b"y"))
    assert peer.held == {(4, 9): b"x", (5, 9): b"y"}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.HELD])
def test_only_then(phase: Phase) -> None:
    primary = Primary()
    peer, link = primary.peer(phase)
    with pytest.raises(LinkError, match=f"held frame in phase {phase.value}"):
        primary.arrivals.on_held(peer, 0, encode_held(4, 9, b"x"))
    with pytest.raises(LinkError, match=f"question about messages in phase {phase.value}"):
        primary.arrivals.on_lack(peer, 0, encode_held(4, 9, b"x"))
    assert peer.held == {} and link.frames == []


def test_a_queue_that_we_do_not_have_lacks_all() -> None:
    primary = Primary()
    other: Any = SimpleNamespace(number=4)
    cast(Any, primary.local.configuration).replicated = lambda: [(other, 8)]
    peer, link = primary.peer(Phase.HELD)
    primary.arrivals.on_lack(peer, 0, encode_held(4, 9, b"xyz"))
    assert link.frames == [(Kind.LACK, POSITION, encode_held(4, 9, b"xyz"))]


def test_a_queue_that_we_have_is_compared_up_to_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    primary, compared = Primary(), list[tuple[Any, ...]]()
    queue: Any = SimpleNamespace(number=4)
    cast(Any, primary.local.configuration).replicated = lambda: [(queue, 9)]

    def catchup(*arguments: Any) -> Any:
        compared.append(arguments)
        return SimpleNamespace(drops=lambda: b"z")

    monkeypatch.setattr("ha.primary.arrivals.Catchup", catchup)
    peer, link = primary.peer(Phase.HELD)
    primary.arrivals.on_lack(peer, 0, encode_held(4, 9, b"xyz"))
    assert compared == [(queue, b"xyz", POSITION)] and link.frames == [(Kind.LACK, POSITION, encode_held(4, 9, b"z"))]


def test_a_question_whose_link_has_ended_has_no_answer() -> None:
    primary = Primary()
    peer, _ = primary.peer(Phase.HELD)
    peer.link = None
    with pytest.raises(LinkError):
        primary.arrivals.on_lack(peer, 0, encode_held(4, 9, b"x"))


# ---- the difference ---------------------------------------------------------------------------------------------


class Plan:
    """What to send: so many turns, and so many slices that are not acknowledged."""

    cut, slices, octets, hole = CUT, 3, 99, ""

    def __init__(self, turns: int = 0, under_way: int = 0, done: bool = True) -> None:
        self.turns, self.under_way, self.done = turns, under_way, done

    def step(self, link: Any) -> bool:
        self.turns -= 1
        return self.turns >= 0


def copying(plan: Plan, phase: Phase = Phase.COPYING) -> tuple[Primary, Peer, Link]:
    primary = Primary()
    peer, link = primary.peer(phase)
    peer.plan = cast(Any, plan)
    return primary, peer, link


def test_the_cut_is_fixed_before_anything_is_compared() -> None:
    primary = Primary()
    peer, link = primary.peer(Phase.HELD)
    primary.control(peer, "held-end")
    assert primary.called() == [("live", link)] and primary.repeated == 1
    (_, _, first), snapshot, (_, _, last) = link.frames
    assert decode_control(first) == ("cut", {"cut": CUT, "in_sync": SET.to_json()})
    assert snapshot == (Kind.SNAPSHOT, CUT, encode_snapshot([]))
    assert decode_control(last) == ("caught-up", {"cut": CUT}), "there is nothing to send"
    assert peer.received == CUT and peer.phase is Phase.CLOSING and peer.plan is not None and peer.plan.cut == CUT
    assert primary.events == [("catchup_begin", {"peer": "b", "last_pos": CUT, "attrs": {"queues": 0}})]


def test_a_slice_that_was_acknowledged_makes_room() -> None:
    primary, peer, link = copying(Plan(under_way=2))
    primary.arrivals.on_credit(peer, 0, b"")
    assert peer.plan is not None and peer.plan.under_way == 1 and peer.phase is Phase.COPYING and link.frames == []
    primary.arrivals.on_credit(peer, 0, b"")
    assert link.said() == [("caught-up", {"cut": CUT})]
    assert peer.phase is Phase.CLOSING
    with pytest.raises(LinkError, match="was not sent"):
        primary.arrivals.on_credit(peer, 0, b"")
    with pytest.raises(LinkError, match="was not sent"):
        primary.arrivals.on_credit(primary.peer(Phase.COPYING)[0], 0, b"")


def test_what_has_more_to_send_goes_on_in_a_later_turn() -> None:
    primary, peer, link = copying(Plan(turns=1))
    primary.arrivals.pump(peer)
    ((seconds, call),) = primary.later
    assert seconds == 0.0 and link.frames == []
    call()
    assert link.said() == [("caught-up", {"cut": CUT})]


def test_it_is_not_caught_up_while_anything_is_left() -> None:
    primary, peer, link = copying(Plan(done=False))
    primary.arrivals.pump(peer)
    assert link.frames == [] and primary.later == [] and peer.phase is Phase.COPYING


@pytest.mark.parametrize("why", ["stopped", "no link", "no plan", "phase"])
def test_nothing_is_sent_after_the_end(why: str) -> None:
    primary, peer, link = copying(Plan(turns=1), Phase.CLOSING if why == "phase" else Phase.COPYING)
    primary.stopped = why == "stopped"
    if why == "no link":
        peer.link = None
    if why == "no plan":
        peer.plan = None
    primary.arrivals.pump(peer)
    assert link.frames == [] and primary.later == []


def test_a_backup_that_has_all_is_complete() -> None:
    primary, peer, _ = copying(Plan(), Phase.CLOSING)
    peer.received = CUT + 1
    primary.control(peer, "complete")
    assert (peer.phase, peer.plan, peer.target, peer.completed_at) == (Phase.COMPLETE, None, SEALED, 4.0)
    assert primary.called() == [("complete_to", peer, CUT + 1)]
    attrs = {"slices": 3, "octets": 99, "seconds": 3.0}
    assert primary.events == [("catchup_end", {"peer": "b", "last_pos": CUT, "attrs": attrs})]


# ---- limits


def test_a_backup_says_that_it_is_at_a_limit() -> None:
    primary = Primary()
    told: list[tuple[Peer, str]] = []
    primary.throttle = SimpleNamespace(set_limited=lambda peer, reason: told.append((peer, reason)))  # type: ignore[attr-defined]
    peer, _ = primary.peer(Phase.HELD)
    for reason in ("memory: full", ""):
        primary.control(peer, "limited", reason=reason)
    assert told == [(peer, "memory: full"), (peer, "")]
    for fields in ({}, {"reason": 5}, {"reason": None}):
        with pytest.raises(LinkError, match=r"field reason: found .*, expected str"):
            primary.control(peer, "limited", **fields)


def test_what_has_not_said_hello_stops_no_publishers() -> None:
    primary = Primary()
    peer, _ = primary.peer()
    with pytest.raises(LinkError, match="control limited in phase hello"):
        primary.control(peer, "limited", reason="memory: full")
    assert primary.called() == []
