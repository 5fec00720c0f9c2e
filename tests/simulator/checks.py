"""What a broker holds, and how it differs from another: the looks that the history takes into a process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qpidd_py.broker.policy_keys import POLICY
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core import Queue, decode_ids, reading
from qpidd_py.errors import InvariantError
from tests.simulator.records import Contents
from tests.simulator.scheduler import Violation

if TYPE_CHECKING:
    from ha.model.membership import InSync
    from tests.simulator.process import BrokerProcess


def name_of(body: bytes) -> str:
    """The copy whose body this is."""
    return body.partition(b"|")[0].decode(errors="replace")


Peeked = tuple[int, bool, bytes, bytes, bytes, bytes]
"""As `Queue.peek` has it."""


def readable(queue: Queue) -> list[Peeked]:
    """All messages but those that cannot be read back."""
    found: list[Peeked] = []
    low = 0
    for first, last in decode_ids(queue.rotten()):
        found += _between(queue, low, first - 1)
        low = last + 1
    return found + _between(queue, low, (1 << 64) - 1) if low else queue.peek(1 << 30)


def _between(queue: Queue, low: int, high: int) -> list[Peeked]:
    found: list[Peeked] = []
    while low <= high and (some := reading.read(queue, low, high, 1 << 30)):
        found += [(each[0], each[1], each[3], each[4], each[5], each[6]) for each in some]
        low = some[-1][0] + 1
    return found


def queues(process: BrokerProcess) -> list[DeclaredQueue]:
    """Those with names, and those of exchanges."""
    return process.broker.configurations.all_queues()


def contents(process: BrokerProcess, up_to: int = 1 << 64) -> Contents:
    """Everything in the replicated queues of a broker, of messages with ids up to `up_to`."""
    found: Contents = {}
    for queue in queues(process):
        if queue.core.replicated:
            messages = [message for message in readable(queue.core) if message[0] <= up_to]
            found[queue.name] = {name_of(message[5]): message[5] for message in messages}
    return found


def objects(process: BrokerProcess) -> frozenset[str]:
    """Queues, exchanges, bindings and policies by name."""
    vhost = process.broker.vhost
    found = [f"queue {name}" for name in vhost.queues] + [f"exchange {name}" for name in vhost.exchanges]
    found += [f"binding {binding.destination.name} {binding.source.name}" for binding in vhost.configuration.bindings()]
    found += [f"policy {key.name}" for key, _ in process.broker.settings.of(POLICY)]
    return frozenset(found)


def held_ids(process: BrokerProcess) -> dict[int, bytes]:
    return {queue.number: queue.held() for queue in process.engine.queues.values() if queue.replicated}


def check_queues(process: BrokerProcess) -> None:
    """I4."""
    for queue in process.engine.queues.values():
        try:
            queue.check()
        except InvariantError as error:
            raise Violation(f"I4: {process.name}: {error}") from error


def differ(process: BrokerProcess, wanted: dict[int, bytes], found: dict[int, bytes]) -> str:
    if wanted.keys() != found.keys():
        return f"queues {sorted(found)}, expected {sorted(wanted)}"
    for number, ids in wanted.items():
        if found[number] != ids:
            name = process.engine.queues[number].name
            return f"queue {name} holds {_hex(decode_ids(found[number]))}, expected {_hex(decode_ids(ids))}"
    return ""


def _hex(ranges: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{low >> 48}.{low & 0xFFFFFFFFFFFF}-{high & 0xFFFFFFFFFFFF}" for low, high in ranges)


def everything(process: BrokerProcess) -> dict[str, Any]:
    """Configuration and messages, without what only a primary knows (redelivered)."""
    # Position 0 has the next free queue number; one that was primary may have given out more, which does no harm.
    snapshot = process.broker.configurations.snapshot()
    found: dict[str, Any] = {"configuration": sorted(each for each in snapshot if each[0])}
    for queue in queues(process):
        if queue.core.replicated:
            messages = readable(queue.core)
            found[queue.name] = [(message[0], *message[2:]) for message in messages]
    return found


def first_difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            return f"{name}: found {str(found.get(name))[:300]}, expected {str(wanted.get(name))[:300]}"
    return ""


def usurped(process: BrokerProcess, in_sync: InSync) -> bool:
    """Has another broker with the same identity been listed in its place?"""
    member = in_sync.member(process.node.local.id)
    return member is not None and member.instance.partition(".")[0] not in ("", process.name)
