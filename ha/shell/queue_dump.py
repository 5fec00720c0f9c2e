"""The content of the durable queues as events `queue_dump`, so that reports know unconsumed messages as still there.

Each queue has one row without `msg_id`: `attrs.total` messages between `first_pos` and `last_pos`, of which
`attrs.count` are not named by the following rows (0: all are named); then a row for each run of ids, as in
`removals.py`.  `attrs.dump` is the same in all rows of one dump.  A dump has at most ROWS rows with ids, a queue at
most ROWS_OF_QUEUE.
                                                                                                                 Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final

from ha.model.environment import Environment, Json, Reply
from ha.node import Node
from ha.primary.removals import joined, run_attrs
from qpidd_py.core import IdRuns, Queue, reading
from qpidd_py.errors import LinkError

ROWS: Final = 10_000
ROWS_OF_QUEUE: Final = 1_000
SLICE: Final = 250
"""Events in one turn, and those of one queue more."""
MESSAGES: Final = 20_000
"""Messages of one queue that are looked at in one turn: some milliseconds.  What leaves a longer queue meanwhile may be
named."""


def dump(env: Environment, queues: Iterable[Queue], reason: str) -> Json:
    """Write the events.  Returns the numbers of queues, messages, and messages without a named id."""
    steps = dump_steps(env, queues, reason)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            sums: Json = end.value
            return sums


def dump_steps(env: Environment, queues: Iterable[Queue], reason: str) -> Generator[None, None, Json]:
    """The same, in slices of SLICE events or MESSAGES of a queue."""
    number, room, written = str(env.wall()), ROWS, 0
    sums: Json = {"queues": 0, "messages": 0, "unnamed": 0}
    for queue in queues:
        if queue.deleted:
            continue
        runs = IdRuns(min(room, ROWS_OF_QUEUE))
        yield from reading.name_in_parts(queue, runs, MESSAGES)
        room -= len(runs.named)
        total, unnamed = _dump_queue(env, queue.label, runs, {"reason": reason}, number)
        sums["queues"] += 1
        sums["messages"] += total
        sums["unnamed"] += unnamed
        written += 1 + len(runs.named)
        if written >= SLICE:
            written = 0
            yield
    return sums


def dump_on_request(node: Node, queues: Iterable[Queue], reply: Reply, lost: Callable[[], tuple[int, str]]) -> None:
    """`ha.dump`, one slice in each turn.  `lost`: how many events were not written, ever, and why.  Raises LinkError on
    a backup, whose content is not authoritative."""
    if not node.local.state.is_primary:
        raise LinkError(node.role.refusal_text())
    steps, before = dump_steps(node.local.env, list(queues), "request"), lost()[0]

    def trouble() -> str:
        number, reason = lost()
        return reason if number > before else "" if node.local.state.is_primary else node.role.refusal_text()

    def answer(sums: Json) -> None:
        reason = trouble()
        reply({"ok": False, "error": f"the dump is not complete: {reason}"} if reason else {"ok": True, "result": sums})

    def step() -> None:
        if trouble():
            answer({})
            return
        try:
            next(steps)
        except StopIteration as end:
            answer(end.value)
        else:
            node.local.env.after(0.0, step)

    step()


def _dump_queue(env: Environment, name: str, runs: IdRuns, common: Json, number: str) -> tuple[int, int]:
    whole, unnamed = runs.unnamed, runs.unnamed[0]
    for _, _, *part in runs.named:
        whole = joined(whole, (part[0], part[1], part[2]))
    attrs = {"dump": number, "total": whole[0], "count": unnamed}
    env.event("queue_dump", queue=name, first_pos=whole[1] or None, last_pos=whole[2] or None, attrs=attrs, **common)
    for first, last, count, low, high in runs.named:
        attrs = {"dump": number, **run_attrs(first, last, count)}
        env.event("queue_dump", queue=name, first_pos=low, last_pos=high, msg_id=first, attrs=attrs, **common)
    return whole[0], unnamed
