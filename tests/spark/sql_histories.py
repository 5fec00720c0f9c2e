"""Random histories of small clusters, each of its own name, for one query over all of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_jobs import schema
from spark_jobs.engine.base import arrow

Row = dict[str, Any]
T0 = 1_790_000_000_000_000
TICK = 10_000
"""µs; all moments are multiples of it."""


class Maker:
    """The logs of one cluster; `chance` decides everything."""

    def __init__(self, cluster: str, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.logs: dict[str, list[Row]] = {}
        self.brokers: list[Row] = []

    def say(self, client: str, at: int, kind: str, producer: str | None = None, number: int = 0, **more: Any) -> None:
        ids: Row = {}
        if producer is not None:
            ids = {"producer": producer, "pub_first": number, "pub_last": number, "msg_id": f"{producer}:{number}"}
        row: Row = {
            "source": "client",
            "kind": kind,
            "client_id": client,
            "proc": f"{client}-1",
            "cluster": self.cluster,
        }
        moment = T0 + at * TICK
        row |= {"node": "h1", "ts_wall": moment, "ts_mono": moment - T0, **ids, **more}
        self.logs.setdefault(client, []).append(row)

    def rows(self) -> list[Row]:
        found = []
        whole = self.chance.random() < 0.6
        for log in self.logs.values():
            log.sort(key=lambda row: int(row["ts_wall"]))
            for number, row in enumerate(log, 1):
                row["seq"] = number
            found += [row for row in log if whole or self.chance.random() > 0.04]
        return (witnessed(found) if self.chance.random() < 0.7 else found) + self.brokers


def history(cluster: str, chance: random.Random) -> list[Row]:
    """Producers, consumers and a broker of which any may do anything; one outage."""
    maker = Maker(cluster, chance)
    dead = chance.randrange(100, 300)
    alive = dead + chance.randrange(10, 200)
    consumers = [f"c{number}" for number in range(chance.randrange(4))]
    for name in [f"p{number}" for number in range(chance.randrange(1, 4))]:
        _produce(maker, name, consumers, dead, alive)
    for name in list(maker.logs):
        _connection(maker, name, dead, alive)
    gone = {name for name in list(maker.logs) if chance.random() < 0.07}
    for name in gone:
        _leave(maker, name, T0 + chance.randrange(100, 400) * TICK)
    _end(maker, consumers, gone)
    for kind in ("expire", "drop", "queue_dump"):
        if chance.random() < 0.2:
            first = chance.randrange(1, 40)
            maker.brokers.append(
                {
                    "source": "broker", "kind": kind, "cluster": cluster, "queue": "q0", "producer": "p0",
                    "pub_first": first, "pub_last": first + chance.randrange(20), "ts_mono": 0,
                    "node": "b1", "ts_wall": T0 + chance.randrange(2_000) * TICK, **_position(chance),
                }
            )  # fmt: skip
    if chance.random() < 0.1:
        nameless = {"source": "broker", "kind": "purge", "cluster": cluster, "queue": "q1", "ts_wall": T0, "node": "b1"}
        more = _position(chance)
        nameless |= more | {"attrs": {"count": str(chance.randrange(3)), **more.get("attrs", {})}}
        maker.brokers.append(nameless)
    _promotions(maker, cluster)
    return maker.rows()


def _position(chance: random.Random) -> Row:
    """Of a removal: nothing, when it was, or between which two."""
    if chance.random() < 0.3:
        return {}
    term = chance.randrange(1, 5)
    at = (term << 48) + chance.randrange(2, 60)
    since = {"since": str(at - chance.randrange(1, 20))} if chance.random() < 0.3 else {}
    return {"term": term, "attrs": {"at": chance.choice([str(at)] * 9 + ["?"]), **since}}


def _promotions(maker: Maker, cluster: str) -> None:
    """Most go on from the epoch before, some from an older one, some do not say it."""
    for term in range(1, maker.chance.randrange(1, 6)):
        before = max(0, term - maker.chance.choice([1, 1, 1, 2]))
        base = {"base": str((before << 48) + maker.chance.randrange(60))} if maker.chance.random() < 0.9 else {}
        promoted = {"source": "broker", "kind": "promoted", "cluster": cluster, "term": term, "attrs": base}
        maker.brokers.append({**promoted, "node": "b1", "ts_wall": T0 + term * TICK})


def _produce(maker: Maker, name: str, consumers: list[str], dead: int, alive: int) -> None:
    chance = maker.chance
    now = chance.randrange(50)
    for number in range(1, chance.randrange(2, 60)):
        now += chance.choice([0, 1, 2, 5, 12, 30])
        queue = f"q{chance.randrange(2)}"
        to = "exchange" if number % 5 == 0 else queue
        if chance.random() < 0.97:
            maker.say(name, now, "publish", name, number, queue=to)
        down = dead <= now < alive
        answer = (alive if down else now) + chance.choice([1, 1, 1, 2, 15, 40])
        if down:
            for _ in range(chance.choice([0, 1, 1, 2])):
                maker.say(name, alive, chance.choice(["resend", "publish"]), name, number, queue=to, resend=True)
        if chance.random() < 0.9:
            kind = chance.choices(["confirm", "nack", "return"], [20, 1, 1])[0]
            maker.say(name, answer, kind, name, number, queue=to)
            if chance.random() < 0.1:
                maker.say(name, answer + 1, "confirm", name, number, queue=to)
        _consume(maker, (name, number), queue, consumers, answer)
        if to == "exchange" and chance.random() < 0.3:
            _consume(maker, (name, number), f"q{1 - int(queue[1])}", consumers, answer + chance.choice([1, 30]))


def _consume(maker: Maker, message: tuple[str, int], queue: str, consumers: list[str], at: int) -> None:
    chance = maker.chance
    mine = [name for index, name in enumerate(consumers) if index % 2 == int(queue[1])] or consumers
    if not mine:
        return
    for turn in range(chance.choices([0, 1, 2, 3], [1, 20, 2, 1])[0]):
        name, when = chance.choice(mine), at + turn * 7 + chance.randrange(4)
        again = turn > 0 and chance.random() < 0.5
        resent: Row = {"resend": True} if chance.random() < 0.1 else {}
        maker.say(name, when, "deliver", *message, queue=queue, redelivered=again, **resent)
        kind = chance.choices(["ack", "reject", "release", ""], [40, 1, 1, 2])[0]
        if kind:
            maker.say(name, when + chance.choice([0, 0, 1, 30]), kind, *message, queue=queue)


def _connection(maker: Maker, name: str, dead: int, alive: int) -> None:
    chance = maker.chance
    maker.say(name, 0, "connect")
    maker.say(name, chance.choice([0, 1, 20]), "connected")
    if chance.random() < 0.5:
        maker.say(name, dead, "disconnected", planned=chance.random() < 0.2)
        maker.say(name, dead + 2, "connect_refused")
        if chance.random() < 0.9:
            maker.say(name, alive, "connected")
    if chance.random() < 0.2:
        maker.say(name, alive + 30, "blocked")
        if chance.random() < 0.8:
            maker.say(name, alive + 55, "unblocked")


def _leave(maker: Maker, name: str, at: int) -> None:
    """It ends in order, before the others."""
    maker.logs[name] = [row for row in maker.logs[name] if row["ts_wall"] <= at]
    maker.say(name, (at - T0) // TICK, "log_end")


def _end(maker: Maker, consumers: list[str], gone: set[str]) -> None:
    chance = maker.chance
    last = max((int(row["ts_wall"]) - T0) // TICK for log in maker.logs.values() for row in log) + 60
    for name in [name for name in maker.logs if name not in gone]:
        if name in consumers and chance.random() < 0.85:
            for queue in chance.choice([["q0", "q1"], [""], ["q0"], ["q1"]]):
                maker.say(name, last, "drain_end", queue=queue, result=chance.choice(["ok", "ok", "ok", "2 left"]))
        if chance.random() < 0.9:
            maker.say(name, last + 2, "log_end")


def histories(number: int, seed: int) -> list[Row]:
    return [row for index in range(number) for row in history(f"k{index:03d}", random.Random(seed * 10_000 + index))]


def witnessed(rows: list[Row]) -> list[Row]:
    """With the log of a broker that names all clients."""
    names = sorted({(row.get("cluster"), row["client_id"]) for row in rows if row["source"] == "client"}, key=str)
    common = {"source": "broker", "kind": "client_open", "node": "w", "proc": "w", "ts_wall": T0, "ts_mono": 0}
    return rows + [
        {**common, "cluster": cluster, "client_id": name, "seq": number}
        for number, (cluster, name) in enumerate(names, 1)
    ]


def as_runs(rows: list[Row]) -> list[Row]:
    """Neighbours of one log that follow on become one row, as the client writes them; each log is numbered anew."""
    found: list[Row] = []
    same = ("kind", "cluster", "client_id", "queue", "producer", "redelivered", "resend", "source")
    for row in rows:
        before = found[-1] if found else {}
        joins = row.get("producer") and all(before.get(name) == row.get(name) for name in same)
        if joins and row["pub_first"] == before["pub_last"] + 1 and row["ts_mono"] - before["ts_mono"] < 10 * TICK:
            last, count = row["pub_last"], row["pub_last"] - before["pub_first"] + 1
            attrs = {"last": f"{row['producer']}:{last}", "count": str(count), "last_ts_mono": str(row["ts_mono"])}
            found[-1] = {**before, "pub_last": last, "attrs": attrs}
        else:
            found.append(row)
    return found


def write(rows: list[Row], path: Path, parts: int = 1) -> None:
    """As the table `events_raw`."""
    path.mkdir(parents=True, exist_ok=True)
    for index in range(parts):
        pq.write_table(arrow(schema.ddl(), rows[index::parts]), path / f"part-{index}.parquet")
