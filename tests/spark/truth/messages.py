"""Stories about messages around the kill of story 1: 16, 17, 18.  p1 publishes m 1 .. 6 into `q`, c1 takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.spark.truth import processes
from tests.spark.truth.world import Files, World


@dataclass(frozen=True)
class Ledger:
    """`verdicts`: by hand, number -> (verdict, cause)."""

    name: str
    files: Files
    verdicts: Mapping[int, tuple[str, str]]


def _world() -> World:
    world = World()
    processes.kill(world)
    for name in ("p1", "c1"):
        world.broker("node1", -5.5, "client_open", client_id=name)
    return world


def _publish(world: World, numbers: Sequence[int], confirmed: Sequence[int], at: float = -2.0) -> None:
    for number in numbers:
        world.client("p1", at + number / 100, "publish", queue="q", msg_id=f"m:{number}")
    for number in confirmed:
        world.client("p1", at + number / 100 + 0.005, "confirm", queue="q", msg_id=f"m:{number}")


def _take(world: World, number: int, at: float, acked: bool = True, **more: bool) -> None:
    world.client("c1", at, "deliver", queue="q", msg_id=f"m:{number}", **more)
    if acked:
        world.client("c1", at + 0.001, "ack", queue="q", msg_id=f"m:{number}")


def _end(world: World, drained: bool) -> None:
    if drained:
        world.client("c1", 9.0, "drain_begin", queue="q")
        world.client("c1", 9.5, "drain_end", queue="q", result="ok")
    world.client("c1", 9.6, "log_end")
    world.client("p1", 9.7, "log_end")


def backlog() -> Ledger:
    """16: the consumer ended with a backlog: 5 and 6 are confirmed and not seen, but no client drained the queue."""
    world = _world()
    _publish(world, range(1, 7), range(1, 7))
    for number in range(1, 5):
        _take(world, number, -1.0 + number / 10)
    _end(world, drained=False)
    verdicts = dict.fromkeys(range(1, 5), ("ok", "")) | {5: ("unaccounted", ""), 6: ("unaccounted", "")}
    return Ledger("16 backlog not drained", world.files(), verdicts)


def lost() -> Ledger:
    """16, the other way: drained to the end, all logs complete, and 6 never came."""
    world = _world()
    _publish(world, range(1, 7), range(1, 7))
    for number in range(1, 6):
        _take(world, number, -1.0 + number / 10)
    _end(world, drained=True)
    return Ledger("16 lost", world.files(), dict.fromkeys(range(1, 6), ("ok", "")) | {6: ("lost", "")})


def explained() -> Ledger:
    """17: 2 expired, 3 was dead-lettered, 4 purged; and drained to the end."""
    world = _world()
    _publish(world, range(1, 6), range(1, 6))
    for number in (1, 5):
        _take(world, number, -1.0 + number / 10)
    world.broker("node2", 2.0, "expire", queue="q", msg_id="m:2")
    world.broker("node2", 2.1, "dead_letter", queue="q", msg_id="m:3")
    world.broker("node2", 2.2, "purge", queue="q", msg_id="m:4")
    _end(world, drained=True)
    verdicts = {1: ("ok", ""), 2: ("explained", "expire"), 3: ("explained", "dead_letter"), 4: ("explained", "purge")}
    return Ledger("17 expired, dead-lettered, purged", world.files(), verdicts | {5: ("ok", "")})


def duplicates() -> Ledger:
    """18: 1 is redelivered after the fail-over, 2 was sent twice, 3 came twice and nothing says why; 4 was in doubt
    when the primary died, was never confirmed and came; 5 was delivered twice and acknowledged once, which is one."""
    world = _world()
    _publish(world, range(1, 6), (1, 2, 3, 5))
    world.client("p1", 0.1, "resend", queue="q", msg_id="m:2", resend=True)
    for number in (1, 2, 3):
        _take(world, number, -1.0 + number / 10)
    _take(world, 1, 1.0, redelivered=True)
    _take(world, 2, 1.1)
    _take(world, 3, 1.2)
    _take(world, 4, 1.3)
    _take(world, 5, -0.4, acked=False)
    _take(world, 5, 1.4, redelivered=True)
    _end(world, drained=True)
    verdicts = {
        1: ("duplicated", "redelivered"),
        2: ("duplicated", "resend"),
        3: ("duplicated", "unmarked"),
        4: ("recovered", ""),
        5: ("ok", ""),
    }
    return Ledger("18 duplicates", world.files(), verdicts)


LEDGERS = (backlog, lost, explained, duplicates)
