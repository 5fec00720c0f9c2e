"""Pairs of lines on two nodes in Pacemaker's and Corosync's own logs (pure).

    initiate -> request     the DC's `Initiating`, the target's `Requesting local execution`   transition, action
    result -> confirmed     the target's `Result of`, the DC's `confirmed`                     chained by the request
    ring                    `A new membership` with one ring id: one moment, on all members
    attr                    `Setting NAME[..]: old -> new from WRITER`: one broadcast, on all nodes

Transition numbers begin anew with each DC.  A request names the DC's run by its uuid, an initiate by the process that
wrote it: a uuid belongs to that process with which it has the most actions in common; if two have the same number, to
the one whose delays differ least.  Which node's clock is right plays no part, so hours between them do no harm.
A wrong pair would make bounds wrong, so what is not unique is left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from statistics import median
from typing import Final

from spark_jobs.schema import Event

LONGEST: Final = 600_000_000
"""us from a request to its result, at most."""
_MIN_AGREEING: Final = 3
Pair = tuple[str, Event, Event]
Life = tuple[str, str]
"""(node, pid) of a controld"""
Action = tuple[str, str, str]
"""(transition, action, target)"""


def operation_links(rows: Iterable[Event]) -> list[Pair]:
    """(kind, cause, effect) of all operations, with both ends on any nodes; `rows` by time."""
    started: dict[Life, dict[Action, list[Event]]] = defaultdict(lambda: defaultdict(list))
    asked: dict[str, dict[Action, list[Event]]] = defaultdict(lambda: defaultdict(list))
    done: dict[Life, dict[Action, list[Event]]] = defaultdict(lambda: defaultdict(list))
    results: dict[Life, list[Event]] = defaultdict(list)
    for event in rows:
        attrs = event.get("attrs") or {}
        life = (event["node"], attrs.get("pid", ""))
        action = (attrs.get("trans", ""), attrs.get("action", ""), attrs.get("target", ""))
        if event["kind"] == "op_result":
            results[life].append(event)
        elif not all(action) or event.get("source") != "pacemaker":
            continue
        elif event["kind"] == "initiate":
            started[life][action].append(event)
        elif event["kind"] == "op_confirmed":
            done[life][action].append(event)
        elif event["kind"] == "op_request" and event["node"] == attrs["target"]:
            asked[attrs.get("uuid", "")][action].append(event)
    found: list[Pair] = []
    for uuid in sorted(asked):
        dc = _life(started, asked[uuid])
        if dc is not None:
            found += _of_run(started[dc], asked[uuid], done[dc], results)
    return found


def _life(started: dict[Life, dict[Action, list[Event]]], asked: dict[Action, list[Event]]) -> Life | None:
    """The process that began these actions."""
    ranked = sorted(
        (-len(delays), spread, life)
        for life, of in started.items()
        if (delays := _delays(of, asked)) and (spread := _spread(delays)) is not None
    )
    if not ranked or (len(ranked) > 1 and ranked[0][:2] == ranked[1][:2]):
        return None
    return ranked[0][2]


def _delays(started: dict[Action, list[Event]], asked: dict[Action, list[Event]]) -> list[tuple[str, int]]:
    return [
        (action[2], asked[action][0]["ts_wall"] - started[action][0]["ts_wall"])
        for action in asked
        if len(asked[action]) == 1 and len(started.get(action, ())) == 1
    ]


def _spread(delays: Sequence[tuple[str, int]]) -> int:
    """How much the delays to one target differ: a constant difference of clocks plays no part."""
    by_target: dict[str, list[int]] = defaultdict(list)
    for target, delay in delays:
        by_target[target].append(delay)
    return max(max(of) - min(of) for of in by_target.values())


def _of_run(
    started: dict[Action, list[Event]],
    asked: dict[Action, list[Event]],
    done: dict[Action, list[Event]],
    results: dict[Life, list[Event]],
) -> Iterator[Pair]:
    for action in sorted(asked):
        if len(asked[action]) != 1:
            continue
        request = asked[action][0]
        if len(started.get(action, ())) == 1:
            yield "initiate", started[action][0], request
        if len(done.get(action, ())) == 1:
            confirmed = done[action][0]
            result = _result(results[request["node"], request["attrs"].get("pid", "")], request, confirmed)
            if result is not None:
                yield "result", result, confirmed


def _result(results: list[Event], request: Event, confirmed: Event) -> Event | None:
    """The target's next result of the operation, if the call's number agrees; on one node, so its clock will do."""
    begin = bisect_right(results, request["ts_wall"], key=lambda event: event["ts_wall"] + (event.get("ts_res") or 1))
    call = confirmed["attrs"].get("call")
    for event in results[begin:]:
        if event["ts_wall"] - request["ts_wall"] > LONGEST:
            return None
        attrs = event["attrs"]
        if attrs.get("op") == request["attrs"].get("op") and "op" in attrs:
            return event if call is None or attrs.get("call") == call else None
    return None


def ring_pairs(rows: Iterable[Event]) -> Iterator[tuple[Event, Event]]:
    """Lines of two nodes about one ring; a ring that one node formed twice began anew and says nothing."""
    rings: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in rows:
        ring = (event.get("attrs") or {}).get("ring")
        if event["kind"] == "membership" and event.get("source") in ("corosync", "syslog") and ring:
            rings[ring][event["node"]].append(event)
    for nodes in rings.values():
        if all(len(of) == 1 for of in nodes.values()):
            yield from combinations((of[0] for of in nodes.values()), 2)


def attribute_pairs(rows: Iterable[Event], spread: int) -> Iterator[tuple[Event, Event]]:
    """Lines of two nodes about one broadcast: what both wrote once.

    A node that joins is told old values again, so pairs count only if most of two nodes' pairs agree.
    """
    keys: dict[tuple[str | None, ...], dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in rows:
        attrs = event.get("attrs") or {}
        if event["kind"] == "attr" and event.get("source") == "pacemaker" and attrs.get("name", "#")[0] != "#":
            key = (attrs["name"], attrs.get("target"), event.get("old"), event.get("new"), attrs.get("writer"))
            keys[key][event["node"]].append(event)
    pairs: dict[tuple[str, str], list[tuple[Event, Event]]] = defaultdict(list)
    for nodes in keys.values():
        once = [of[0] for node, of in sorted(nodes.items()) if len(of) == 1]
        for one, other in combinations(once, 2):
            pairs[one["node"], other["node"]].append((one, other))
    for of in pairs.values():
        yield from _agreeing(of, spread)


def _agreeing(pairs: list[tuple[Event, Event]], spread: int) -> list[tuple[Event, Event]]:
    middle = median(other["ts_wall"] - one["ts_wall"] for one, other in pairs)
    near = [(one, other) for one, other in pairs if abs(other["ts_wall"] - one["ts_wall"] - middle) <= spread / 2]
    return near if len(near) >= _MIN_AGREEING and 2 * len(near) > len(pairs) else []
