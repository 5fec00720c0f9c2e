"""A backup that joins: engine, journal, link and backup are doubles that write what they are told into one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from ha.backup.joining import Joining
from ha.model.difference import Lineage, Origin, intersect, lineage_to_json
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.protocol import Kind, decode_control, encode_drop, encode_merge
from ha.model.settings import NodeSettings
from qpidd_py.broker.snapshot import encode_snapshot
from qpidd_py.core import encode_ids

A, B, C = (Member(f"id-{name}", name, f"{name}:1", "first") for name in "abc")
MINE: Lineage = {1: Origin("id-a", 0), 2: Origin("id-a", make(1, 90))}
PRIMARYS: Lineage = {2: MINE[2], 3: Origin("id-c", make(2, 60))}
SET, NEW = InSync(2, "id-a", 3, (A, B)), InSync(3, "id-c", 4, (B, C))
WELCOME = {**C.to_json(), "epoch": 3, "leader": "id-c", "lineage": lineage_to_json(PRIMARYS), "whole": True}
CUT, LIVE = make(3, 100), make(3, 110)
Call = tuple[Any, ...]


DIFFERENCE = {
    Kind.SNAPSHOT: encode_snapshot([]),
    Kind.SLICE: b"slice",
    Kind.DROP: encode_drop(7, b"ids"),
    Kind.MERGE: encode_merge(7),
}
APPLIED = ["set_position", "adopt", "part", "apply_slice", "part", "drop", "part", "merge", "part"]


class Queue:
    """Number 7, uid 70."""

    number = 7
    window: object = None
    shadow = False

    def __init__(self, *ids: tuple[int, int]) -> None:
        self.ids = list(ids)

    def held(self, low: int = 0, high: int = make(9, 0)) -> bytes:
        return encode_ids(intersect(self.ids, [(low, high)]))


class Backup:
    """Broker b; it was ready in epoch 2, and c leads epoch 3."""

    def __init__(self, whole: bool = True, *ids: tuple[int, int]) -> None:
        self.calls: list[Call] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.fails: dict[str, Exception] = {}
        self.time = 4.0
        self.objects = 0  # that a snapshot changes
        self.noted: set[int] = set()
        self.queue = Queue(*ids)
        note = self._note
        env: Any = SimpleNamespace(now=lambda: self.time, after=lambda *it: self.later.append(it), log=lambda *it: None)
        env.persist = lambda state: note("persist", state.ballot, state.in_sync.key)
        env.event = lambda kind, **fields: note(kind, fields)
        engine: Any = SimpleNamespace(safe=0, position=make(2, 50))
        for name in ("merge", "drop", "apply_slice", "apply_held", "set_position"):
            setattr(engine, name, self._noting(name))
        self.journal: Any = SimpleNamespace(position=make(2, 50), complete=True, waiting=0, note=lambda note: None)
        for name in ("part", "differ", "leave", "begin_again"):
            setattr(self.journal, name, self._noting(name))
        configuration: Any = SimpleNamespace(replicated=lambda: [(self.queue, 70)], adopting=self._adopting)
        settings = NodeSettings(name="b", address="b:1", safety="quorum", brokers=("a:1", "b:1", "c:1"))
        state = HaState("id-b", 2, "id-a", SET)
        self.local = LocalMember(settings, engine, configuration, env, state, "first", self.journal)
        self.local.whole, self.local.lineage = whole, MINE
        link: Any = SimpleNamespace(hold_batches=self._noting("hold"), close=self._noting("close"))
        link.send_frame = lambda kind, position, body: note("send", Kind(kind), position, body)
        self.joining = Joining(self.local, link, cast(Any, self), make(2, 50), {})

    def _adopting(self, records: list[tuple[int, bytes]]) -> Iterator[None]:
        self._note("adopt", records)
        for number in range(self.objects):
            yield
            if number + 1 in self.noted:
                self._note(f"object {number + 1}")

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self.fails:
            raise self.fails[call[0]]

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self._note(name, *arguments)

    def view(self) -> Any:
        role = SimpleNamespace(position=make(2, 50), primary_address="", doubt=True, stood=False, isolation="")
        return self.local.view(cast(Any, role))

    def __getattr__(self, name: str) -> Any:
        """The calls of `Joiner`."""
        if name in ("welcomed", "salvaged", "not_salvaged", "admitted", "not_listed", "joined", "lost"):
            return self._noting(name)
        raise AttributeError(name)

    # ---- what the test does

    def done(self) -> list[Call]:
        """The calls since the last time; controls are decoded."""
        found, self.calls = self.calls, []
        return [(*call[:2], *decode_control(call[3])) if call[:2] == CONTROL else call for call in found]

    def names(self) -> list[str]:
        """Of `done`, with the kinds of frames and words of controls."""
        return [
            str(call[2] if call[:2] == CONTROL else call[1].name) if call[0] == "send" else call[0]
            for call in self.done()
        ]

    def run_later(self) -> list[float]:
        """Makes the calls that were put off; after how long."""
        found, self.later = self.later, []
        for _, call in found:
            call()
        return [delay for delay, _ in found]

    def welcome(self, **fields: Any) -> None:
        self.joining.on_control("welcome", {**WELCOME, **fields})

    def cut(self, in_sync: InSync = NEW) -> None:
        self.joining.on_control("cut", {"cut": CUT, "in_sync": in_sync.to_json()})

    def frame(self, kind: int, body: bytes = b"", position: int = 0) -> None:
        self.joining.on_frame(kind, position, body)


CONTROL = ("send", Kind.CONTROL)


def greeted(whole: bool = True, in_sync: InSync = NEW, *ids: tuple[int, int]) -> Backup:
    """After the cut."""
    backup = Backup(whole, *ids)
    backup.welcome()
    backup.cut(in_sync)
    backup.done()
    return backup


def caught_up(complete: bool = True) -> Backup:
    """After a difference of two slices, that is applied; `complete`: the journal has it."""
    backup = greeted()
    backup.journal.complete = complete
    backup.joining.on_control("caught-up", {})
    return backup


def send_all(backup: Backup) -> None:
    for kind, body in DIFFERENCE.items():
        backup.frame(kind, body)
