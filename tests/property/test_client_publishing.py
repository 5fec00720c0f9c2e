"""Random schedules of sends, writes, confirms and losses against a model: nothing is lost, nothing that was confirmed
is sent again, order is kept, and `unsettled` is exact.  And of transactions: what the client is told has happened."""

import contextlib
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client_lib.core.outbox import Entry, Outcome
from client_lib.core.publishing import Publishing
from client_lib.core.transaction import Phase, Transaction
from client_lib.core.window import Window
from client_lib.errors import Rejected, TransactionAborted, TransactionUnknown
from client_lib.events import EventLog
from client_lib.message import Message
from tests.support.slow import few


class Monitor(contextlib.nullcontext[Any]):
    lock = contextlib.nullcontext[Any]()

    def notify_all(self) -> None:
        pass


class Wire:
    """What a transport is for publishing; the entries themselves are looked at, not the octets."""

    backlog, body_max = 0, 1000

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)


def fake_session(transaction: Transaction | None) -> Any:
    numbers = iter(range(1, 1 << 30))
    session = SimpleNamespace(monitor=Monitor(), transaction=transaction, check=lambda: None)
    session.publishing = Publishing("s", Monitor(), EventLog("c"), transaction)
    session.next_message_id = lambda: f"s:{next(numbers)}"
    return session


class ConfirmedPublishing(RuleBasedStateMachine):
    @initialize(chunk=st.integers(1, 5))
    def begin(self, chunk: int) -> None:
        self.session = fake_session(None)
        self.publishing: Publishing = self.session.publishing
        self.windows = [Window(self.session, key, "", 4, False, None) for key in ("a", "b")]
        self.unsettled: list[str] = []  # by age
        self.on_wire: dict[int, str] = {}  # of this channel, by tag
        self.tag = 0
        self.first_write: dict[str, int] = {}
        self.writes = 0
        self.settled: set[str] = set()
        self.seen_before: set[str] = set()
        self.entries: dict[str, Entry] = {}

    @rule(which=st.integers(0, 1))
    def send(self, which: int) -> None:
        window = self.windows[which]
        assert window.full() == (window.available() == 0)
        if window.full():
            return
        entry = window.entry(Message("x", properties={"n": 1}))
        window.add(entry)
        self.unsettled.append(entry.message_id)
        self.entries[entry.message_id] = entry

    @rule(limit=st.integers(1, 4))
    def write(self, limit: int) -> None:
        for entry in self.publishing.outbox.send_next(limit):
            assert entry.message_id not in self.settled, "sent again after its confirm"
            assert entry.resent == (entry.message_id in self.seen_before)
            self.publishing._write(Wire(), 1, [entry])  # type: ignore[arg-type]
            assert (b"x-resent" in entry.payload) == entry.resent
            self.tag += 1
            self.on_wire[self.tag] = entry.message_id
            self.seen_before.add(entry.message_id)
        assert list(self.on_wire.values()) == [name for name in self.unsettled if name in self.on_wire.values()]

    @precondition(lambda self: self.on_wire)
    @rule(data=st.data(), multiple=st.booleans(), taken=st.booleans())
    def confirm(self, data: st.DataObject, multiple: bool, taken: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.on_wire)))
        tags = [t for t in sorted(self.on_wire) if t == tag or (multiple and t < tag)]
        wanted = [self.on_wire.pop(t) for t in tags]
        entries = self.publishing.confirmed(tag, multiple, taken)
        assert [entry.message_id for entry in entries] == wanted
        for entry in entries:
            assert entry.outcome is (Outcome.CONFIRMED if taken else Outcome.REJECTED)
            assert isinstance(entry.error, Rejected) is not taken
            self.unsettled.remove(entry.message_id)
            self.settled.add(entry.message_id)

    @rule(tag=st.integers(0, 60))
    def confirm_of_nothing(self, tag: int) -> None:
        if tag not in self.on_wire:
            assert self.publishing.confirmed(tag, False, True) == []

    @rule()
    def lose(self) -> None:
        assert self.publishing.connection_lost() == len(self.on_wire)
        self.on_wire.clear()
        self.tag = 0

    @invariant()
    def exact(self) -> None:
        if not hasattr(self, "session"):
            return
        outbox = self.publishing.outbox
        assert outbox.unsettled == len(self.unsettled)
        assert [entry.message_id for entry in outbox.entries()] == self.unsettled
        assert sum(window.unsettled() for window in self.windows) == len(self.unsettled)
        for window in self.windows:
            mine = [name for name in self.unsettled if self.entries[name].owner is window]
            assert window.unsettled() == len(mine) and window.available() == 4 - len(mine)
        resent = [name for name in self.unsettled if self.entries[name].resent]
        assert self.publishing.resent == len(resent)


