"""A message in several queues, and brokers' logs that are not whole: the reference, and the SQL on both engines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.messages import job as messages
from spark_jobs.messages.evidence import NAMELESS, NO_BROKER
from spark_jobs.options import Options
from spark_jobs.workspace import Workspace
from tests.spark.messages_judge import Judge
from tests.spark.sql_histories import histories, write

Row = dict[str, Any]
Said = dict[int, tuple[str, str, int, int, int]]
"""number -> verdict, cause, missing, duplicates, recovered; of those that are not simply ok"""


class Log:
    """A producer `p`, a consumer `c` of each queue, brokers; all logs whole, all queues drained at 900."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.logs: dict[str, list[Row]] = {}

    def say(
        self, name: str, at: int, kind: str, number: int | None = None, source: str = "client", **more: Any
    ) -> None:
        row: Row = {"cluster": self.cluster, "source": source, "kind": kind, "node": name, "proc": name}
        row |= {"client_id": name} if source == "client" else {}
        if number is not None:
            row |= {"producer": "m", "pub_first": number, "pub_last": number, "msg_id": f"m:{number}"}
        if source == "client" and name not in self.logs:
            self.broker(0, "client_open", client_id=name)
        log = self.logs.setdefault(name, [])
        log.append({**row, "ts_wall": at, "ts_mono": at, "seq": len(log) + 1, **more})

    def publish(self, *numbers: int, confirm: bool = True, times: int = 1) -> None:
        for number in numbers:
            for _ in range(times):
                self.say("p", 10 * number, "publish", number, queue="amq.fanout")
                if confirm:
                    self.say("p", 10 * number + 1, "confirm", number, queue="amq.fanout")

    def take(self, number: int, *queues: str, **more: Any) -> None:
        for queue in queues:
            self.say(f"c-{queue}", 10 * number + 5, "deliver", number, queue=queue, **more)
            self.say(f"c-{queue}", 10 * number + 6, "ack", number, queue=queue)

    def broker(self, at: int, kind: str, number: int | None = None, **more: Any) -> None:
        self.say("b1", at, kind, number, source="broker", **more)

    def rows(self) -> list[Row]:
        for name in [name for name in self.logs if name.startswith("c-")]:
            self.say(name, 900, "drain_end", queue=name[2:], result="ok")
        for name in [name for name in self.logs if name != "b1"]:
            self.say(name, 950, "log_end")
        return [row for log in self.logs.values() for row in log]


def by_reference(rows: list[Row]) -> Said:
    verdicts = Judge().add(rows).verdicts()
    return {v.number: (v.verdict, v.cause, v.missing, v.duplicates, v.recovered) for v in verdicts if v.verdict != "ok"}


