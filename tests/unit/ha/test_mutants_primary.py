"""The primary role at the edges: what a small mistake in `primary.py` would change.  Its parts, the engine and the
environment are doubles that note what they are told."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.clock_readings import encode
from ha.model.local_member import LocalMember
from ha.model.logins import DIGEST, MOST, decode_logins
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.protocol import Kind
from ha.model.pulse import Pulse
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.model.view import Survey, View
from ha.primary.peer import Peer, Phase
from ha.primary.primary import Primary
from ha.promotion.claims import Claim
from ha.promotion.score import DOUBT
from qpidd_py.errors import InvariantError, LinkError
from tests.unit.ha.world import World

A, B, C, D = (Member(f"id-{name}", name, f"{name}:1", "first") for name in "abcd")
SET = InSync(2, "id-a", 3, (A, B, C))
END, HIGH, LOW = make(2, 50), 1000, 500
BEAT = 1.0
Call = tuple[Any, ...]


class Double:
    """Has these attributes; a link is a key."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Led:
    """Broker a leads epoch 2, with b and c in sync and linked."""

    def __init__(self, **settings: Any) -> None:
        self.calls: list[Call] = []
        self.logs: list[str] = []
        self.time = 100.0
        self.late: set[str] = set()
        env: Any = SimpleNamespace(now=lambda: self.time, wall=lambda: 7_000)
        env.log = lambda level, text: self.logs.append(text)
        env.after = self._noting("after")
        env.event = lambda kind, **fields: self.calls.append(("event", kind, fields.get("last_pos")))
        engine: Any = self._double("advance_safe hold_inherited throttle log", position=END, safe=0)
        engine.flush = self._flush
        self.engine = engine
        given: dict[str, Any] = {
            "safety": "quorum",
            "heartbeat": BEAT,
            "backlog_high": HIGH,
            "backlog_low": LOW,
        } | settings
        options = NodeSettings(name="a", address="a:1", brokers=("a:1", "b:1", "c:1"), **given)
        anything: Any = SimpleNamespace(on_throttle=lambda reason: None)
        self.local = LocalMember(options, engine, anything, env, HaState("id-a", 2, "id-a", SET), "first")
        self.local.state = State.ACTIVE
        journal: Any = SimpleNamespace(position=END, complete=True)
        watch: Any = SimpleNamespace(overdue=False)
        self.local.journal, self.local.journal_watch = journal, watch
        self.claim = Claim(2, InSync(1, "id-c", 2, (A, B, C)), (A, B, C))
        self.role: Any = Primary(self.local, self.claim, self._noting("depose"))
        self.links: dict[str, Any] = {}
        self.peers = {member.name: self.peer(member) for member in (B, C)}
        self._replace_parts()

    def _replace_parts(self) -> None:
        role = self.role
        role._losses = self._double("stop resumed lost back expect suspect watch")
        role._lags = self._double("sealed tick", delay=lambda position: END - position)
        isolation = SimpleNamespace(seconds=0.0, reason="cut off")
        stall = SimpleNamespace(shown=lambda: {"now": self.time}, seconds=0.0)
        role._observer = self._double("look", isolation=isolation, stall=stall)
        role._removals = self._double("stop tick")
        role._failing = self._double("broke look", is_due=lambda peer, now: now == 0.0, fails=lambda id: id == "id-d")
        role._failing.refusal = lambda id, now: f"failing {now}" if id == "id-b" else ""
        role._slow = self._double("look")
        role._slow.refusal = lambda id, now: f"slow {now}" if id == "id-c" else ""
        role._late = self._double("look", out=lambda id: id in self.late, remaining=lambda id: f"late {id}")
        role._arrivals = self._double("control left pump")
        record = self._double("watch")
        counting = list(self.peers.values())
        roster = self._double("stop remove enlist release keep_place begin", record=record, counting=counting)
        roster.ready = lambda: counting
        roster.find = lambda id: next((peer for peer in counting if peer.id == id), None)
        roster.may_confirm, roster.recovered, roster.removing, roster.expected = True, True, 0, {}
        role.roster = roster

    def peer(self, member: Member, phase: Phase = Phase.COMPLETE) -> Peer:
        name = member.name
        link: Any = self._double("close send_batch send_frame", backlog=0, received=0, sent=0)
        link.close = lambda: self.calls.append(("close", name))
        link.send_batch = lambda batch: self.calls.append(("send", name, batch))
        link.send_frame = lambda *it: self.calls.append(("frame", name, *it))
        peer = Peer(member, Pulse(self.time, self.time), link=link, phase=phase, acked=END, received=END - 9)
        self.links[name] = link
        self.role._links[link] = peer
        self.role._live.append(link)
        return peer

    def _flush(self) -> int:
        self.calls.append(("flush",))
        return int(self.engine.position)

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.calls.append((name, *given, *named.values()))

    def _double(self, names: str, **values: Any) -> Any:
        return Double(**{name: self._noting(name) for name in names.split()}, **values)

    def done(self, *names: str) -> list[Call]:
        found, self.calls = self.calls, []
        return [call for call in found if not names or call[0] in names]


