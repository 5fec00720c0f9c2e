"""The job `windows`: events_raw, takings and message_lives → outages (per client), outage_union (per incident).

The incidents are found with the help of the outages, and cut their union: `clients` comes before them, `union` after.
"""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.messages import fans, reduced
from spark_jobs.options import Options
from spark_jobs.outages import query as windows
from spark_jobs.workspace import Workspace

_LINKS = "cluster string, client_id string, ts bigint, seq bigint, kind string, planned boolean"
_LIVES = (
    "cluster string, client_id string, ended int, publishes bigint, first_ts bigint, last_ts bigint, "
    "last_back bigint, first_deliver bigint, horizon bigint, client bigint, until bigint"
)
_SIGHTS = "cluster string, producer string, pub bigint, place bigint, delivered bigint"
_QUEUES = (
    "cluster string, client_id string, queue string, place bigint, horizon bigint, first_deliver bigint, "
    "until bigint, drained int"
)


def run(engine: Engine, workspace: Workspace, options: Options) -> None:
    """Needs events_raw; `incidents` if it is there."""
    clients(engine, workspace, options)
    union(engine, workspace, options)


def clients(engine: Engine, workspace: Workspace, options: Options) -> None:
    """events_raw → takings, message_lives, slow_waits, standstills, consumer_moments, outages."""
    workspace.load(engine, "events_raw")
    reduced.takings(engine, workspace, options)
    reduced.lives(engine, workspace, options)
    dialect, shortest = engine.dialect, options.shortest
    _small(engine, "links", _LINKS, windows.links(options.events, options.clock))
    _small(engine, "client_lives", _LIVES, windows.client_lives(dialect, options.end))
    _small(engine, "consumer_queues", _QUEUES, windows.consumer_queues(dialect))
    _sights(engine, workspace, options)
    engine.view("message_waits", windows.message_waits())
    workspace.save(engine, "slow_waits", windows.slow(shortest))
    engine.view("later_answers", windows.later_answers(dialect))
    workspace.save(engine, "standstills", windows.standstills(shortest))
    engine.view("producer_standstills", windows.producer_standstills())
    engine.view("producer_outages", windows.producer_outages(dialect, shortest))
    engine.view("consumer_waits", windows.consumer_waits())
    engine.view("consumer_spans", windows.consumer_spans(shortest))
    workspace.save(engine, "consumer_moments", windows.moments(dialect, options.events, options.clock))
    engine.view("consumer_outages", windows.consumer_outages(shortest))
    engine.view("parts", windows.parts())
    workspace.save(engine, "outages", windows.outages(shortest))


def _sights(engine: Engine, workspace: Workspace, options: Options) -> None:
    """The view `queue_sights`; a pass over all rows only when an exchange has put messages into several queues."""
    if engine.rows(f"select 1 as n from ({fans.fanned()}) limit 1"):
        workspace.save(engine, "queue_sights", fans.sights(engine.dialect, options.events, options.clock))
    else:
        engine.table("queue_sights", _SIGHTS, [])


def union(engine: Engine, workspace: Workspace, options: Options) -> None:
    """outages and takings → outage_union; without the table `incidents` a cluster is one."""
    workspace.load(engine, "outages", "takings")
    reduced.spans(engine, workspace)
    _small(engine, "client_lives", _LIVES, windows.client_lives(engine.dialect, options.end))
    engine.view("cut", windows.cut())
    workspace.save(engine, "outage_union", windows.outage_union())


def _small(engine: Engine, name: str, columns: str, query: str) -> None:
    """A view that is read more than once, or that Spark shall know to be small."""
    engine.table(name, columns, engine.rows(query))
