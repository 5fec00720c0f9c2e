"""The primary role at the edges: what a small mistake in `primary.py` would change, when backups come and go."""

from __future__ import annotations

from typing import Any

import pytest

from ha.model.membership import HaState, InSync, Member
from ha.model.pulse import Pulse
from ha.model.status import State
from ha.primary.peer import Peer, Phase
from tests.unit.ha.led_primary import END, A, B, C, D, Led


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
        assert led.done() == [("has_waited", "id-b")]
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