class TestBeginAndEnd:
    def test_as_it_was_made(self) -> None:
        led = Led()
        depose: Any = object()
        role: Any = Primary(led.local, led.claim, depose)
        assert (role.frozen, role.stopped, role.depose, role.position, role.sealed) == (False, False, depose, END, END)
        assert set(role.roster.expected) == {"id-b", "id-c"}
        assert (role.primary_address, role._looked, role._last_tick) == ("a:1", led.time, led.time)

    @pytest.mark.parametrize("expected", [{}, {"id-b": B}])
    def test_it_waits_for_the_expected(self, expected: dict[str, Member]) -> None:
        led = Led(backup_timeout=4.0)
        led.role.roster.expected = expected
        led.role.start()
        waits = [("after", 4.0, led.role._backup_timeout)] if expected else []
        assert led.done() == [("begin", led.claim, END), ("hold_inherited", END), *waits]

    def test_what_all_have_is_inherited(self) -> None:
        led = Led()
        led.peers["b"].acked = END - 5
        led.role._hold_inherited()
        led.role.roster.counting.remove(led.peers["c"])  # the leader before
        led.role._hold_inherited()
        led.role.roster.counting.remove(led.peers["b"])
        led.role._hold_inherited()
        led.role._claim = Claim(2, InSync(1, "id-c", 2, (A, C)), (A,))
        led.role._hold_inherited()
        held = [END - 5, END - 5, 0, 0]
        assert led.done() == [("hold_inherited", position) for position in held]

    def test_it_stops(self) -> None:
        led = Led()
        led.role.throttle.set_slow("slow")
        led.done()
        led.role.stop()
        assert [call for call in led.done() if call[0] != "throttle"] == [
            *[("stop",)] * 3,
            ("close", "b"),
            ("close", "c"),
        ]
        assert (led.role.frozen, led.role.stopped, led.role._links, led.role._live) == (True, True, {}, [])
        assert led.role.throttle.slow == ""
        led.role.durable()
        led.role.unfreeze()
        assert (led.done(), led.role.frozen) == ([], True)

    def test_with_its_real_parts_it_goes_on(self) -> None:
        world = World(maintenance=0.5)
        world.cluster()
        world.run(2.0)
        assert [world[name].state for name in "abc"] == [State.ACTIVE, State.READY, State.READY]
        world["c"].kill()
        world.run(10.0)
        assert world["a"].node.local.persisted.in_sync.ids == {"id-a", "id-b"}
        role: Any = world["a"].node.role
        role.stop()


