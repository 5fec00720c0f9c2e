"""A backup whose finder, link and environment are doubles that note what they are told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ha.backup.backup import Backup
from ha.backup.finder import Stage
from ha.backup.joining import JoinStep
from ha.model.environment import StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member, Membership
from ha.model.position import make
from ha.model.protocol import Kind, encode_control
from ha.model.settings import NodeSettings
from ha.model.status import State

A, B, C = (Member(f"id-{name}", name, f"{name}:1", "first") for name in "abc")
SET, NEW = InSync(2, "id-a", 3, (A, B)), InSync(2, "id-a", 4, (A, B, C))
HELD, LATER = make(2, 50), make(2, 60)
BEAT = 1.0
NOTICED = 1.25
"""Heartbeats after which a pause is noticed."""
Call = tuple[Any, ...]


class Alone:
    """Broker b, ready in epoch 2, with a link to a or without."""

    def __init__(self, linked: bool = True, **options: bool) -> None:
        self.calls: list[Call] = []
        self.logs: list[str] = []
        self.time = 100.0
        self.fails = False
        env: Any = SimpleNamespace(now=lambda: self.time, wall=lambda: 7_000)
        env.log = lambda level, text: self.logs.append(text)
        env.after = lambda *it: None
        env.persist = self._persist
        env.event = lambda kind, **fields: self.calls.append(("event", kind))
        engine: Any = SimpleNamespace(position=HELD, torn=False)
        self.engine = engine
        settings = NodeSettings(name="b", address="b:1", safety="quorum", brokers=("a:1", "b:1", "c:1"), heartbeat=BEAT)
        anything: Any = SimpleNamespace()
        self.local = LocalMember(settings, self.engine, anything, env, HaState("id-b", 2, "id-a", SET), "first")
        self.local.state, self.local.whole = State.READY, True
        journal: Any = SimpleNamespace(note=lambda note: None, leave=self._noting("leave"))
        self.local.journal = journal
        self.backup: Any = Backup(self.local, self._noting("end the process"), **options)
        self.finder = self.backup._finder = self._double(
            "search pause resume follow expect welcomed refused admitted lost",
            hint="",
            stage=Stage.FOUND,
            survey=None,
            heard=[],
        )
        self.link: Any = SimpleNamespace(close=self._noting("close"), received=0, sent=0)
        self.link.send_frame = lambda kind, position, body: self.calls.append(("frame", kind, position, body))
        self.backup.leader = A
        self.joining = self._double(
            "on_frame on_control on_batches acknowledge send control start",
            link=self.link,
            step=JoinStep.FOLLOWING,
            live=HELD,
            primary="a",
            holds_all=True,
            end=lambda: False,
        )
        if linked:
            self.backup._joining = self.joining

    def _persist(self, state: HaState) -> None:
        if self.fails:
            raise StateNotStored("full")

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.calls.append((name, *given, *named.values()))

    def _double(self, names: str, **values: Any) -> Any:
        return SimpleNamespace(**{name: self._noting(name) for name in names.split()}, **values)

    def done(self) -> list[Call]:
        found, self.calls = self.calls, []
        return found

    def control(self, op: str, **fields: Any) -> None:
        self.backup.frame(self.link, Kind.CONTROL, 0, encode_control(op, **fields))

    def cannot_store(self, added: str = "") -> None:
        """A set was received that is not on disk."""
        self.fails = True
        self.backup.membership(LATER, Membership(NEW, added))
        self.done()