class Transactions(RuleBasedStateMachine):
    """The client's transaction, a wire that keeps order, and a broker that applies what it reads."""

    @initialize()
    def begin(self) -> None:
        self.transaction = Transaction()
        self.wire: list[Any] = []
        self.pending: list[int] = []  # what the broker would commit
        self.applied: list[list[int]] = []
        self.answers: list[str] = []
        self.mine: list[int] = []  # of the open transaction
        self.sealed: list[int] = []
        self.number = 0
        self.fetched = False

    def open_(self) -> bool:
        return self.transaction.phase is Phase.OPEN

    @precondition(open_)
    @rule()
    def publish(self) -> None:
        self.number += 1
        entry: Any = self.number
        self.transaction.written([entry])
        self.wire.append(entry)
        self.mine.append(self.number)

    @precondition(open_)
    @rule()
    def fetch(self) -> None:
        self.fetched = True

    @precondition(open_)
    @rule()
    def commit(self) -> None:
        self.transaction.commit()
        assert self.transaction.ending

    @precondition(lambda self: self.transaction.phase is Phase.COMMITTING)
    @rule(written=st.booleans())
    def write_commit(self, written: bool) -> None:
        if not written:
            assert self.transaction.withdraw()
            return
        self.transaction.commit_written()
        assert not self.transaction.withdraw()
        self.wire.append("commit")
        self.sealed, self.mine = self.mine, []
        self.fetched = False

    @precondition(open_)
    @rule()
    def roll_back(self) -> None:
        undone: list[Any] = self.transaction.rollback(self.transaction.touched or self.fetched)
        assert undone == self.mine
        if self.transaction.rolling_back:
            self.transaction.rollback_written()
            self.wire.append("rollback")
        self.mine, self.fetched = [], False

    @precondition(lambda self: self.wire)
    @rule()
    def broker_reads(self) -> None:
        item = self.wire.pop(0)
        if item == "commit":
            self.applied.append(self.pending)
            self.pending = []
            self.answers.append(item)
        elif item == "rollback":
            self.pending = []
            self.answers.append(item)
        else:
            self.pending.append(item)

    @precondition(lambda self: self.answers)
    @rule()
    def client_reads(self) -> None:
        if self.answers.pop(0) == "rollback":
            self.transaction.rolled_back()
            return
        committed: list[Any] = self.transaction.committed()
        assert committed == self.sealed and self.applied[-1] == self.sealed
        self.sealed = []

    @rule()
    def lose(self) -> None:
        before, mine, sealed = self.transaction.phase, self.mine, self.sealed
        applied = [number for group in self.applied for number in group]
        self.transaction.lost(self.fetched)
        self.wire, self.pending, self.answers = [], [], []
        self.mine, self.sealed, self.fetched = [], [], False
        match self.transaction.phase:
            case Phase.ABORTED | Phase.UNKNOWN if before is self.transaction.phase:
                assert not mine and not sealed
            case Phase.UNKNOWN:
                assert before is Phase.COMMIT_SENT
                there = [number in applied for number in sealed]
                assert all(there) or not any(there)
            case Phase.ABORTED:
                assert before is not Phase.COMMIT_SENT and not set(mine) & set(applied)
            case _:
                assert before in (Phase.ROLLING_BACK, Phase.ROLLBACK_SENT) or not mine
        assert self.transaction.published == []

    @precondition(lambda self: self.transaction.phase in (Phase.ABORTED, Phase.UNKNOWN))
    @rule(how=st.sampled_from(["rollback", "commit", "use"]))
    def be_told(self, how: str) -> None:
        unknown = self.transaction.phase is Phase.UNKNOWN
        try:
            if how == "rollback":
                assert self.transaction.rollback(False) == []
                assert self.open_()
                return
            (self.transaction.commit if how == "commit" else self.transaction.check)()
        except TransactionUnknown:
            assert unknown and self.open_() == (how == "commit")
        except TransactionAborted:
            assert not unknown and not self.open_()
        else:
            raise AssertionError("used as if nothing had happened")

    @invariant()
    def consistent(self) -> None:
        if hasattr(self, "transaction"):
            assert self.transaction.touched or not self.mine


ConfirmedPublishing.TestCase.settings = settings(max_examples=few(100), stateful_step_count=60, deadline=None)
Transactions.TestCase.settings = settings(max_examples=few(200), stateful_step_count=60, deadline=None)
TestConfirmedPublishing = ConfirmedPublishing.TestCase
TestTransactions = Transactions.TestCase
