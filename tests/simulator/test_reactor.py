"""The simulator's reactor is the real one's image, and does what a seed asks of it."""

from __future__ import annotations

import re
import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import qpidd_py.core
from qpidd_py.core import Connection, Engine
from qpidd_py.core import Reactor as RealReactor
from tests.simulator.mistakes_reactor import settled_with_the_write
from tests.simulator.plan import plan
from tests.simulator.reactor import REAL, Reactor, Socket
from tests.simulator.scenario import Scenario
from tests.simulator.scheduler import Scheduler
from tests.simulator.simulation import Simulation
from tests.support.memory import MemoryClient

HEADER = b"AMQP\0\0\x09\x01"


class Owner:
    """Of connections; notes what they have read, and how they have ended."""

    def __init__(self) -> None:
        self.headers = 0
        self.gone: list[str] = []

    def protocol_header(self, header: bytes) -> None:
        self.headers += 1

    def closed(self, reason: str) -> None:
        self.gone.append(reason)

    def output_ready(self) -> None:
        pass


def test_the_limits_are_those_of_the_real_one() -> None:
    source = (Path(qpidd_py.core.__file__).parent / "reactor.pyx").read_text()
    found = {name: int(value) for name, value in re.findall(r"^ {4}([A-Z_]+) = (\d+)", source, re.MULTILINE)}
    assert found.pop("SMALL_READ") < REAL.octets, "of a link that is slow to apply; seeds draw smaller ones for all"
    assert found == {
        "READ_SIZE": REAL.octets,
        "READS": REAL.reads,
        "EVENTS": REAL.events,
        "ROUNDS": REAL.rounds,
    }


def image(engine: Engine, limits: Any = REAL) -> Reactor:
    options = {"reactor": {**vars(limits), "partly": 0.0, "seconds": 0.0}}
    simulation = SimpleNamespace(
        scenario=Scenario("1", "quorum", 3, options=options), history=SimpleNamespace(counts=Counter())
    )
    process: Any = SimpleNamespace(
        name="a", life=1, simulation=simulation, scheduler=Scheduler(1), engine=engine, busy_until=0.0
    )
    return Reactor(process)


def in_image(reactor: Reactor, engine: Engine, owner: Owner) -> Any:
    """A connection of it; the end of its peer."""
    end: Any = SimpleNamespace(peer_host=None, full=False, send=lambda data: None)
    connection = Connection(engine, owner)
    Socket(reactor, end, connection, lambda: connection.take_output(False), owner.closed)
    return end


@pytest.mark.parametrize(("connections", "turns"), [(1, 1), (63, 1), (64, 1), (65, 2), (130, 3)])
def test_both_serve_so_many_connections_in_a_turn(connections: int, turns: int) -> None:
    real, engine, owner = RealReactor(real_engine := Engine()), Engine(), Owner()
    mine = image(engine)
    pairs = [socket.socketpair() for _ in range(connections)]
    for near, far in pairs:
        near.setblocking(False)
        real.add(Connection(real_engine, owner), near)
        far.send(HEADER)
        in_image(mine, engine, owner).on_data(HEADER)
    while owner.headers < connections:
        real.poll()
    for _ in mine.poll():
        pass
    assert mine.turns == turns
    assert real.turns >= turns, "more where processor time is scarce: its turns end after some time, too"
    assert owner.headers == 2 * connections
    for _, far in pairs:
        far.close()
    while len(owner.gone) < connections:
        real.poll()


def test_a_turn_reads_no_more_than_its_share_of_a_connection() -> None:
    limits = SimpleNamespace(octets=3, reads=2, events=64, rounds=1)
    engine, owner = Engine(), Owner()
    reactor = image(engine, limits)
    end = in_image(reactor, engine, owner)
    end.on_data(HEADER)
    end.on_closed("closed by the peer")
    polls = 0
    while reactor.sockets:
        assert (owner.headers, owner.gone) == (int(polls == 2), [])
        list(reactor.poll())
        polls += 1
    assert (polls, owner.headers, owner.gone) == (3, 1, ["closed by the peer"])


def test_seeds_cut_reads_take_writes_in_part_and_let_time_pass() -> None:
    total: Counter[str] = Counter()
    for seed in range(12):
        simulation = Simulation(plan(seed, "quorum"))
        simulation.run()
        total += simulation.history.counts
    for what in ("reads cut short", "writes taken in part", "turns that take time", "acknowledgements that linger"):
        assert total[what] > 20, total


def test_a_delivery_is_settled_when_its_last_octet_has_left() -> None:
    assert settled_in_part() == [0, 0, 1]
    with settled_with_the_write():
        assert settled_in_part() == [0, 1, 1], "so the test can fail"


def settled_in_part() -> list[int]:
    """How many of one delivery without acknowledgement are settled: before it is written, after all but one octet have
    left, and after that one."""
    engine = Engine()
    work = engine.create_queue(1, "work", False)
    reader = MemoryClient(engine, work=work)
    reader.channel.consume(work, "r", True)
    reactor: Any = image(engine)
    end: Any = SimpleNamespace(peer_host=None, full=False, open=True, send=lambda data: None)
    near = Socket(reactor, end, reader.connection, lambda: reader.connection.take_output(False), lambda reason: None)
    reader.publish(b"job", "work")
    engine.end_turn()
    settled = [work.dequeued]
    for missing in (1, 0):
        reactor.fits = lambda octets, slow, missing=missing: (octets - missing, 0.0)
        near._waits = False  # there is room
        near.flush()
        engine.end_turn()
        settled.append(work.dequeued)
    return settled
