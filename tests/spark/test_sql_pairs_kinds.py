"""The table `pairs` for what brokers and clients tell each other: clock, connected, client_open, publish, confirm; and
for batches that name their peer.  Random logs with everything that real ones have: nodes under several names, names of
two nodes, rows twice or without their other end, readings that are none, resolutions of all kinds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.clocks import job as clock
from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import BUCKET, from_rows
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.workspace import Workspace
from tests.spark.pairs_judge import observations
from tests.spark.sql_histories import write

Row = dict[str, Any]
COLUMNS = ("sender", "receiver", "kind", "sent", "delay", "slack", "count")
KINDS = {"clock", "connected", "client_open", "publish", "confirm", "repl", "replack"}
T0 = 1_790_000_000_000_000
BROKERS = ("a", "b", "c")
CLIENTS = {"p1": "host1", "p2": "host1", "c1": "host2", "twice": "host3"}
ODD_READINGS = ("", "yesterday", "-5", "1.5", " 17", "+17", "1e6", "9" * 30)


class Logs:
    """`offsets`: us that each node's clock is ahead."""

    def __init__(self, cluster: str, seed: int) -> None:
        self.cluster, self.chance = cluster, random.Random(seed)
        self.rows: list[Row] = []
        nodes = [*BROKERS, *dict.fromkeys(CLIENTS.values()), "host4"]
        self.offsets = {node: self.chance.randrange(-3_000_000, 3_000_000) for node in nodes}

    def say(self, node: str, at: int, kind: str, source: str = "broker", **more: Any) -> None:
        res = self.chance.choice([1, 1, 1000, 4000, 1_000_000])
        wall = (T0 + at + self.offsets.get(node, 0)) // res * res
        row = {"cluster": self.cluster, "node": node, "source": source, "proc": f"{node}-1", "kind": kind}
        self.rows.append({**row, "ts_wall": wall, "ts_res": res, **more})

    def reading(self, node: str, at: int) -> str:
        if self.chance.random() < 0.1:
            return self.chance.choice(ODD_READINGS)
        return str(T0 + at + self.offsets[node])

    def delay(self) -> int:
        return 50 + round(self.chance.expovariate(1 / 3000))


def logs(cluster: str, seed: int) -> Logs:
    made = Logs(cluster, seed)
    for node in BROKERS:
        made.say(node, 0, "start", attrs={"address": f"{node}.example:5672", "broker_id": f"id-{node}"})
    for client, host in CLIENTS.items():
        made.say(host, 5, "connected", "client", client_id=client)
    made.say("host4", 6, "connected", "client", client_id="twice")  # a name of two nodes belongs to none
    for _ in range(made.chance.randrange(20, 80)):
        at = made.chance.randrange(5 * BUCKET)
        made.chance.choice([_clock, _connected, _client_open, _message, _batch])(made, at)
    return made


def _clock(made: Logs, at: int) -> None:
    one, other = made.chance.sample(BROKERS, 2)
    name = made.chance.choice([one, f"{one}.example:5672", f"id-{one}", "nobody"])
    made.say(other, at + made.delay(), "clock", peer=name, attrs={"peer_wall": made.reading(one, at)})


def _connected(made: Logs, at: int) -> None:
    broker, client = made.chance.choice(BROKERS), made.chance.choice(list(CLIENTS))
    attrs = {"peer_wall": made.reading(broker, at), "broker": made.chance.choice([broker, f"id-{broker}", ""])}
    peer = made.chance.choice([f"{broker}.example:5672", "vip:5672"])
    made.say(CLIENTS[client], at + made.delay(), "connected", "client", client_id=client, peer=peer, attrs=attrs)


def _client_open(made: Logs, at: int) -> None:
    broker, client = made.chance.choice(BROKERS), made.chance.choice([*CLIENTS, "stranger", None])
    host = CLIENTS.get(client or "", "host1")
    attrs = {"peer_wall": made.reading(host, at)} if made.chance.random() < 0.9 else {"left_out": "3"}
    made.say(broker, at + made.delay(), "client_open", client_id=client, attrs=attrs)


def _message(made: Logs, at: int) -> None:
    """Published, taken in by the broker, confirmed; each may be missing or there twice."""
    number, broker, client = len(made.rows), made.chance.choice(BROKERS), made.chance.choice(list(CLIENTS))
    ids: Row = {"queue": made.chance.choice(["q", "r", None]), "msg_id": f"{client}:{number}"}
    ids |= {"producer": client, "pub_first": number, "pub_last": number}
    for node, source, kind in (
        (CLIENTS[client], "client", "publish"), (broker, "broker", "enqueue"),
        (broker, "broker", "confirm_sent"), (CLIENTS[client], "client", "confirm"),
    ):  # fmt: skip
        at += made.delay()
        for _ in range(made.chance.choice([0, 1, 1, 1, 1, 1, 1, 2])):
            made.say(node, at, kind, source, client_id=client if source == "client" else None, **ids)


