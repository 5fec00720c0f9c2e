"""The backup's side of joining: when all is taken over, and when the link ends before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ha.backup.joining import JoinStep
from ha.backup.staging import PAUSE, UNWRITTEN
from ha.model.difference import Lineage, Origin, lineage_to_json
from ha.model.environment import StateNotStored
from ha.model.position import make
from ha.model.protocol import KEYS, Kind, encode_held
from qpidd_py.core import decode_ids, encode_ids
from qpidd_py.errors import LinkError
from tests.unit.ha.joining_lab import (
    APPLIED,
    CONTROL,
    CUT,
    LIVE,
    MINE,
    PRIMARYS,
    Backup,
    C,
    Queue,
    caught_up,
    greeted,
    send_all,
)

# ---- joined -----------------------------------------------------------------------------------------------------


def test_we_are_complete_when_a_restart_would_not_change_that() -> None:
    backup = caught_up(complete=False)
    assert "joined" not in backup.names() and backup.joining.step is JoinStep.STORING
    backup.joining.on_batches(LIVE)
    backup.joining.acknowledge()
    assert backup.names() == [], "nothing is acknowledged that is not on disk"
    backup.journal.complete, backup.journal.position, backup.time = True, LIVE - 1, 6.5
    backup.joining.acknowledge()
    joined, complete, event, ack = backup.done()
    assert joined == ("joined", LIVE) and complete == (*CONTROL, "complete", {})
    assert event == ("catchup_end", {"peer": str(C), "last_pos": CUT, "attrs": {"slices": 0, "seconds": 2.5}})
    assert ack == ("send", Kind.ACK, LIVE - 1, b"")


def test_each_position_is_acknowledged_once_and_never_before_it_is_on_disk() -> None:
    backup = caught_up()
    backup.done()
    backup.journal.position = CUT
    backup.joining.acknowledge()
    backup.joining.on_batches(LIVE)
    backup.joining.acknowledge()
    assert backup.done() == [("send", Kind.ACK, CUT, b"")]
    backup.journal.position = make(3, 500)
    backup.joining.acknowledge()
    assert backup.done() == [("send", Kind.ACK, LIVE, b"")]


def test_a_set_that_is_not_stored_costs_the_link_and_nothing_is_complete() -> None:
    backup = greeted()
    backup.fails["joined"] = StateNotStored("full")
    backup.joining.on_control("caught-up", {})
    assert backup.names()[-3:] == ["joined", "close", "lost"]


# ---- the link ends ----------------------------------------------------------------------------------------------


def test_a_difference_that_has_not_come_as_a_whole_is_discarded() -> None:
    backup = greeted()
    send_all(backup)
    backup.done()
    assert backup.joining.end() is False and backup.names() == []
    assert backup.local.lineage == MINE


def test_one_that_has_come_as_a_whole_is_applied_when_the_link_ends() -> None:
    backup = greeted()
    send_all(backup)
    backup.done()
    backup.journal.waiting = UNWRITTEN + 1
    backup.joining.on_control("caught-up", {})
    assert backup.joining.end() is True
    names = backup.names()
    assert names == ["differ", *APPLIED, "begin_again"] and backup.local.lineage == PRIMARYS
    backup.journal.waiting = 0
    backup.run_later()
    assert backup.names() == [], "it is over"


@pytest.mark.parametrize("error", [LinkError("bad"), MemoryError("none left")])
def test_one_that_cannot_be_applied_then_has_not_joined(error: Exception) -> None:
    backup = greeted()
    send_all(backup)
    backup.journal.waiting = UNWRITTEN + 1
    backup.joining.on_control("caught-up", {})
    backup.done()
    backup.fails["adopt"] = error
    assert backup.joining.end() is False
    assert backup.names()[-3:] == ["adopt", "leave", "not_listed"] and backup.local.lineage != PRIMARYS


def test_nothing_is_sent_after_the_end() -> None:
    backup = caught_up(complete=False)
    backup.joining.end()
    backup.done()
    backup.journal.complete, backup.journal.position = True, make(3, 500)
    backup.joining.acknowledge()
    backup.joining.control("alive", number=1)
    assert backup.done() == []
    assert backup.joining.step is JoinStep.STORING
    backup = caught_up()
    backup.joining.end()
    backup.done()
    backup.journal.position = make(3, 500)
    backup.joining.on_batches(LIVE)
    backup.joining.acknowledge()
    assert backup.done() == []


def test_no_credit_is_awaited_after_the_end() -> None:
    backup = greeted(False)
    backup.journal.waiting = UNWRITTEN + 1
    backup.frame(Kind.SLICE, b"slice")
    backup.joining.end()
    assert backup.run_later() == [PAUSE] and backup.later == []


def test_what_was_put_aside_earlier_is_forgotten_once_everything_is_taken_over() -> None:
    aside = {(7, 70): decode_ids(encode_ids([(1, 2)]))}
    backup = greeted()
    backup.joining._aside = aside
    backup.joining.on_control("caught-up", {})
    assert aside == {}


@pytest.mark.parametrize(
    ("lineage", "known"),
    [
        (PRIMARYS, make(2, 50)),
        ({2: MINE[2], 3: Origin("id-c", make(2, 40))}, make(2, 40)),
        ({1: MINE[1], 2: Origin("id-c", make(1, 30)), 3: Origin("id-c", make(2, 9))}, make(1, 30)),
        ({2: MINE[2], 3: Origin("id-c", 0)}, 0),
    ],
    ids=["all of ours", "less than ours", "another epoch 2", "it had holes"],
)
def test_the_keys_that_the_primary_shares_need_not_be_sent(
    lineage: Lineage, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "window", SimpleNamespace(newest=known))
    backup = Backup()
    backup.welcome(lineage=lineage_to_json(lineage))
    told = encode_held(KEYS + 7, 70, encode_ids([(1, known)]))
    assert (("send", Kind.HELD, 0, told) in backup.done()) == bool(known)


def test_keys_of_messages_that_the_primary_lacks_may_have_displaced_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "window", SimpleNamespace(newest=make(2, 41)))
    backup = Backup()
    backup.welcome(lineage=lineage_to_json({2: MINE[2], 3: Origin("id-c", make(2, 40))}))
    assert not [call for call in backup.done() if call[:2] == ("send", Kind.HELD)]


def test_one_that_has_holes_knows_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "window", SimpleNamespace(newest=0))
    backup = Backup(whole=False)
    backup.welcome()
    assert not [call for call in backup.done() if call[:2] == ("send", Kind.HELD)]