class TestSafe:
    @pytest.mark.parametrize(
        ("acked", "durable", "safe", "advanced"),
        [(END, END, 0, END), (END - 5, END, 0, END - 5), (END, END - 5, 0, END - 5), (END, END, END, None)],
    )
    def test_what_all_have(self, acked: int, durable: int, safe: int, advanced: int | None) -> None:
        led = Led()
        led.peers["b"].acked, led.local.journal.position, led.engine.safe = acked, durable, safe  # type: ignore[misc]
        led.role.durable()
        assert led.done() == ([] if advanced is None else [("advance_safe", advanced)])

    @pytest.mark.parametrize("why", ["frozen", "few", "journal"])
    def test_nothing_is_safe_while(self, why: str) -> None:
        led = Led()
        led.role.frozen = why == "frozen"
        led.role.roster.may_confirm = why != "few"
        journal: Any = led.local.journal
        journal.complete = why != "journal"
        led.role.update_safe()
        assert led.done() == []

    def test_what_is_unfrozen_is_safe(self) -> None:
        led = Led()
        led.role.unfreeze()
        assert led.done() == []
        led.role.frozen = True
        led.role.unfreeze()
        assert (led.done(), led.role.frozen) == ([("advance_safe", END)], False)


class TestBatches:
    def batch(self, led: Led, last: int = END + 1) -> Any:
        batch: Any = SimpleNamespace(last=last)
        led.role.batch(batch)
        return batch

    def test_goes_to_all(self) -> None:
        led = Led()
        batch = self.batch(led)
        assert led.role.sealed == END + 1
        sent = [("send", "b", batch), ("send", "c", batch)]
        assert led.done() == [("sealed", led.time, batch), *sent, ("advance_safe", END)]

    @pytest.mark.parametrize(("over", "resumed"), [(0.0, False), (0.01, True)])
    def test_after_a_pause_nothing_is_confirmed(self, over: float, resumed: bool) -> None:
        led = Led()
        led.time += led.local.settings.dead_after + over
        self.batch(led)
        assert (("resumed",) in led.done(), led.role.frozen) == (resumed, resumed)
        assert led.role._last_tick == (led.time if resumed else 100.0)
        pause = led.local.settings.dead_after + over
        assert led.logs == [f"this process did not run for {pause:.3f} s"] * resumed
        assert (led.peers["b"].pulse.heard == led.time) is resumed

    @pytest.mark.parametrize(
        ("backlog", "late", "slow"),
        [(HIGH, False, ""), (HIGH + 1, False, "backup c is slow: 0 MiB wait for it"), (HIGH + 1, True, "")],
    )
    def test_a_slow_backup_stops_the_publishers(self, backlog: int, late: bool, slow: str) -> None:
        led = Led()
        led.links["c"].backlog = backlog
        led.late = {"id-c"} if late else set()
        self.batch(led)
        assert led.role.throttle.slow == slow

    @pytest.mark.parametrize(
        ("backlog", "late", "waits"), [(LOW, False, True), (LOW - 1, False, False), (LOW + 9, True, False)]
    )
    def test_until_it_has_caught_up(self, backlog: int, late: bool, waits: bool) -> None:
        led = Led()
        led.role.throttle.set_slow("slow")
        led.links["c"].backlog = backlog
        led.late = {"id-c"} if late else set()
        led.role.update_safe()
        assert led.role.throttle.slow == ("slow" if waits else "")

    def test_the_first_reason_stays(self) -> None:
        led = Led()
        led.links["b"].backlog, led.links["c"].backlog = 2 << 20, 9 << 20
        self.batch(led)
        assert led.role.throttle.slow == "backup b is slow: 2 MiB wait for it"
        self.batch(led)
        assert led.role.throttle.slow == "backup b is slow: 2 MiB wait for it"


