"""The real classes of `ha`, set to a state of the model, called once, and read out again.

One `Host` for each broker is made once; `load` overwrites what a state says, `save` reads it.  Nothing of the rules is
repeated here.  The engine, the configuration and the environment are stubs: positions without messages, and ports that
note what was asked of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ha.backup.backup import Backup
from ha.backup.joining import JoinStep
from ha.model.environment import Answer, Exchanged, Json
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Membership
from ha.model.position import make, sequence_of
from ha.model.pulse import Pulse
from ha.model.settings import NodeSettings
from ha.node import Node
from ha.primary.catchup import Plan
from ha.primary.changes import Change, Drop, Enlist, First
from ha.primary.peer import Peer, Phase
from ha.primary.primary import Primary
from ha.primary.roster import Roster
from ha.promotion.claims import Claim, ClaimRequest
from ha.promotion.promoter import Promoter, Wish
from ha.registry.recorder import Recorder
from tests.model.state import (
    EMPTY,
    STATES,
    Broker,
    Exchange,
    Lead,
    Link,
    PeerState,
    address_of,
    ha_state,
    in_sync,
    letters,
    member,
    saved_code,
    set_code,
)

PHASES = {phase.value: phase for phase in Phase}
SLICE = 1 << 17


class Died(Exception):
    """The process ends at a write to its disk."""


class Nothing:
    """Takes every call."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: None


class ModelBatch:
    def __init__(self, last: int) -> None:
        self.last = last

    def __len__(self) -> int:
        return 1


class ModelEngine:
    """Positions only."""

    on_removed: Any = None
    removing: tuple[()] = ()
    torn = False

    def __init__(self) -> None:
        self.position = self.safe = 0
        self.log: list[tuple[int, str, object]] = []
        self.sealed = 0
        self.node: Any = None

    def append(self, kind: str, content: object) -> int:
        self.position += 1
        self.log.append((self.position, kind, content))
        return self.position

    def log_membership(self, payload: bytes) -> int:
        operation = Membership.decode(payload)
        return self.append("set", (set_code(operation.in_sync), operation.added))

    def flush(self) -> int:
        if self.sealed != self.position and isinstance(self.node.role, Primary):
            self.sealed = self.position
            self.node.batch(ModelBatch(self.position))
        return self.position

    def begin_epoch(self, epoch: int, unsure: int = 0) -> None:
        self.position = self.sealed = make(epoch, sequence_of(self.position))

    def advance_safe(self, position: int) -> None:
        self.safe = position

    def hold_inherited(self, known: int) -> None:
        """Consumers are no part of the model."""

    def demote(self) -> None: ...

    def repeat_delivered(self) -> None: ...

    def set_position(self, position: int) -> None: ...

    def removed(self) -> list[Any]:
        return []

    def throttle(self, on: bool, cause: str) -> None: ...


class ModelConfiguration(Nothing):
    def replicated(self) -> list[Any]:
        return []

    def snapshot(self) -> list[Any]:
        return []


class ModelLink:
    """One end of a link: keeps what is sent."""

    backlog = received = sent = 0

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []

    def send_frame(self, kind: int, position: int, body: bytes) -> None:
        self.frames.append((kind, position, body))

    def send_batch(self, batch: ModelBatch) -> None: ...

    def hold_batches(self, on: bool) -> None: ...

    def close(self) -> None: ...


class Following:
    """Stands for `Joining` between two of its steps."""

    step = JoinStep.FOLLOWING
    holds_all = True

    def __init__(self, link: ModelLink) -> None:
        self.link = link

    def on_batches(self, position: int) -> None: ...

    def acknowledge(self) -> None: ...

    def end(self) -> bool:
        return False


class ModelEnvironment:
    """Ports that note what was asked of them; timers never ring, since the explorer lets anything happen any time."""

    def __init__(self) -> None:
        self.disk: HaState
        self.claims: list[tuple[str, Json]] = []
        self.exchanged: list[tuple[HaState | None, Callable[[Exchanged], None]]] = []
        self.writes = 0
        self.die_after = 0
        """The process dies when that many writes have been made."""
        self.promoted = False

    def now(self) -> float:
        return 0.0

    def wall(self) -> int:
        return 0

    def after(self, delay: float, call: Callable[[], None]) -> None: ...

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        if method == "ha.claim":
            self.claims.append((address, arguments))

    def connect(self, *arguments: object) -> None: ...

    def persist(self, state: HaState) -> None:
        self.disk = state
        self.writes += 1
        if self.writes == self.die_after:
            raise Died

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        self.exchanged.append((state, done))

    def close_clients(self, code: int, text: str) -> None: ...

    def event(self, kind: str, **fields: object) -> None:
        self.promoted = self.promoted or kind == "promoted"

    def log(self, level: str, text: str) -> None: ...


class ModelPromoter(Promoter):
    """The real one; the answers are at hand."""

    claim: Claim | None = None
    readings: dict[str, Answer]

    def _ask(self, addresses: list[str], before: dict[str, Answer]) -> None:
        self._asked({**before, **{address: self.readings[address] for address in addresses}})

    def _claim(self, claim: Claim) -> None:
        self.claim = claim
        super()._claim(claim)


