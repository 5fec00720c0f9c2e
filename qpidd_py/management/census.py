"""The numbers of all queues, for who keeps a table of them (`http/table.py`): what it costs depends on what changed.

    queue.count   {}                        how many there are
    queue.census  {history="", after=0, known=0}
                                            in parts: {"named": JSON of [[number, virtual host, name, flags, arguments,
                                            what the policies do]], "rows": those of `core/census.pyx`, in base64}, at
                                            the end {"history", "sight", "last", "total", "numbers"}.  Texts, since a
                                            part is encoded twice (`model._in_parts`)

`after` and `history` are `last` and `history` of the answer before; where the history is another one, all are told.
It ends with `sight`, the mark of the virtual hosts that are looked at (`sight.py`): rights that change begin another.
Named are those that are new, or have another policy.  `numbers`, those of all queues in base64, is there if queues have
gone, which is seen by how many are `known`.

Looks are numbered, one for each slice.  A scan is not done at once, and one that was made meanwhile may have found a
change in a queue that this one has passed; then the next one begins with the number of this one's first look, and some
are told twice.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.census import Told, look
from qpidd_py.management.events import number_of
from qpidd_py.management.hosts import hosts_of
from qpidd_py.management.request import Json, text
from qpidd_py.management.shown import show_queue_policies, to_json
from qpidd_py.management.sight import Sight, sight_of

LOOKS: Final = 500
"""Queues that are looked at in a slice."""
DURABLE: Final = 1
EXCLUSIVE: Final = 2
AUTO_DELETE: Final = 4
NO_POLICIES: Final[Mapping[str, Any]] = {"policy": "", "operator_policy": "", "effective": {}, "not_in_force": {}}
"""Told as null."""


class Census:
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._history = f"{broker.clocks()[0]:x}"
        self._looks = 0
        self.methods: Mapping[str, Callable[[Json], Any]] = {"queue.count": self._count}
        self.objects: Mapping[str, Callable[[Json], Iterator[Json | None]]] = {"queue.census": self._census}

    def _count(self, arguments: Json) -> int:
        return sum(len(vhost.queues) for vhost in hosts_of(self._broker, arguments))

    def _census(self, arguments: Json) -> Iterator[Json | None]:
        """None ends a slice."""
        mark = self._mark(arguments)
        history = f"{self._history}-{mark}"
        goes_on = text(arguments, "history", "") == history
        after, known = (int(number_of(arguments, name, 0, 0, 1 << 62)) for name in ("after", "known"))
        if not goes_on:
            after = known = 0
        queues = list(chain.from_iterable(vhost.queues.values() for vhost in hosts_of(self._broker, arguments)))
        first, own, numbers = self._looks, 0, bytearray()
        for start in range(0, len(queues), LOOKS):
            self._looks += 1
            own += 1
            part, named, some = self._part(queues[start : start + LOOKS], after)
            numbers += some
            known += named
            if part is not None:
                yield part
            yield None
        gone = goes_on and known != len(queues)
        yield {
            "history": history,
            "sight": mark,
            "last": self._looks if self._looks == first + own else first,
            "total": len(queues),
            "numbers": b64encode(numbers).decode() if gone else None,
        }

    def _mark(self, arguments: Json) -> str:
        """Of one virtual host, or of all that the asker sees."""
        host = arguments.get("vhost")
        return sight_of(arguments).mark if host is None else Sight(frozenset((str(host),))).mark

    def _part(self, queues: list[DeclaredQueue], after: int) -> tuple[Json | None, int, bytearray]:
        """What is told of these, how many are named, and their numbers."""
        told = [each.told or _tell(each) for each in queues]
        numbers, rows = look(told, self._looks, after)
        if not rows:
            return None, 0, numbers
        named = [self._named(queue) for queue, each in zip(queues, told, strict=True) if each.born > after]
        return (
            {"named": json.dumps(named, separators=(",", ":")), "rows": b64encode(rows).decode()},
            len(named),
            numbers,
        )

    def _named(self, queue: DeclaredQueue) -> list[Any]:
        flags = DURABLE * queue.durable | EXCLUSIVE * queue.exclusive | AUTO_DELETE * queue.auto_delete
        policies: Json | None = show_queue_policies(queue, self._broker)
        if policies == NO_POLICIES:
            policies = None  # a third of all octets, for most queues
        return [queue.core.number, queue.host, queue.name, flags, to_json(queue.arguments), policies]


def _tell(queue: DeclaredQueue) -> Told:
    found = queue.told = Told(queue.core)
    return found