class TestAcknowledgements:
    @pytest.mark.parametrize(
        ("position", "fault"), [(END, False), (END + 1, True), (END - 9, False), (END - 10, True), (END - 3, False)]
    )
    def test_of_what_was_sent_and_never_back(self, position: int, fault: bool) -> None:
        led = Led()
        peer = led.peers["b"]
        if fault:
            with pytest.raises(LinkError, match="acknowledges"):
                led.role._on_ack(peer, position, b"")
            return
        led.role._on_ack(peer, position, b"")
        assert (peer.received, peer.acked, peer.reported) == (position, END, True)

    def test_who_is_not_complete_counts_for_nothing(self) -> None:
        led = Led()
        peer = led.peers["b"]
        peer.phase = Phase.COPYING
        led.role._on_ack(peer, END, b"")
        assert (peer.received, peer.reported, led.done()) == (END, False, [])

    @pytest.mark.parametrize(
        ("target", "late", "enlisted"),
        [(0, False, False), (END, False, True), (END + 1, False, False), (END, True, False)],
    )
    def test_who_has_the_end_is_listed(self, target: int, late: bool, enlisted: bool) -> None:
        led = Led()
        peer = led.peers["b"]
        peer.target, peer.acked = target, END - 9
        led.late = {"id-b"} if late else set()
        led.role.complete_to(peer, END)
        assert led.done() == [("enlist", peer)] * enlisted + [("advance_safe", END)]
        assert peer.acked == END

    def test_a_removal_may_be_over(self) -> None:
        led = Led()
        led.role.roster.removing = 7
        led.role.complete_to(led.peers["b"], END)
        assert led.done() == [("release",), ("advance_safe", END)]

    @pytest.mark.parametrize(("phase", "noted"), [(Phase.HELLO, False), (Phase.COPYING, True)])
    def test_clocks_are_noted(self, phase: Phase, noted: bool) -> None:
        led = Led()
        led.peers["b"].phase = phase
        led.role._on_heartbeat(led.peers["b"], 0, encode(5_000))
        assert led.done() == [("event", "clock", None)] * noted


class TestFrames:
    def test_to_the_handlers(self) -> None:
        led = Led()
        other: Any = object()
        led.role.frame(other, Kind.ACK, END, b"")
        led.role.frame(led.links["b"], Kind.ACK, END, b"")
        assert led.peers["b"].received == END
        with pytest.raises(LinkError, match="frame of kind 4 from a backup"):
            led.role.frame(led.links["b"], Kind.SLICE, END, b"")

    def test_a_link_begins(self) -> None:
        led = Led()
        link: Any = object()
        led.role.accepted(link, {})
        peer = led.role._links[link]
        assert (peer.link, peer.phase, peer.started, peer.pulse.heard, peer.pulse.spoken) == (
            link,
            Phase.HELLO,
            *[led.time] * 3,
        )

    def test_who_may_not_connect_yet(self) -> None:
        led = Led()
        assert [led.role.refusal(led.peers[name]) for name in "bc"] == ["failing 100.0", "slow 100.0"]
        led.role.completed(led.peers["b"])
        assert led.peers["b"].completed_at == led.time
        led.peers["b"].member = D
        assert led.role.refusal(led.peers["b"]) == ""

    def test_another_process_with_the_same_id(self) -> None:
        led = Led()
        peer = led.peers["b"]
        twin = Member("id-b", "b", "b:1", "second")
        assert led.role.elsewhere(peer, B) is None
        assert led.role.elsewhere(peer, twin) is None
        another = led.peer(twin)
        assert led.role.elsewhere(another, twin) is peer
        assert led.role.elsewhere(another, B) is None
        assert led.role.elsewhere(another, D) is None