def _batch(made: Logs, at: int) -> None:
    one, other = made.chance.sample(BROKERS, 2)
    last = made.chance.randrange(1, 40)
    kind = made.chance.choice(["repl", "replack"])
    first = None if kind == "replack" else last - made.chance.randrange(3)
    more: Row = {"queue": made.chance.choice(["q", None]), "first_pos": first, "last_pos": last}
    for _ in range(made.chance.choice([0, 1, 1, 1, 2])):
        made.say(one, at, f"{kind}_send", peer=made.chance.choice([other, f"id-{other}"]), **more)
    if made.chance.random() < 0.9:
        made.say(other, at + made.delay(), f"{kind}_recv", peer=one, **more)


def wanted(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(getattr(item, name) for name in COLUMNS) for item in observations(rows) if item.kind in KINDS)


def found(engine: Engine, place: Path, rows: list[Row]) -> dict[str, list[tuple[Any, ...]]]:
    workspace = Workspace(str(place))
    write(rows, Path(workspace.path("events_raw")), parts=2)
    clock.pairs(engine, workspace)
    by_cluster: dict[str, list[tuple[Any, ...]]] = {}
    for row in engine.rows("select * from pairs"):
        by_cluster.setdefault(row["cluster"], []).append(tuple(row[name] for name in COLUMNS))
    return {cluster: sorted(of) for cluster, of in by_cluster.items()}


@pytest.fixture(scope="module")
def fleet() -> list[Logs]:
    return [logs(f"k{seed:02}", seed) for seed in range(40)]


def test_every_kind_is_there(fleet: list[Logs]) -> None:
    """Equality over nothing would be worth nothing."""
    kinds = {item.kind for made in fleet for item in observations(made.rows)}
    assert kinds >= KINDS
    senders = {item.sender for made in fleet for item in observations(made.rows) if item.kind == "client_open"}
    assert senders == {"host1", "host2"}  # host3 and host4 share a name


def test_the_same_as_the_reference(engine: Engine, fleet: list[Logs], tmp_path: Path) -> None:
    rows = [row for made in fleet for row in made.rows]
    random.Random(1).shuffle(rows)
    said = found(engine, tmp_path, rows)
    for made in fleet:
        assert said.get(made.cluster, []) == wanted(made.rows), made.cluster


def test_each_is_a_bound_that_holds(duck: DuckEngine, fleet: list[Logs], tmp_path: Path) -> None:
    """clock(receiver) - clock(sender) <= delay + slack, in spite of stamps that are cut to a second."""
    said = found(duck, tmp_path, [row for made in fleet for row in made.rows])
    for made in fleet:
        for sender, receiver, kind, sent, delay, slack, _ in said[made.cluster]:
            if sent < T0 - 4_000_000:
                continue  # "17" is a reading, too, of 1970
            assert made.offsets[receiver] - made.offsets[sender] <= delay + slack, (made.cluster, kind, sender)


def test_clocks_from_the_table_are_right(duck: DuckEngine, tmp_path: Path) -> None:
    """Two brokers and a client that tell each other the time: each offset is within its stated error."""
    made = Logs("k", 3)
    for node in BROKERS:
        made.say(node, 0, "start", attrs={"address": f"{node}.example:5672", "broker_id": f"id-{node}"})
    for at in range(0, 3 * BUCKET, BUCKET // 10):
        for one in BROKERS:
            for other in BROKERS:
                if one != other:
                    reading = {"peer_wall": str(T0 + at + made.offsets[one])}
                    made.say(other, at + made.delay(), "clock", peer=one, attrs=reading)
        reading = {"peer_wall": str(T0 + at + made.offsets["host1"])}
        made.say("host1", at, "connected", "client", client_id="p1", peer="vip:1", attrs={
            "broker": "b", "peer_wall": str(T0 + at - made.delay() + made.offsets["b"])})  # fmt: skip
        made.say("b", at + made.delay(), "client_open", client_id="p1", attrs=reading)
    found(duck, tmp_path, made.rows)
    told = from_rows(duck.rows("select * from pairs"))
    assert {item.kind for item in told} == {"clock", "connected", "client_open"}
    solved = solve(told, made.rows, reference="a")
    for segment in solved.rows():
        if segment["node"] in ("b", "c", "host1"):
            true = made.offsets[segment["node"]] - made.offsets["a"]
            assert abs(segment["offset_us"] - true) <= segment["err_us"] < 10_000, segment