class Host:
    """One broker's real objects."""

    def __init__(self, id: str, settings: dict[str, Any], namesakes: bool = False, isolated: bool = False) -> None:
        """`namesakes`: another broker may have had our address.  `isolated`: as in `Bounds`."""
        self.id = id
        self.namesakes = namesakes
        self.env = ModelEnvironment()
        self.engine = ModelEngine()
        self.settings = NodeSettings(id, address_of(id), username="ha", **settings)
        stubs: Any = self.engine, ModelConfiguration(), self.env
        node: Any = Node(LocalMember(self.settings, stubs[0], stubs[1], stubs[2], ha_state(id, EMPTY)))
        self.node: Node = node
        self.engine.node = node
        node.candidacy = Nothing()
        node.candidacy.recent = node.local.changed = lambda: None
        self.backup = node.role
        self.primary = Primary(node.local, Claim(0, InSync(), ()), node.depose)
        self.primary._observer.isolation.reason = "cut off" * isolated
        self.links: dict[str, ModelLink] = {}

    # ---- load -----------------------------------------------------------------------------------------------------

    def load(self, broker: Broker, die_after: int = 0) -> Node:
        node, env, engine = self.node, self.env, self.engine
        env.disk = ha_state(self.id, broker.disk)
        env.claims, env.exchanged, env.writes, env.promoted, env.die_after = [], [], 0, False, die_after
        saved = ha_state(self.id, broker.saved)
        # No data directory is put back here, so none is older than the vote in it.
        node.local.persisted, node.local._vouched = replace(saved, vouched=(saved.epoch, "", 0)), InSync().key
        node.local.state, node.local.whole = STATES[broker.state], broker.whole
        node.local.lineage, node.local.led, node.promoter = {}, set(), None
        node.local.cluster._heard = node.local._received = InSync()
        node.local._fresh, node.local.lost = bool(broker.blank), "lost" * (broker.blank == "lost")
        engine.position = engine.sealed = broker.position
        engine.log, engine.safe = [], 0
        if broker.lead is None:
            node.role = self._load_backup(broker.position, broker.link)
        else:
            node.role = self._load_primary(broker.lead)
        return node

    def _load_backup(self, position: int, link: Link | None) -> Backup:
        role: Any = self.backup
        role.stopped, role._doubt, role._stood, role._position = False, False, False, position
        role._applied = 0
        role._joining = Following(ModelLink()) if link is not None else None
        role._finder._paused = False
        role._finder.hint = ""
        role._finder._round = None
        return role  # type: ignore[no-any-return]

    def _load_primary(self, lead: Lead) -> Primary:
        role: Any = self.primary
        role.stopped = role.frozen = False
        role._lags = Nothing()
        role._losses._stopped, role._losses._lost, role._losses._round = False, {}, Nothing()
        role._sealed = role._base = self.engine.position
        self.engine.safe = lead.safe
        role._links, role._live, self.links = {}, [], {}
        roster = role.roster = Roster(role, (member(id) for id in lead.expected))
        peers = [(self._load_peer(role, roster, found), found) for found in lead.peers]
        roster._begun, roster.may_confirm = lead.begun, lead.may_confirm
        roster.removing, roster.steady = lead.removing, lead.steady
        roster._former = in_sync(lead.former) if lead.former else None
        self._load_recorder(roster, lead, {str(found.listing): peer for peer, found in peers if found.listing})
        return role  # type: ignore[no-any-return]

    def _load_peer(self, role: Any, roster: Roster, found: PeerState) -> Peer:
        phase = PHASES[found.phase]
        peer = Peer(member(found.id), Pulse(0.0, 0.0), phase=phase, acked=found.acked, received=found.received)
        peer.reported, peer.removal, peer.whole, peer.target = found.reported, found.removal, found.whole, found.target
        if found.counts:
            roster.counting.append(peer)
        if found.linked:
            link = self.links[found.id] = ModelLink()
            peer.link = link  # type: ignore[assignment]
            role._links[link] = peer
            if phase not in (Phase.HELLO, Phase.HELD):
                role._live.append(link)
            if phase in (Phase.COPYING, Phase.CLOSING):
                peer.plan = Plan(self.node.local.configuration, {}, found.received, SLICE)
        return peer

    def _load_recorder(self, roster: Roster, lead: Lead, peers: dict[str, Peer]) -> None:
        recorder = roster.record
        recorder.holders = tuple(member(id) for id in lead.holders)
        if lead.change is not None:
            kind, whom, code = lead.change
            recorder._busy, recorder._change, recorder._in_sync = (
                True,
                _change(kind, whom, peers),
                in_sync(code),
            )
            if kind == "drop":
                gone = in_sync(saved_code(self.node.local.persisted)[2]).ids - in_sync(code).ids
                roster._going = set(gone)
        for kind, whom in lead.queue:
            recorder._queue.append(_change(kind, whom, peers))
            if kind == "drop":
                roster._leaving += [peer for peer in roster.counting if peer.id in whom and not peer.removal]

    # ---- save -----------------------------------------------------------------------------------------------------

    def save(self, broker: Broker) -> Broker:
        """`broker` is the state before."""
        node = self.node
        saved = saved_code(node.local.persisted)
        values: dict[str, Any] = {"disk": saved_code(self.env.disk), "saved": saved}
        values |= {"state": node.local.state.value, "whole": node.local.whole}
        if self.namesakes:
            values["blank"] = "lost" if node.local.lost else "fresh" * node.local._fresh
        if isinstance(node.role, Primary):
            values |= {"position": self.engine.position, "lead": self._save_lead(broker, node.role), "link": None}
        else:
            values |= {"position": node.role.position, "lead": None}
            if broker.lead is not None or getattr(node.role, "_joining", None) is None:
                values["link"] = None
        return broker._replace(**values)

    def _save_lead(self, broker: Broker, role: Any) -> Lead:
        roster, old = role.roster, broker.lead
        sent = {peer.id: peer.sent for peer in old.peers if peer.linked} if old else {}
        listing = {id(peer): peer for peer in _listing(roster.record)}
        numbers = {key: number for number, key in enumerate(listing, 1)}
        counting = {id(peer): peer for peer in roster.counting}
        peers = {id(peer): peer for peer in role._links.values()} | counting | listing
        found = tuple(
            sorted(_peer_state(peer, key in counting, numbers.get(key, 0), role, sent) for key, peer in peers.items())
        )
        recorder = roster.record
        change = None
        if recorder._change is not None:
            change = (*_kind(recorder._change, numbers), set_code(recorder._in_sync))
        return Lead(
            active=self.node.local.state.value == "active",
            peers=found,
            expected="".join(sorted(roster.expected)),
            begun=roster._begun,
            may_confirm=roster.may_confirm,
            removing=roster.removing,
            steady=roster.steady,
            safe=self.engine.safe,
            log=(*(old.log if old else ()), *self.engine.log),
            queue=tuple(_queued(recorder, roster, numbers)),
            change=change,
            exchange=self._save_exchange(old),
            # Without a registry they are never looked at.
            holders=letters(recorder.holders) if self.settings.registry else "",
            former=set_code(roster._former) if roster._former else None,
        )

    def _save_exchange(self, old: Lead | None) -> Exchange | None:
        for state, _ in self.env.exchanged:
            if state is not None:
                return Exchange(saved_code(state), "asked")
        return old.exchange if old else None

    # ---- calls ----------------------------------------------------------------------------------------------------

    def frame(self, peer: str, kind: int, position: int, body: bytes) -> ModelLink:
        link = self.links[peer]
        self.node.link_frame(link, kind, position, body)  # type: ignore[arg-type]
        return link

    def promoter(self, readings: dict[str, Answer]) -> ModelPromoter:
        promoter = ModelPromoter(self.node.local, self.node, Wish())
        promoter.readings = readings
        self.node.promoter = promoter
        return promoter

    def request(self) -> ClaimRequest | None:
        """The claim that was sent, as it is read at the other end; and to whom."""
        return ClaimRequest.from_json(json.loads(json.dumps(self.env.claims[0][1]))) if self.env.claims else None