class TestTakingAPlace:
    def test_an_old_link_is_closed(self) -> None:
        led = Led()
        again = led.peer(B, Phase.HELLO)
        old = led.peers["b"]
        led.role.take_place(again, END)
        assert led.done("close") == [("close", "b")]
        assert (old.link, again.link is not None, led.peers["c"].link is not None) == (None, True, True)

    def test_who_has_none(self) -> None:
        led = Led()
        peer = led.peer(D, Phase.HELLO)
        peer.whole = True
        led.role.take_place(peer, END)
        assert (led.done(), peer.whole) == ([], True)

    @pytest.mark.parametrize(
        ("instance", "reported", "position", "whole"),
        [
            ("first", True, END, True),
            ("first", True, END - 1, False),
            ("first", False, END - 1, True),
            ("second", True, END, False),
            ("second", False, END, False),
        ],
    )
    def test_whole_is_who_holds_what_was_acknowledged(
        self, instance: str, reported: bool, position: int, whole: bool
    ) -> None:
        led = Led()
        old = led.peers["b"]
        old.reported = reported
        peer = led.peer(Member("id-b", "b", "b:1", instance), Phase.HELLO)
        peer.whole = True
        led.role.take_place(peer, position)
        assert peer.whole is whole
        kept = [("keep_place", peer, old)] if whole else [("remove", [old])]
        assert led.done("back", "keep_place", "remove") == [("back", "id-b"), *kept]

    @pytest.mark.parametrize(
        ("whole", "expected", "removed"), [(True, True, False), (True, False, True), (False, True, True)]
    )
    def test_a_later_run_with_the_same_content(self, whole: bool, expected: bool, removed: bool) -> None:
        led = Led()
        led.role.roster.expected = {"id-b": B} if expected else {}
        peer = led.peer(Member("id-b", "b", "b:1", "second", ("first",)), Phase.HELLO)
        peer.whole = whole
        led.role.take_place(peer, END)
        assert led.done("keep_place", "remove") == [("remove", [led.peers["b"]])] * removed

    def test_a_set_that_must_not_get_smaller_keeps_its_place(self) -> None:
        led = Led()
        led.local.persisted = HaState("id-a", 2, "id-a", InSync(2, "id-a", 3, (A, B)))
        led.role.take_place(led.peer(B, Phase.HELLO), END)
        assert led.done("keep_place", "remove") == []

    def test_from_its_cut_on_it_gets_the_log(self) -> None:
        led = Led()
        link: Any = object()
        assert led.role.go_live(link) == END
        assert (link in led.role._live, led.done()) == (True, [("flush",)])
        assert (led.role.seal(), led.done()) == (END, [("flush",)])


