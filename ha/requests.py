"""Management requests: the table of methods, their access rights, and the answers of a cluster member.

A handler answers at once (it returns the result, or raises `LinkError` with the text of the refusal) or later (it gets
the callback, and calls it exactly once).  If `ha-username` is set, only that user may call the methods that steer,
because promoting, relocating or claiming can lose messages.  Any user may call the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ha.backup.backup import Backup
from ha.model.environment import ElsewherePrimary, Json, Reply
from ha.model.hearing import ages
from ha.model.membership import InSync, Member
from ha.model.protocol import need_epoch, need_text
from ha.node import Node
from ha.primary.brokers import Brokers
from ha.primary.primary import Primary
from ha.promotion.claims import ClaimRequest
from ha.promotion.promoter import Wish
from qpidd_py.errors import LinkError, ReplyCode

Handler = Callable[[Json, str], Json]
"""(arguments, user) -> result"""
LaterHandler = Callable[[Json, str, Reply], None]
"""(arguments, user, reply); `reply` takes {"ok": true, "result": ...} or {"ok": false, "error": text}."""

STEERING: Final[dict[str, frozenset[str]]] = {
    "ha.promote": frozenset(),
    "ha.demote": frozenset(),
    "ha.relocate": frozenset(),
    "ha.claim": frozenset(),
    "ha.replicate": frozenset(),
    "ha.dump": frozenset(),
    "ha.backup": frozenset(),
    "ha.restore": frozenset(),
    "ha.member": frozenset({"add", "remove"}),
    "ha.salvage": frozenset({"restore", "restored", "discard"}),
}
"""Methods that steer the cluster; if actions are given, only with these values of the argument `action`."""


def steers(method: str, arguments: Json) -> bool:
    actions, action = STEERING.get(method), arguments.get("action")
    return actions is not None and (not actions or (isinstance(action, str) and action in actions))


class RequestTable:
    """Methods by name."""

    def __init__(self, steerer: str, now: Mapping[str, Handler], later: Mapping[str, LaterHandler]) -> None:
        """`steerer` is ha-username; empty: any user may steer."""
        self._steerer = steerer
        self._now = now
        self._later = later

    def may_steer(self, user: str) -> bool:
        return not self._steerer or user == self._steerer

    def request(self, method: str, arguments: Json, reply: Reply, user: str) -> bool:
        """Returns False for an unknown method."""
        if method not in self._now and method not in self._later:
            return False
        try:
            self._check(method, arguments, user)
            if method in self._later:
                self._later[method](arguments, user, reply)
            else:
                reply({"ok": True, "result": self._now[method](arguments, user)})
        except ElsewherePrimary as error:
            reply({"ok": False, "error": str(error), "code": ReplyCode.CONNECTION_FORCED})
        except LinkError as error:
            reply({"ok": False, "error": str(error)})
        return True

    def _check(self, method: str, arguments: Json, user: str) -> None:
        if steers(method, arguments) and not self.may_steer(user):
            what = " ".join(filter(None, [method, str(arguments.get("action", ""))]))
            raise LinkError(f"ACCESS_REFUSED - user {user!r} may not call {what}, expected the user of ha-username")


class FileRequests(NamedTuple):
    """What a broker does with files in its data directory; a simulated one has none."""

    dump: LaterHandler
    salvage: LaterHandler


class NodeRequests(RequestTable):
    """The requests that a member of a cluster answers: the whole table."""

    def __init__(
        self, node: Node, files: FileRequests | None = None, archive: Mapping[str, LaterHandler] | None = None
    ) -> None:
        """Without `files` their methods are unknown.  `archive`: `ha.backup` and `ha.restore`."""
        self._node = node
        self._local = node.local
        now: dict[str, Handler] = {
            "ha.status": self._status,
            "ha.query": self._query,
            "ha.ask": self._ask,
            "ha.claim": self._claim,
            "ha.replicate": _refuse_single_queues,
        }
        later: dict[str, LaterHandler] = {
            "ha.promote": self._promote,
            "ha.relocate": self._relocate,
            "ha.demote": self._demote,
            "ha.member": Brokers(node.local, lambda: node.role).request,
        }
        if files is not None:
            later |= {"ha.dump": files.dump, "ha.salvage": files.salvage}
        later |= archive or {}
        super().__init__(node.local.settings.username, now, later)

    def _promote(self, arguments: Json, user: str, reply: Reply) -> None:
        """`ha.promote`: force, behind, takeover, and in_sync, the set that the manager has on record; see `Wish`."""
        known = InSync.from_json(arguments["in_sync"]) if arguments.get("in_sync") else InSync()
        flags = {name: bool(arguments.get(name)) for name in ("force", "behind", "takeover")}
        self._node.promote(reply, Wish(**flags, known=known))

    def _relocate(self, arguments: Json, user: str, reply: Reply) -> None:
        """`ha.relocate`: to, the name, id or address of a backup; without it the one that has acknowledged most."""
        self._node.relocate(str(arguments.get("to") or ""), reply)

    def _demote(self, arguments: Json, user: str, reply: Reply) -> None:
        """`ha.demote`: step down in place; a backup answers ok and changes nothing."""
        node, local = self._node, self._local
        # Not from within this call: the request came over a connection that will be closed.
        local.env.after(0.0, lambda: node.demote(f"requested by {user or 'an administrator'}"))
        local.env.after(0.0, lambda: reply({"ok": True, "result": {}}))

    def _ask(self, arguments: Json, user: str) -> Json:
        """`ha.ask`: our view.  The question carries the asking broker's ballot; a primary with a lower one is
        deposed.  `store`: whether our disk takes a vote now, tried before the answer."""
        node, local = self._node, self._local
        if arguments.get("id") and self.may_steer(user):
            asker = Member.from_json(arguments)
            local.cluster.asked(asker, ages(arguments))
            local.cluster.refusals.alive(asker.address)
            if asker.id == local.id and asker.instance != local.instance:
                local.sightings.seen(asker, local.member, "it asks us")
            ballot = need_epoch(arguments), need_text(arguments, "leader")
            local.cluster.check_epoch(ballot[0], asker)
            if isinstance(node.role, Primary) and ballot > local.persisted.ballot:
                node.depose(ballot, f"{arguments['id'][:8]} has granted epoch {ballot[0]}", "")
            if isinstance(node.role, Backup) and asker.id != local.id:
                node.role.asked_by(asker.id)
        tried = {"stores": local.try_disk()} if arguments.get("store") and self.may_steer(user) else {}
        return {**node.view().to_json(), "score": node.candidacy.score, **tried}

    def _claim(self, arguments: Json, user: str) -> Json:
        return self._node.claimed(ClaimRequest.from_json(arguments))

    def _status(self, arguments: Json, user: str) -> Json:
        node, local = self._node, self._local
        stall = node.stall()
        return {
            "state": local.state.value,
            "name": local.settings.name,
            "id": local.id,
            "epoch": local.epoch,
            "score": node.candidacy.score,
            "stalled": stall["why"] if stall else "",
            "advice": node.advice(),
            "alarms": node.alarms(),
            "twins": local.sightings.shown(),
        }

    def _query(self, arguments: Json, user: str) -> Json:
        node, local = self._node, self._local
        return {
            "status": local.state.value,
            "name": local.settings.name,
            "broker_id": local.id,
            "brokers_url": ",".join(local.cluster.brokers),
            "public_url": local.settings.public_url,
            "replicate": local.settings.replicate,
            "safety": local.settings.safety,
            "epoch": local.epoch,
            "position": node.role.position,
            "safe": local.engine.safe,
            "whole": local.whole,
            "in_sync": local.persisted.in_sync.to_json(),
            "members": node.role.members(),
            "primary": node.role.primary_address,
            "stalled": node.stall(),
            "isolated": bool(node.role.isolation),
            "advice": node.advice(),
            "alarms": node.alarms(),
            "twins": local.sightings.shown(),
        }


def _refuse_single_queues(arguments: Json, user: str) -> Json:
    raise LinkError("a member of a cluster follows its primary only; single queues are for brokers outside")
