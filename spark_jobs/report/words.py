"""Kinds, phases, states and verdicts in words (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_jobs.solve.signs import MANAGER

Row = Mapping[str, Any]
PHASES: Final = {
    "fault": ("Fault", "the last sign of life until the first sign of death: the failure is somewhere in it"),
    "detection": ("Detection", "the first sign of death until it was known"),
    "decision": ("Decision", "known until decided"),
    "fencing": ("Fencing", "asked for until done"),
    "promotion": ("Promotion", "asked for until done"),
    "recovering": ("Recovering", "promoted until active"),
    "path": ("Path", "promoted until the address of clients was up"),
    "first_client": ("First client", "promoted until the first client went on"),
    "all_clients": ("All clients", "promoted until the last client went on"),
    "redundancy": ("Redundancy", "promoted until every backup was ready again"),
}
"""phase → (name, from where to where)"""
TYPES: Final = {
    "crash": "node crash",
    "hang": "hang",
    "partition": "partition",
    "kill": "process died",
    "power-loss": "power loss",
    "controller": "cluster software failed",
    "planned": "planned switch-over",
    "no-failover": "no fail-over",
    "false-alarm": "false alarm",
    "fencing": "a node was fenced",
    "down": "cluster software stopped",
    "moved": "resources moved",
    "unknown": "unknown cause",
}
STAYED: Final = ("no-failover", "false-alarm")
"""Types of incidents in which the primary stayed."""
STATES: Final = {
    "active": "active primary",
    "recovering": "primary, recovering",
    "promoted": "primary",
    "ready": "ready backup",
    "catchup": "backup, catching up",
    "joining": "joining",
    "standalone": "alone",
    "unpromoted": "backup",
    "up": "up, cluster software runs",
    "hung": "hangs",
    "down": "down",
    "unknown": "unknown",
}
"""State of a band in the drawing → what it is called."""
VERDICTS: Final = {
    "lost": "confirmed, never delivered, and all logs that could say otherwise are complete",
    "unaccounted": "confirmed, not seen again; the logs are not enough to say that it is lost",
    "explained": "confirmed, not delivered, and a log line says why",
    "unexpected": "delivered, and no known client has sent it",
    "duplicated": "delivered more often than sent",
    "recovered": "never confirmed, and delivered all the same",
    "refused": "refused to the sender, and never delivered",
    "unknown": "never confirmed, never seen: allowed",
    "ok": "sent once, delivered once",
}
CAUSES: Final = {
    "redelivered": "marked as redelivered: allowed",
    "resend": "sent again by its producer: allowed",
    "unmarked": "nothing marks it: a finding",
    "": "no cause known",
}
WHY: Final = {
    "confirm": "no confirm came",
    "deliver": "nothing was delivered",
    "connection": "it had no connection",
    "go-ahead": "the broker had asked it to pause",
}


def plain(kind: str) -> str:
    return kind.replace("_", " ").replace("-", " ")


def why(text: str | None) -> str:
    """Of an outage: `confirm+connection`."""
    parts = [WHY.get(part, part) for part in (text or "").split("+") if part]
    return ", ".join(parts) or "unknown"


def attr(event: Row, name: str) -> str:
    return str((event.get("attrs") or {}).get(name) or "")


def _because(event: Row) -> str:
    reason = event.get("reason")
    return f": {reason}" if reason else ""


def _late(event: Row) -> str:
    return "is late and leaves the in-sync set" if event.get("result") == "begun" else "may return to the in-sync set"


def _peer(event: Row) -> str:
    return str(event.get("peer") or "an unnamed peer")


def _node(event: Row) -> str:
    return str(event.get("node") or "an unnamed node")


def _state(event: Row) -> str:
    about = _peer(event) if event.get("source") == MANAGER else _node(event)
    return f"{about} {event.get('old') or '?'} → {event.get('new') or '?'}{_because(event)}"


def _membership(event: Row) -> str:
    if event.get("peer"):
        return f"{_node(event)}: {_peer(event)} is {plain(str(event.get('result') or 'changed'))}"
    moved = [f"{word} {attr(event, word)}" for word in ("joined", "left") if attr(event, word)]
    return f"{_node(event)}: new ring {attr(event, 'ring')}" + (f" ({', '.join(moved)})" if moved else "")


def _token(event: Row) -> str:
    times = [f"{attr(event, name)} ms {what}" for name, what in _TOKEN_TIMES if attr(event, name)]
    return f"{_node(event)}: token lost" + (f" ({', '.join(times)})" if times else "")


_TOKEN_TIMES: Final = (("token", "without it"), ("consensus", "for consensus"))


def _operation(event: Row) -> str:
    what = " ".join(filter(None, (attr(event, "task") or "operation", attr(event, "resource"))))
    where = attr(event, "target") or event.get("peer") or event.get("node") or "an unnamed node"
    verb = {"initiate": "asked for", "op_request": "begun", "op_confirmed": "confirmed"}.get(str(event["kind"]))
    result = verb or f"{event.get('result') or 'done'}"
    reason = f" ({event['reason']})" if event.get("reason") else ""
    return f"{what} on {where}: {result}{reason}"


def _plan(event: Row) -> str:
    change = " → ".join(filter(None, (event.get("old"), event.get("new"))))
    about = " ".join(filter(None, (attr(event, "task"), attr(event, "resource"), _peer(event))))
    return f"planned: {about}" + (f" ({change})" if change else "") + _because(event)


def _fenced(event: Row) -> str:
    if event.get("result") == "OK":
        return f"{_peer(event)} was fenced ({attr(event, 'fence') or 'done'})"
    return f"fencing of {_peer(event)}: {event.get('result') or 'unknown result'}"


def _fsa(event: Row) -> str:
    return f"{_node(event)}: controller {event.get('old')} → {event.get('new')}"


def _relocate(event: Row) -> str:
    result = {"begin": "begins", "done": "is done"}.get(
        str(event.get("result")), f"is {event.get('result') or 'asked for'}"
    )
    return f"relocation to {_peer(event)} {result}{_because(event)}"


_RESUMED: Final = {
    "begun": "ran again after a pause, and confirms nothing until it has asked the others",
    "ended": "found no rival after its pause",
}


def _promote_request(event: Row) -> str:
    if event.get("result") == "refused":
        return f"promotion refused{_because(event)}"
    # of a broker the request is about itself
    about = event.get("peer") or _node(event)
    return f"promotion of {about} was asked for{_because(event)}"


_SENTENCES: Final[dict[str, Callable[[Row], str]]] = {
    "state": _state,
    "membership": _membership,
    "token_lost": _token,
    "token_warning": lambda e: f"{_node(e)}: no token for {attr(e, 'ms')} ms",
    "plan": _plan,
    "fsa": _fsa,
    "fence_op_done": _fenced,
    "promote_request": _promote_request,
    "fence_request": lambda e: f"fencing of {_peer(e)} was asked for",
    "fence_delay": lambda e: f"{attr(e, 'device')} waits {attr(e, 'delay')} before it fences {_peer(e)}",
    "fence_device": lambda e: f"{_node(e)} may fence by {attr(e, 'device')}",
    "stop_request": lambda e: f"{_node(e)}: {attr(e, 'daemon')} is asked to stop",
    "fence_notify": lambda e: f"{_node(e)} was told of the fencing of {_peer(e)}",
    "will_fence": lambda e: f"{_peer(e)} will be fenced{_because(e)}",
    "self_fenced": lambda e: f"{_node(e)} learned that it was fenced",
    "fenced_self": lambda e: f"{_node(e)} ended itself{_because(e)}",
    "promoted": lambda e: f"{_peer(e) if e.get('source') == MANAGER else _node(e)} is promoted",
    "demote": lambda e: f"{_node(e)} steps down{_because(e)}",
    "primary_lost": lambda e: f"{_node(e)} lost the primary {e.get('peer') or ''}{_because(e)}",
    "backup_lost": lambda e: f"{_node(e)} lost the backup {_peer(e)}{_because(e)}",
    "backup_late": lambda e: f"{_node(e)}: the backup {_peer(e)} {_late(e)}{_because(e)}",
    "backup_connected": lambda e: f"{_node(e)}: the backup {_peer(e)} is connected",
    "resumed": lambda e: f"{_node(e)}: {_RESUMED.get(str(e.get('result')), 'ran again')}",
    "twin": lambda e: f"{_node(e)} has seen two brokers with one identity{_because(e)}",
    "catchup_begin": lambda e: f"{_node(e)} begins to catch up",
    "catchup_end": lambda e: f"{_node(e)} has caught up",
    "isolated": lambda e: f"{_node(e)} is {'no longer ' if e.get('result') == 'ended' else ''}isolated{_because(e)}",
    "exit": lambda e: f"the process of {_peer(e)} ended{_because(e)}",
    "hung": lambda e: f"{_peer(e)} does not answer{_because(e)}",
    "awake": lambda e: f"{_peer(e)} answers again",
    "kill": lambda e: f"{_peer(e)} is killed{_because(e)}",
    "start": lambda e: f"{e.get('peer') or _node(e)} starts",
    "stop": lambda e: f"{e.get('peer') or _node(e)} stops{_because(e)}",
    "stopped": lambda e: f"{_node(e)}: {attr(e, 'daemon') or 'the cluster software'} stopped",
    "log_end": lambda e: f"{_node(e)}: the log ends in order",
    "election": lambda e: f"a primary is to be elected{_because(e)}",
    "no_primary": lambda e: f"there is no primary{_because(e)}",
    "claim": lambda e: f"{_node(e)}: the claim of {_peer(e)} was {e.get('result') or 'heard'}{_because(e)}",
    "daemon_exit": lambda e: f"{_node(e)}: {attr(e, 'child') or 'a daemon'} {e.get('result') or 'ended'}",
    "sched_pause": lambda e: f"{_node(e)} was not scheduled for {attr(e, 'ms')} ms",
    "peer_state": lambda e: f"{_node(e)}: {_peer(e)} {e.get('old') or '?'} → {e.get('new') or '?'}",
    "quorum": lambda e: f"{_node(e)}: quorum {e.get('new') or 'changed'}",
    "quorum_state": lambda e: f"{_node(e)} is in the {e.get('new')} component",
    "no_links": lambda e: f"{_node(e)}: no link to {attr(e, 'host_name') or _peer(e)}",
    "link_down": lambda e: f"{_node(e)}: link to {attr(e, 'host_name') or _peer(e)} is down",
    "leave_missed": lambda e: f"{_node(e)}: {attr(e, 'nodes') or 'a node'} left without a word",
    "relocate": _relocate,
    "clock": lambda e: f"{_node(e)} heard from {_peer(e)}",
    "repl_send": lambda e: f"{_node(e)} sent to its backups",
    "repl_recv": lambda e: f"{_node(e)} received from the primary",
    "confirm_sent": lambda e: f"{_node(e)} confirmed messages",
    "torn": lambda e: "the last line of the log has no end",
    "lines_dropped": lambda e: f"{_node(e)}: {attr(e, 'count') or 'some'} lines were dropped by the system log",
}
_OPERATIONS: Final = ("op_result", "op_request", "op_confirmed", "op_unexpected", "initiate", "sched_failed_op")


def sentence(event: Row) -> str:
    """What a fact says, in a few words."""
    kind = str(event["kind"])
    if kind in _OPERATIONS:
        return _operation(event)
    made = _SENTENCES.get(kind)
    if made is not None:
        return made(event)
    more = [str(event[name]) for name in ("peer", "new", "result", "reason") if event.get(name)]
    return f"{_node(event)}: {plain(kind)}" + (f" {', '.join(more)}" if more else "")