class TestLosing:
    def test_who_was_lost_while_it_was_listed(self) -> None:
        led = Led()
        led.role.listed(led.peers["b"])
        assert led.done() == []
        led.peers["b"].link = None
        led.role.listed(led.peers["b"])
        assert led.done() == [("lost", led.peers["b"])]

    def test_who_stays_lost(self) -> None:
        led = Led()
        peer, gone = led.peers["b"], Peer(D, Pulse(0.0, 0.0), dropped=True)
        peer.dropped = True
        led.role.kept(peer)
        led.role.kept(gone)
        assert (peer.dropped, gone.dropped, led.done()) == (False, True, [("lost", gone)])

    @pytest.mark.parametrize(("dropped", "due"), [(False, False), (True, False), (False, True)])
    def test_a_link_is_closed(self, dropped: bool, due: bool) -> None:
        led = Led()
        led.role._failing.is_due = lambda peer, now: due and now == led.time
        peer = led.peers["b"]
        peer.dropped = dropped
        led.role.closed(led.links["b"], "reset", True)
        assert led.done() == [
            ("broke", peer, led.time),
            ("left", peer),
            ("event", "backup_lost", END),
            ("lost", peer, True),
        ]
        assert (peer.link, peer.phase, peer.plan, peer.dropped) == (None, Phase.AWAY, None, dropped or due)
        assert peer.lost_at == led.time
        assert (list(led.role._links), led.role._live) == ([led.links["c"]], [led.links["c"]])
        led.role.closed(led.links["b"], "reset")
        assert led.done() == []

    def test_one_that_has_not_said_who_it_is(self) -> None:
        led = Led()
        peer = led.peer(Member(""))
        led.role._live.pop()
        led.role.closed(peer.link, "reset")
        assert led.done() == [("broke", peer, led.time), ("left", peer)]

    def test_one_that_is_linked_again(self) -> None:
        led = Led()
        another = led.peer(B)
        led.role.closed(another.link, "reset")
        assert led.done("lost") == []

    def test_who_was_limited_holds_up_nobody_any_more(self) -> None:
        led = Led()
        led.role.throttle.set_limited(led.peers["b"], "no memory")
        assert led.role.throttle.reason
        led.role.closed(led.links["b"], "reset")
        assert led.role.throttle.reason == ""
        peer = led.peers["b"]
        led.done()
        led.role._forget_link(peer)
        assert led.done() == [("left", peer)]

    def test_a_link_that_was_cleared_already(self) -> None:
        led = Led()
        led.role._links.clear()
        led.role._forget_link(led.peers["b"])
        assert led.peers["b"].phase is Phase.AWAY

    def test_a_slow_one_is_dropped(self) -> None:
        led = Led()
        led.role._drop_slow(led.peers["b"], "slow")
        assert led.done("close", "event") == [("close", "b"), ("event", "backup_lost", END)]

    def test_a_late_one_leaves_and_comes_back(self) -> None:
        led = Led()
        peer = led.peers["b"]
        assert led.role.delay(peer) == 9
        led.role.suspect_late(3.0)
        led.role.leave(peer, 4.0)
        assert led.done() == [("expect", 3.0), ("lost", peer, 4.0)]
        assert (peer.dropped, peer.lost_at) == (True, led.time)
        led.role.come_back(peer)
        assert (peer.dropped, peer.target, led.done()) == (False, 0, [("back", "id-b")])
        led.local.persisted = HaState("id-a", 2, "id-a", InSync(2, "id-a", 4, (A, C)))
        peer.received = END
        led.role.come_back(peer)
        assert led.done("flush", "enlist") == [("flush",), ("enlist", peer)]
        assert peer.target == END

    def test_strangers_are_dismissed(self) -> None:
        led = Led()
        strangers = [led.peer(D), led.peer(Member(""))]
        led.role.dismiss_strangers({"id-b"})
        reason = "it is no longer a member of the cluster"
        assert led.done() == [("control", strangers[0], "refused", reason), ("close", "d"), ("left", strangers[0])]
        strangers = [led.peer(D)]
        led.role.dismiss_strangers({"id-b", "id-d"})
        assert led.done() == []

    def test_who_has_not_come_in_time_is_lost(self) -> None:
        led = Led()
        peer = led.peers["b"]
        peer.link = led.peers["c"].link = None
        led.role.roster.expected = {"id-b": B}
        led.role._backup_timeout()
        assert led.done() == [("lost", peer)]
        peer.link = led.links["b"]
        led.role._backup_timeout()
        peer.link, led.role.stopped = None, True
        led.role._backup_timeout()
        assert led.done() == []

    @pytest.mark.parametrize(
        ("recovered", "state", "after"),
        [
            (True, State.RECOVERING, State.ACTIVE),
            (False, State.RECOVERING, State.RECOVERING),
            (True, State.ACTIVE, State.ACTIVE),
            (True, State.JOINING, State.JOINING),
        ],
    )
    def test_it_becomes_active(self, recovered: bool, state: State, after: State) -> None:
        led = Led()
        led.role.roster.recovered, led.local.state = recovered, state
        led.role.check_active()
        assert led.local.state is after
        assert led.done() == [("event", "state", END)] * (state is not after)


