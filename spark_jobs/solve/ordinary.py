"""The type of an incident of a cluster that runs ordinary resources, or of whose primary no log here knows (pure).

What is denied (`no log here says`) is looked for in all that may have been at the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_jobs.schema import Event
from spark_jobs.solve.bounds import Bound, Phase
from spark_jobs.solve.signs import (
    CLUSTER,
    Facts,
    attr,
    by_hand,
    certainly_before,
    is_done,
    is_failed_monitor,
    is_fenced,
    is_loss,
    is_request,
    matches,
    select,
    subject,
)

FEWEST: Final = 2
"""Nodes of a cluster."""


@dataclass(frozen=True)
class Cause:
    type: str
    why: str = ""
    evidence: tuple[Event, ...] = ()
    victim: str | None = None
    about: str = ""
    """The node that failed, where no primary is known."""


def of(facts: Facts, rows: Sequence[Event]) -> Cause:
    """Pacemaker's own view of a cluster that runs something else, or whose other logs are not here."""
    fenced, asked = select(rows, "fence_op_done", "fence_notify"), select(rows, "fence_request", "will_fence")
    died, left, tokens = select(rows, "daemon_exit"), [*filter(is_loss, rows)], select(rows, "token_lost")
    reset = select(rows, "sbd_reset")
    stopped = [event for event in select(rows, "stopped") if attr(event, "daemon") == "pacemakerd"]
    stopped = stopped or select(rows, "stop_request")
    if fenced or asked:
        about = str((fenced or asked)[0].get("peer") or "")
        return Cause("fencing", fenced_node(fenced, asked, facts.around(rows)), (*asked[:2], *fenced[:2]), about=about)
    if reset:
        node = str(reset[0].get("node") or "")
        return Cause("fencing", f"node {node} was reset by its own sbd", tuple(reset[:2]), about=node)
    if died:
        return Cause("controller", failed_daemon(died[0]), tuple(died[:3]), about=died[0].get("node") or "")
    if stopped:
        return _stopped(facts, rows, stopped)
    ended = [event for event in rows if is_done(event, "stop") or is_done(event, "demote")]
    failed = [*filter(is_failed_monitor, rows)]
    if ended and not (left or tokens or failed):
        names = sorted({attr(event, "resource") for event in ended})
        asked = [*filter(is_request, rows)]
        who = "somebody changed what is to run where" if asked else "no log here says who asked"
        return Cause("moved", f"{', '.join(names)} ended in order, and {who}", (*asked[:1], ended[0]))
    if failed and not (left or tokens):
        first = next(filter(subject, failed), failed[0])
        where = f" on {subject(first)}" if subject(first) else ""
        about = f"{attr(first, 'resource')} failed{where} ({first.get('result')})"
        return Cause("unknown", about, tuple(failed[:2]), about=subject(first))
    what = "a node left" if left else "the token was lost" if tokens else "something failed"
    why = f"{what}, and no log here says which node was the primary"
    return Cause("unknown", why, tuple(left[:2] or rows[:1]))


def failed_daemon(event: Event) -> str:
    """By its end, or by what the others say of the node."""
    what = f"{attr(event, 'child')}: {event.get('result')}" if event["kind"] == "daemon_exit" else event.get("reason")
    return f"the cluster's software failed on {subject(event)} ({what})"


def _stopped(facts: Facts, rows: Sequence[Event], stops: Sequence[Event]) -> Cause:
    """Down is all of it only if every node that any log names has stopped, and none was back before."""
    nodes = sorted({str(event.get("node")) for event in stops})
    last = max(stops, key=lambda event: event["ts_est"])
    starts = [e for e in select(rows, "start") if attr(e, "daemon") == "pacemakerd" and e["ts_est"] > last["ts_est"]]
    why = f"Pacemaker was stopped on {', '.join(nodes)}"
    others = facts.members - {*nodes}
    size = max((int(attr(event, "count", "0")) for event in facts.kinds.get("members", ())), default=0)
    if not others and len(nodes) < max(FEWEST, size):
        why += ", and no log here says whether the other nodes went on"
    elif others:
        went = others & _alive_after(facts, last)
        why += f", and {', '.join(sorted(went))} went on" if went else ""
        silent = ", ".join(sorted(others - went))
        why += f", and no log here says whether {silent} went on" if silent else ""
    elif starts:
        down = Phase("down", Bound.of(last), Bound.of(starts[0]))
        why += f": all of the cluster was down for {(down.duration or 0) / 1e6:.1f} s"
        why += "" if down.limits else ", if the clocks agree"
    else:
        why += ": all of the cluster was down, and no log here shows that it was started again"
    return Cause("down", why, (*stops[:2], *starts[:1]), about=nodes[0])


def _alive_after(facts: Facts, last: Event) -> set[str]:
    """Nodes of which a line says something that is certainly later; one that starts had not gone on."""
    first: dict[str, Event] = {}
    for event in facts.rows:
        if attr(event, "daemon") == "sbd":  # which lives on without Pacemaker
            continue
        ran = matches(event, "op_result", "op_confirmed", result="ok")
        node = subject(event) if ran else str(event.get("node")) if event.get("source") in CLUSTER else ""
        if certainly_before(last, event):
            first.setdefault(node, event)
    return {node for node, event in first.items() if event["kind"] != "start"}


def fenced_node(fenced: Sequence[Event], asked: Sequence[Event], near: Sequence[Event]) -> str:
    """`node node2 was fenced, asked for by stonith_admin (an administrator's command)`"""
    peers = sorted({str(event["peer"]) for event in (*fenced, *asked) if event.get("peer")})
    done = [event for event in near if is_fenced(event) and event["peer"] in peers]
    word = "was said to be down by an administrator" if all(map(by_hand, done)) else "was fenced"
    if not {event["peer"] for event in done} >= {*peers}:
        word = "was to be fenced, and no log here says that it was"
    elif {event.get("peer") for event in select(near, "fence_assumed")} >= {*peers}:
        own = {event.get("node") for event in select(near, "sbd_reset")} >= {*peers}
        word = "was reset by its own sbd" if own else "was taken for fenced, since its watchdog had the time for it"
    by = next((attr(event, "client") for event in (*asked, *fenced) if attr(event, "client")), "")
    reason = next((event["reason"] for event in asked if event.get("reason")), "")
    name = by.partition(".")[0]
    said = f", asked for by {name}" if name else ""
    said += " (an administrator's command)" if name == "stonith_admin" else ""
    return f"node {' and '.join(peers)} {word}{said}" + (f": {reason}" if reason else "")
