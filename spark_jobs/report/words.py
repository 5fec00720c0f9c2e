"""Kinds, phases, states and verdicts in words (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_jobs.data import Row, table
from spark_jobs.solve.signs import MANAGER, attr

WORDS: Final = table(__package__, "words")
PHASES: Final[dict[str, tuple[str, str]]] = {name: tuple(both) for name, both in WORDS["phases"].items()}
"""phase → (name, from where to where)"""

TYPES: Final[dict[str, str]] = WORDS["types"]

STAYED: Final = ("no-failover", "false-alarm")
"""Types of incidents in which the primary stayed."""

STATES: Final[dict[str, str]] = WORDS["states"]
"""State of a band in the drawing → what it is called."""

VERDICTS: Final[dict[str, str]] = WORDS["verdicts"]
CAUSES: Final[dict[str, str]] = WORDS["causes"]


def plain(kind: str) -> str:
    return kind.replace("_", " ").replace("-", " ")


def why(text: str | None) -> str:
    """Of an outage: `confirm+connection`."""
    parts = [WORDS["why"].get(part, part) for part in (text or "").split("+") if part]
    return ", ".join(parts) or "unknown"


def _because(event: Row) -> str:
    reason = event.get("reason")
    return f": {reason}" if reason else ""


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


def _relocate(event: Row) -> str:
    result = {"begin": "begins", "done": "is done"}.get(
        str(event.get("result")), f"is {event.get('result') or 'asked for'}"
    )
    return f"relocation to {_peer(event)} {result}{_because(event)}"


def _promote_request(event: Row) -> str:
    if event.get("result") == "refused":
        return f"promotion refused{_because(event)}"
    # of a broker the request is about itself
    about = event.get("peer") or _node(event)
    return f"promotion of {about} was asked for{_because(event)}"


def _late(event: Row) -> str:
    what = "is late and leaves the in-sync set" if event.get("result") == "begun" else "may return to the in-sync set"
    return f"{_node(event)}: the backup {_peer(event)} {what}{_because(event)}"


def _isolated(event: Row) -> str:
    return f"{_node(event)} is {'no longer ' if event.get('result') == 'ended' else ''}isolated{_because(event)}"


_SENTENCES: Final[dict[str, Callable[[Row], str]]] = {
    "state": _state,
    "membership": _membership,
    "token_lost": _token,
    "plan": _plan,
    "fence_op_done": _fenced,
    "promote_request": _promote_request,
    "promoted": lambda e: f"{_peer(e) if e.get('source') == MANAGER else _node(e)} is promoted",
    "backup_late": _late,
    "resumed": lambda e: f"{_node(e)}: {WORDS['resumed'].get(str(e.get('result')), 'ran again')}",
    "isolated": _isolated,
    "relocate": _relocate,
}


class _Word(str):
    """What stands behind the colon of a place in a sentence is said if the word is empty."""

    def __format__(self, spec: str) -> str:
        return str(self) or spec


class _Words:
    """The words of a fact, by the names that sentences have for them."""

    def __init__(self, event: Row) -> None:
        self._event = event

    def __getitem__(self, name: str) -> _Word:
        event = self._event
        made: dict[str, Callable[[Row], str]] = {
            "node": _node, "peer": _peer, "because": _because, "peer_or_none": lambda e: str(e.get("peer") or ""),
            "who": lambda e: str(e.get("peer") or _node(e)), "host": lambda e: attr(e, "host_name") or _peer(e),
        }  # fmt: skip
        return _Word(made[name](event) if name in made else str(event.get(name) or "") or attr(event, name))


_OPERATIONS: Final = ("op_result", "op_request", "op_confirmed", "op_unexpected", "initiate", "sched_failed_op")


def sentence(event: Row) -> str:
    """What a fact says, in a few words."""
    kind = str(event["kind"])
    if kind in _OPERATIONS:
        return _operation(event)
    made = _SENTENCES.get(kind)
    if made is not None:
        return made(event)
    if kind in WORDS["sentences"]:
        return str(WORDS["sentences"][kind]).format_map(_Words(event))
    more = [str(event[name]) for name in ("peer", "new", "result", "reason") if event.get(name)]
    return f"{_node(event)}: {plain(kind)}" + (f" {', '.join(more)}" if more else "")