class TestTime:
    def test_a_tick(self) -> None:
        led = Led(maintenance=5.0)
        live = list(led.peers.values())
        led.peers["c"].phase = Phase.COPYING
        led.time += 0.25
        led.role.tick()
        found = led.done()
        assert [call[0] for call in found if call[0] in ("tick", "look", "watch", "pump", "advance_safe")] == [
            *("tick", "look", "look", "look", "pump", "look", "pump", "advance_safe", "look", "tick"),
        ]
        looks = [call[1:] for call in found if call[0] == "look"]
        assert looks[0] == (live, [live[0]], 0, led.time)
        assert looks[1:] == [(live, led.time), (live[0],), (live[1],), (led.time,)]
        assert list(next(call for call in found if call[0] == "tick")[2]) == live
        assert led.role._last_tick == led.time

    @pytest.mark.parametrize(("over", "resumed"), [(0.0, False), (0.01, True)])
    def test_after_a_pause(self, over: float, resumed: bool) -> None:
        led = Led()
        led.time += led.local.settings.dead_after + over
        for name in "bc":
            led.links[name].received = 9
        led.role.tick()
        assert (("resumed",) in led.done(), led.role.frozen) == (resumed, resumed)

    def test_others_are_surveyed_regularly(self) -> None:
        led = Led(maintenance=5.0)
        seen = []
        for seconds in (1.0, 4.0, 1.0, 4.0):
            led.time += seconds
            led.role._last_tick = led.time
            for number, link in enumerate(led.links.values()):
                link.received = led.time + number
            led.role.tick()
            seen.append(len(led.done("watch")))
        assert seen == [0, 2, 0, 2]

    def tick(self, led: Led, name: str = "b") -> list[Call]:
        led.done()
        led.role._tick_link(led.links[name], led.peers[name], led.time)
        return led.done()

    def test_a_silent_backup_is_suspected_and_then_lost(self) -> None:
        led = Led()
        peer = led.peers["b"]
        led.time += BEAT
        assert ("suspect", peer) not in self.tick(led)
        led.time += 0.01
        assert ("suspect", peer) in self.tick(led)
        led.role.roster.counting.remove(peer)
        assert ("suspect", peer) not in self.tick(led)
        led.role.roster.counting.append(peer)
        led.time = 100.0 + led.local.settings.dead_after
        assert ("close", "b") not in self.tick(led)
        led.time += 0.01
        found = self.tick(led)
        assert found[0] == ("close", "b")
        assert found[-1] == ("lost", peer, True)
        assert ("pump", peer) not in found

    @pytest.mark.parametrize(("seconds", "sent", "spoken"), [(0.49, 0, 0), (0.5, 0, 1), (0.5, 1, 0), (1.0, 1, 1)])
    def test_it_speaks_when_nothing_was_sent_for_half_a_heartbeat(self, seconds: float, sent: int, spoken: int) -> None:
        led = Led()
        self.tick(led)
        led.time += seconds
        led.links["b"].sent, led.links["b"].received = sent, 1
        assert len([call for call in self.tick(led) if call[0] == "frame"]) == spoken

    def test_a_heartbeat_says_how_far_the_log_was_sent(self) -> None:
        led = Led()
        led.role.heartbeat(led.links["b"], led.peers["b"])
        led.role._live.remove(led.links["b"])
        led.role.heartbeat(led.links["b"], led.peers["b"])
        assert led.done() == [("frame", "b", Kind.HEARTBEAT, position, encode(7_000)) for position in (END, 0)]

    def test_backups_learn_which_passwords_are_right(self) -> None:
        led = Led()
        peer, digests = led.peers["b"], {"guest": b"1" * DIGEST}
        asked: list[Call] = []

        def news(told: Any, most: int) -> Any:
            asked.append((told, most))
            return (3, 4), digests if told == (0, 0) else {}

        self.tick(led)
        peer.takes_logins = True
        self.tick(led)
        logins: Any = SimpleNamespace(news=news)
        led.local.logins = logins
        found = [call for call in self.tick(led) if call[2:3] == (Kind.LOGINS,)]
        assert [(*call[:4], decode_logins(call[4])) for call in found] == [("frame", "b", Kind.LOGINS, 0, digests)]
        assert not [call for call in self.tick(led) if call[2:3] == (Kind.LOGINS,)]
        assert asked == [((0, 0), MOST), ((3, 4), MOST)]
        peer.takes_logins, peer.told = False, (0, 0)
        self.tick(led)
        assert len(asked) == 2


