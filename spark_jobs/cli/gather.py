"""The facts about one message in the tables of a report.  Shell: queries an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.cli.life import SAMPLES, Gathered
from spark_jobs.clocks.job import of_rows
from spark_jobs.clocks.segments import Clocks, of_moment
from spark_jobs.engine.base import Engine, Row
from spark_jobs.parse.event_json import split_id
from spark_jobs.sql.rows import quoted
from spark_jobs.workspace import Workspace

if TYPE_CHECKING:
    from spark_jobs.schema import Event

AROUND: Final = 60_000_000
"""us before and behind a message's life in which brokers' samples are looked for; promotions are, everywhere."""
_ASKED: Final = "producer string, pub bigint, cluster string"
_NAMED: Final = """
select e.* from events_raw as e join asked as a
on e.producer = a.producer and a.pub between e.pub_first and e.pub_last
and (a.cluster is null or a.cluster = coalesce(e.cluster, ''))"""
_JUDGED: Final = """
select v.* from {table} as v join asked as a on v.producer = a.producer and v.pub = a.pub
and (a.cluster is null or a.cluster = v.cluster)"""


def message(engine: Engine, workspace: Workspace, msg_id: str, cluster: str | None) -> list[Gathered]:
    """For each cluster with the message; empty if no log names it."""
    producer, number = split_id(msg_id)
    engine.table("asked", _ASKED, [{"producer": producer, "pub": number, "cluster": cluster}])
    workspace.load(engine, "events_raw")
    rows = [_event(row) for row in engine.rows(_NAMED)]
    clusters = sorted({row.get("cluster") or "" for row in rows})
    verdicts = _rows(engine, workspace, "message_verdicts", _JUDGED.format(table="message_verdicts"))
    lives = _rows(engine, workspace, "message_lives", _JUDGED.format(table="message_lives"))
    return [
        Gathered(
            name,
            number,
            mine := [row for row in rows if (row.get("cluster") or "") == name],
            _samples(engine, workspace, name, mine),
            _clocks(engine, workspace, name, mine),
            any(row["cluster"] == name for row in lives),
            next((row for row in verdicts if row["cluster"] == name), None),
        )
        for name in clusters
    ]


def producers(engine: Engine, workspace: Workspace, limit: int = 10) -> list[str]:
    """`p1:1 to 400` of some producers, for the error about an unknown message."""
    workspace.load(engine, "events_raw")
    query = f"""select producer, min(pub_first) as a, max(pub_last) as b from events_raw
        where producer is not null and source = 'client' group by producer order by producer limit {limit}"""
    return [f"{row['producer']}:{row['a']} to {row['b']}" for row in engine.rows(query)]


def _rows(engine: Engine, workspace: Workspace, table: str, query: str) -> list[Row]:
    if not workspace.has(engine, table):
        return []
    workspace.load(engine, table)
    return engine.rows(query)


def _samples(engine: Engine, workspace: Workspace, cluster: str, mine: Sequence[Event]) -> list[Event]:
    walls = [row["ts_wall"] for row in mine if row.get("ts_wall") is not None]
    if not walls:
        return []
    engine.table("cluster_asked", "cluster string", [{"cluster": cluster}])
    query = f"""select e.* from events as e join cluster_asked as a on a.cluster = coalesce(e.cluster, '')
        where e.last_pos is not null and kind in ({quoted(SAMPLES)}) and (kind = 'promoted'
        or e.ts_est between {min(walls) - AROUND} and {max(walls) + AROUND})"""
    return [_event(row) for row in _rows(engine, workspace, "events", query)]


def _clocks(engine: Engine, workspace: Workspace, name: str, mine: Sequence[Event]) -> Clocks:
    engine.table("cluster_asked", "cluster string", [{"cluster": name}])
    query = "select c.* from clock_segments as c join cluster_asked as a on a.cluster = coalesce(c.cluster, '')"
    moment = min((row["ts_wall"] for row in mine if row.get("ts_wall") is not None), default=0)
    found = of_moment(_rows(engine, workspace, "clock_segments", query), moment)
    return of_rows({**row, "evidence": {}} for row in found)


def _event(row: Row) -> Event:
    """As a parser gives it: without missing fields."""
    event: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
    if "attrs" in event:
        event["attrs"] = dict(event["attrs"])
    return event