def by_sql(engine: Engine, place: Path, rows: list[Row]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    for (cluster, _, number), said in verdicts(engine, place, rows).items():
        found.setdefault(cluster, {})[number] = said
    return found


def verdicts(engine: Engine, place: Path, rows: list[Row]) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    workspace = Workspace(str(place / "ws"))
    write(rows, Path(workspace.path("events_raw")))
    messages.run(engine, workspace, Options())
    names = ("verdict", "cause", "missing", "duplicates", "recovered")
    return {
        (row["cluster"], row["producer"], row["pub"]): tuple(row[name] for name in names)
        for row in engine.rows("select * from message_verdicts")
    }


def fanned(cluster: str = "fanned") -> tuple[Log, Said]:
    """Into three queues each, but for 5 and 6."""
    log = Log(cluster)
    log.publish(1, 2, 3, 4, 5, 6)
    log.publish(7, confirm=False)
    log.publish(8, times=2)
    for number in (1, 2, 3, 7, 8):
        log.take(number, "q1", "q2", "q3")
    log.take(2, "q2")  # once more in one queue
    log.take(3, "q1", "q3", redelivered=True)  # in two, and one of them twice
    log.take(3, "q3")
    log.take(4, "q1", "q2")
    log.take(5, "q2")
    log.take(9, "q1", "q2")  # no client sent it
    return log, {
        2: ("duplicated", "unmarked", 0, 1, 0),
        3: ("duplicated", "redelivered", 0, 3, 0),
        6: ("lost", "", 1, 0, 0),
        7: ("recovered", "", 0, 0, 1),
        8: ("lost", "delivered, never acknowledged", 1, 0, 0),  # an id that was used twice: no queue has both
        9: ("unexpected", "", 0, 2, 0),
    }


def removed(cluster: str, without: int | None = None, since: int = 1) -> Log:
    """2 and 3 are never seen: 2 has expired.  `without`: this line of the broker's is missing; `since`: its first."""
    log = Log(cluster)
    log.publish(1, 2, 3)
    log.take(1, "q1")
    log.broker(0, "start")
    log.broker(15, "clock")
    log.broker(25, "expire", 2, queue="q1")
    log.broker(60, "clock")
    log.logs["b1"] = [row for row in log.logs["b1"] if row["seq"] != without and row["seq"] >= since]
    return log


HOLE = "the log of b1 is incomplete"
BEGINNING = "the log of b1 lacks its beginning"
BROKERS: dict[str, tuple[Row, Said]] = {
    "whole": ({}, {2: ("explained", "expire", 1, 0, 0), 3: ("lost", "", 1, 0, 0)}),
    "hole": ({"without": 5}, {2: ("unaccounted", HOLE, 1, 0, 0), 3: ("unaccounted", HOLE, 1, 0, 0)}),
    "other": ({"without": 4}, {2: ("explained", "expire", 1, 0, 0), 3: ("unaccounted", HOLE, 1, 0, 0)}),
    "late": ({"since": 3}, {2: ("explained", "expire", 1, 0, 0), 3: ("unaccounted", BEGINNING, 1, 0, 0)}),
    "none": ({"since": 99}, {2: ("unaccounted", NO_BROKER, 1, 0, 0), 3: ("unaccounted", NO_BROKER, 1, 0, 0)}),
}
"""name -> (what of the broker's log is there, what must be said)"""


def test_dequeues_of_each_queue_are_counted_apart() -> None:
    log, wanted = fanned()
    assert by_reference(log.rows()) == wanted


@pytest.mark.parametrize("name", BROKERS)
def test_a_line_that_a_broker_lacks_loses_nothing(name: str) -> None:
    part, wanted = BROKERS[name]
    assert by_reference(removed(name, **part).rows()) == wanted


def test_sql_says_the_same(engine: Engine, tmp_path: Path) -> None:
    """All of them in one workspace."""
    log, wanted = fanned()
    expected = {"fanned": wanted} | {name: of for name, (_, of) in BROKERS.items()}
    rows = log.rows()
    summary = Judge().add(rows).summary()
    rows += [row for name, (part, _) in BROKERS.items() for row in removed(name, **part).rows()]
    assert by_sql(engine, tmp_path, rows) == expected
    names = ("ok", "duplicated", "unmarked", "lost", "recovered", "unexpected")
    columns = ", ".join(f"cast(sum({name}) as bigint) as {name}" for name in names)
    (sums,) = engine.rows(f"select {columns} from message_summary where cluster = 'fanned'")
    assert sums == {name: getattr(summary, name) for name in names}
    assert tuple(sums.values()) == (7, 4, 1, 2, 1, 2)


def copied(rows: list[Row], chance: random.Random) -> list[Row]:
    """Some of what went through the exchange came from other queues, too; lines are missing as they were before."""
    found = list(rows)
    through = {(row["cluster"], row["producer"], row["pub_first"]) for row in rows if row.get("queue") == "exchange"}
    for key in sorted(through):
        mine = [row for row in rows if row["kind"] in ("deliver", "ack") and key == (
            row["cluster"], row.get("producer"), row.get("pub_first"))]  # fmt: skip
        for queue in ("q8", "q9")[: chance.randrange(3)]:
            kept = [row for row in mine if chance.random() < 0.95]
            found += [{**row, "queue": queue, "proc": "fan", "client_id": "fan", "seq": None} for row in kept]
    return found


def test_random_histories_of_exchanges(duck: DuckEngine, tmp_path: Path) -> None:
    chance = random.Random(11)
    rows = copied(histories(60, chance.randrange(2**20)), chance)
    assert any(len(counts.taken) > 2 for counts in Judge().add(rows).messages.values())
    wanted = {}
    for cluster in sorted({row["cluster"] for row in rows}):
        judge = Judge().add(row for row in rows if row["cluster"] == cluster)
        for v in judge.verdicts():
            if v.verdict != "ok":
                said = (v.verdict, v.cause, v.missing, v.duplicates, v.recovered)
                wanted[cluster, v.producer, v.number] = said
    assert verdicts(duck, tmp_path, rows) == wanted


def without_a_file(kind: str) -> list[Row]:
    """1 was taken from q1 and 2 from q2; 3 was never seen.  A log is not here, or another one may not be."""
    log = Log(kind)
    log.publish(1, 2, 3)
    log.take(1, "q1")
    log.take(2, "q2")
    if kind == "nameless":
        log.broker(70, "client_open")
    elif kind == "followed":
        log.broker(70, "state", old="catching-up", new="ready", term=3)
    elif kind == "base":
        log.broker(70, "promoted", term=5, attrs={"base": str((4 << 48) + 7)})
    return [row for row in log.rows() if row["proc"] != {"consumer": "c-q2", "producer": "p", "broker": "b1"}.get(kind)]


ABSENT = {
    "consumer": "there is no log of the client c-q2",
    "broker": NO_BROKER,
    "nameless": NAMELESS,
    "followed": "the log of the primary of epoch 3 is missing",
    "base": "the log of the primary of epoch 4 is missing",
}


def test_a_file_that_is_not_here_loses_nothing_and_makes_nothing_up(duck: DuckEngine, tmp_path: Path) -> None:
    found: dict[str, Said] = {kind: {3: ("unaccounted", why, 1, 0, 0)} for kind, why in ABSENT.items()}
    found["consumer"][2] = found["consumer"][3]
    unsent = "there is no log of the client p"
    found["producer"] = dict.fromkeys((1, 2), ("unexpected", unsent, 0, 1, 0))
    rows = {kind: without_a_file(kind) for kind in found}
    assert {kind: by_reference(of) for kind, of in rows.items()} == found
    assert by_sql(duck, tmp_path, [row for of in rows.values() for row in of]) == found
    assert by_reference(without_a_file("all")) == {3: ("lost", "", 1, 0, 0)}


def test_a_user_who_says_that_all_was_drained_is_believed(duck: DuckEngine, tmp_path: Path) -> None:
    rows = removed("hole", without=5).rows()
    workspace = Workspace(str(tmp_path))
    write(rows, Path(workspace.path("events_raw")))
    messages.run(duck, workspace, Options(drained=True))
    query = "select pub, verdict from message_verdicts order by pub"
    assert [tuple(row.values()) for row in duck.rows(query)] == [(2, "lost"), (3, "lost")]