def _peer_state(peer: Any, counts: bool, listing: int, role: Any, sent: dict[str, int]) -> PeerState:
    linked = peer.link is not None and peer.link in role._links
    return PeerState(
        peer.id,
        counts,
        linked,
        peer.phase.value,
        peer.acked,
        peer.received,
        peer.reported,
        peer.removal,
        peer.whole,
        peer.target,
        sent.get(peer.id, 0) if linked and peer.phase not in (Phase.HELLO, Phase.HELD) else 0,
        listing,
    )


def _change(kind: str, whom: str, peers: dict[str, Peer]) -> Change:
    """The change of the set that this code stands for."""
    if kind == "first":
        return First()
    return Drop(", ".join(whom)) if kind == "drop" else Enlist(peers[whom])


def _kind(change: Any, numbers: dict[int, int]) -> tuple[str, str]:
    """The code of a change; `numbers`: of the backups whose listing waits."""
    match change:
        case First():
            return "first", ""
        case Enlist(peer):
            return "list", str(numbers[id(peer)])
    return "drop", change.names.replace(", ", "")


def _queued(recorder: Recorder[Change], roster: Roster, numbers: dict[int, int]) -> list[tuple[str, str]]:
    found = []
    for change in recorder._queue:
        kind, whom = _kind(change, numbers)
        found.append((kind, "".join(sorted(peer.id for peer in roster._leaving)) if kind == "drop" else whom))
    return found


def _listing(recorder: Recorder[Change]) -> list[Peer]:
    """Backups whose listing waits for the registry; they may have lost their link meanwhile."""
    changes = [*([recorder._change] if recorder._change else []), *recorder._queue]
    return [change.peer for change in changes if isinstance(change, Enlist)]
