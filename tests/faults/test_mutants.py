"""The judge convicts client libraries that are really wrong: each mutant is the library with one thing done badly.

A stand-alone broker behind a proxy that cuts twice is enough for all of them, and the library as it is must be
acquitted of the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from client_lib.core import publishing
from client_lib.core.outbox import Entry, Outbox
from client_lib.core.subscription import Subscription
from client_lib.core.window import Window
from client_lib.dedup import DuplicateFilter, Verdict
from client_lib.events import EventLog
from tests.faults.judge import Report
from tests.faults.load import Group, Load
from tests.support.fault_proxy import FaultProxy, Way
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

Mutation = Callable[[pytest.MonkeyPatch], None]
GROUPS = (Group("single", drop_duplicates=True), Group("plain"))


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    directory: Path = tmp_path_factory.mktemp("mutants")
    with BrokerProcess(directory) as broker, FaultProxy(broker.port) as found:
        yield found


def disturbed(proxy: FaultProxy, name: str, patience: float = 4.0) -> Report:
    """Everybody is cut off while messages are in flight: the broker has got them the first time, not the second."""
    with Load(proxy.address, f"mutant.{name}", GROUPS, patience=patience) as load:
        for way in (Way.TO_CLIENT, Way.BOTH):
            load.run_on(30)
            proxy.hold(way)
            wait_for(lambda: all(len(s.confirms) + 20 < s.sent for s in load.senders), 60, "messages in flight")
            proxy.cut()
            proxy.release()
        load.run_on(30)
        return load.finish(complete=False)


def test_the_library_as_it_is(proxy: FaultProxy) -> None:
    report = disturbed(proxy, "none", 40.0)
    assert report.problems == ()
    assert min(report.resent, report.duplicates, report.losses) > 0


def forgets_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    def connection_lost(self: Outbox) -> int:
        _drop(self)
        return 0

    patch.setattr(Outbox, "connection_lost", connection_lost)


def takes_a_loss_for_a_confirm(patch: pytest.MonkeyPatch) -> None:
    def connection_lost(self: Outbox) -> int:
        for entry in _drop(self):
            entry.owner.report(entry)
        return 0

    patch.setattr(Outbox, "connection_lost", connection_lost)


def _drop(outbox: Outbox) -> list[Entry]:
    dropped = list(outbox._in_flight.values())
    for entry in dropped:
        entry.owner.settled(entry)
    outbox._in_flight.clear()
    outbox._next_tag = 1
    return dropped


def sends_the_confirmed_again(patch: pytest.MonkeyPatch) -> None:
    """After a loss, whatever was confirmed lately goes out once more, at first honestly told."""
    settled, connection_lost = Outbox.settled, Outbox.connection_lost
    lately: dict[Outbox, list[Entry]] = {}

    def remember(self: Outbox, delivery_tag: int, multiple: bool) -> list[Entry]:
        found = settled(self, delivery_tag, multiple)
        lately.setdefault(self, []).extend(entry for entry in found if not entry.resent)
        return found

    def repent(self: Outbox) -> int:
        for entry in lately.get(self, [])[-3:]:
            entry.resent = True
            entry.owner = _Nobody(entry.owner)
            self._waiting.appendleft(entry)
        return connection_lost(self)

    patch.setattr(Outbox, "settled", remember)
    patch.setattr(Outbox, "connection_lost", repent)


class _Nobody:
    """The owner of an entry that is sent once too often: does not count it again."""

    def __init__(self, owner: Window) -> None:
        self._owner = owner

    def settled(self, _entry: Entry) -> bool:
        return False

    def report(self, _entry: Entry) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)


def sends_the_confirmed_again_and_hides_it(patch: pytest.MonkeyPatch) -> None:
    sends_the_confirmed_again(patch)
    message, messages = EventLog.message, EventLog.messages

    def one(self: EventLog, kind: str, *arguments: Any) -> None:
        if kind != "resend":
            message(self, kind, *arguments)

    def many(self: EventLog, kind: str, queue: str, ids: Sequence[str | None], *more: Any) -> None:
        if kind != "resend":
            messages(self, kind, queue, ids, *more)

    patch.setattr(EventLog, "message", one)
    patch.setattr(EventLog, "messages", many)


def sends_again_in_reverse(patch: pytest.MonkeyPatch) -> None:
    original = Outbox.connection_lost

    def connection_lost(self: Outbox) -> int:
        count = original(self)
        self._waiting.reverse()
        return count

    patch.setattr(Outbox, "connection_lost", connection_lost)


def does_not_mark_what_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publishing, "mark_resent", lambda payload: payload)


def miscounts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Window, "unsettled", lambda self: self._pending + 1)


def reports_twice(patch: pytest.MonkeyPatch) -> None:
    original = Window.report

    def report(self: Window, entry: Entry) -> None:
        original(self, entry)
        if entry.resent:
            original(self, entry)

    patch.setattr(Window, "report", report)


def filters_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DuplicateFilter, "offer", lambda self, message_id, first, marked: (Verdict.NEW, None))


def hands_out_twice(patch: pytest.MonkeyPatch) -> None:
    original = Subscription.arrived
    arrived = [0]

    def twice(self: Subscription, message: Any) -> None:
        original(self, message)
        arrived[0] += 1
        if arrived[0] % 50 == 0:
            original(self, message)

    patch.setattr(Subscription, "arrived", twice)


def loses_a_delivery(patch: pytest.MonkeyPatch) -> None:
    original = Subscription.arrived
    arrived = [0]

    def arrive(self: Subscription, message: Any) -> None:
        arrived[0] += 1
        if arrived[0] % 25:
            original(self, message)

    patch.setattr(Subscription, "arrived", arrive)


MUTANTS: dict[Mutation, str] = {
    forgets_what_is_in_flight: "settled",
    takes_a_loss_for_a_confirm: "lost",
    sends_the_confirmed_again: "repentant",
    sends_the_confirmed_again_and_hides_it: "copies",
    sends_again_in_reverse: "order",
    does_not_mark_what_is_sent_again: "unmarked",
    miscounts: "settled",
    reports_twice: "settled",
    filters_nothing: "filtered",
    hands_out_twice: "again",
    loses_a_delivery: "lost",
}
"""What is done badly → under which rule that is found."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_convicted(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, mutant: Mutation) -> None:
    mutant(monkeypatch)
    report = disturbed(proxy, mutant.__name__)
    assert any(problem.startswith(f"{MUTANTS[mutant]}:") for problem in report.problems), report.problems
