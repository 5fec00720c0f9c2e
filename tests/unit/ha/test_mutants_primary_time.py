"""The primary role at the edges: what a small mistake in `primary.py` would change, with time and for others."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.clock_readings import encode
from ha.model.logins import DIGEST, MOST, decode_logins
from ha.model.membership import Member
from ha.model.position import make
from ha.model.protocol import Kind
from ha.model.status import State
from ha.model.view import Survey, View
from ha.primary.peer import Phase
from ha.promotion.score import DOUBT
from qpidd_py.errors import InvariantError
from tests.unit.ha.led_primary import BEAT, END, SET, Call, D, Led


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
        done = led.done()
        assert (("resumed",) in done, led.role.frozen) == (resumed, resumed)
        assert any(call[:2] == ("event", "resumed") for call in done) == resumed

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
