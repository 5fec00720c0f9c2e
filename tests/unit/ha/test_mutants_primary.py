"""The primary role at the edges: what a small mistake in `primary.py` would change, from its begin to confirms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.clock_readings import encode
from ha.model.membership import InSync, Member
from ha.model.protocol import Kind
from ha.model.status import State
from ha.primary.peer import Phase
from ha.primary.primary import Primary
from ha.promotion.claims import Claim
from qpidd_py.errors import LinkError
from tests.unit.ha.led_primary import END, HIGH, LOW, A, B, C, D, Led
from tests.unit.ha.world import World


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
        done = [each for each in led.done() if each[0] != "event"]
        assert (done, led.role.frozen) == ([("advance_safe", END)], False)


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
