"""A primary role whose parts, engine and environment are doubles that note what they are told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.pulse import Pulse
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.primary.peer import Peer, Phase
from ha.primary.primary import Primary
from ha.promotion.claims import Claim

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
        role._observer.isolation, role._observer.stall = isolation, stall
        role._observer.look = self._noting("look")
        role._removals = self._double("stop tick")
        role._failing = self._double(
            "broke look has_waited", is_due=lambda peer, now: now == 0.0, fails=lambda id: id == "id-d"
        )
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