class TestRivals:
    def view(self, epoch: int, leader: str, state: State = State.READY, primary: str = "d:1", name: str = "b") -> View:
        return View(f"id-{name}", name, f"{name}:1", state, epoch, leader, END, True, SET, primary)

    @pytest.mark.parametrize(
        ("views", "deposed"),
        [
            ([], None),
            ([(2, "id-a")], None),
            ([(1, "id-z")], None),
            ([(2, "id-b")], ((2, "id-b"), "b has seen epoch 2", "d:1")),
            ([(3, "id-b", State.ACTIVE)], ((3, "id-b"), "b has seen epoch 3", "b:1")),
            ([(1, "id-c"), (4, "id-d"), (3, "id-b")], ((4, "id-d"), "b has seen epoch 4", "d:1")),
        ],
    )
    def test_a_higher_ballot_ends_it(self, views: list[Any], deposed: Call | None) -> None:
        led = Led()
        found = led.role.learn(Survey(tuple(self.view(*view) for view in views), {}))
        assert found is (deposed is not None)
        assert led.done() == ([("depose", *deposed)] if deposed else [])

    def test_its_invariants(self) -> None:
        led = Led()
        led.role._check_invariants()
        led.local.state = State.JOINING
        with pytest.raises(InvariantError, match="primary role in state joining"):
            led.role.tick()
        led.local.state, led.engine.position = State.ACTIVE, make(1, 50)
        with pytest.raises(InvariantError, match="log in epoch 1, voted for 2"):
            led.role.tick()
        led.engine.position = END
        led.role.roster.counting.remove(led.peers["b"])
        with pytest.raises(InvariantError, match=r"in-sync but not counted: \['id-b'\]"):
            led.role.tick()


class TestWhatOthersSee:
    def test_who_is_linked(self) -> None:
        led = Led()
        led.peer(D)
        led.peer(Member("id-e", "e", "e:1"), Phase.HELLO)
        assert led.role.linked(["b:1", "d:1", "e:1"]) == 1
        assert led.role.linked(["b:1", "c:1"]) == 2
        assert (led.role.ready(), led.role.isolation, led.role.stall()) == (
            list(led.peers.values()),
            "cut off",
            {"now": led.time},
        )

    def test_its_members(self) -> None:
        led = Led()
        led.role.roster.shown = lambda peers, lags: [{"id": peer.id, "lags": lags is led.role._lags} for peer in peers]
        assert led.role.members() == [{"id": f"id-{name}", "lags": True, "late": f"late id-{name}"} for name in "bc"]

    def test_its_patience_with_its_own_disk(self) -> None:
        led = Led()
        assert led.role.patience == 2.0
        led.role.roster.ready = list
        assert led.role.patience == math.inf

    @pytest.mark.parametrize(
        ("overdue", "acked", "replaceable"),
        [
            (True, (END + 1, END), True),
            (True, (END, END), False),
            (False, (END + 1, END + 1), False),
            (True, (END, END + 1), True),
        ],
    )
    def test_others_could_do_better(self, overdue: bool, acked: tuple[int, int], replaceable: bool) -> None:
        led = Led()
        watch: Any = led.local.journal_watch
        watch.overdue = overdue
        led.peers["b"].acked, led.peers["c"].acked = acked
        assert led.role.outlook.replaceable is replaceable

    @pytest.mark.parametrize(
        ("seconds", "registry", "ready", "unable"),
        [
            (DOUBT, False, True, True),
            (DOUBT, True, False, True),
            (DOUBT, False, False, True),
            (DOUBT, True, True, False),
            (DOUBT - 0.01, False, False, False),
        ],
    )
    def test_one_that_is_cut_off_is_unable(self, seconds: float, registry: bool, ready: bool, unable: bool) -> None:
        led = Led(safety="manager", registry=registry)
        led.role._observer.isolation.seconds = seconds
        led.role.roster.ready = lambda: list(led.peers.values()) if ready else []
        assert bool(led.role.outlook.unable) is unable

    @pytest.mark.parametrize(
        ("seconds", "safety", "hole", "not_stored", "unable"),
        [
            (DOUBT, "quorum", "a page", "", True),
            (DOUBT, "availability", "a page", "", True),
            (DOUBT, "quorum", "", "full", True),
            (DOUBT, "manager", "", "full", False),
            (DOUBT, "quorum", "", "", False),
            (DOUBT - 0.01, "quorum", "a page", "full", False),
        ],
    )
    def test_one_whose_confirms_wait_for_ever_is_unable(
        self, seconds: float, safety: str, hole: str, not_stored: str, unable: bool
    ) -> None:
        led = Led(safety=safety)
        led.role._observer.stall.seconds = seconds
        led.local.hole, led.role.roster.record.not_stored = hole, not_stored
        assert bool(led.role.outlook.unable) is unable
