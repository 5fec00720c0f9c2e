"""The job `windows`: activity, takings and message_lives → outages (per client), outage_union (per incident)."""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.jobs import activity
from spark_jobs.jobs.options import Options
from spark_jobs.sql import islands, windows
from spark_jobs.workspace import Workspace

_LINKS = "cluster string, client_id string, ts bigint, seq bigint, kind string, planned boolean"
_LIVES = (
    "cluster string, client_id string, ended int, publishes bigint, first_ts bigint, last_ts bigint, "
    "last_back bigint, horizon bigint, client bigint, until bigint"
)
_QUEUES = "cluster string, client_id string, queue string, place bigint, horizon bigint, drained int"
_ISLANDS = "cluster string, client_id string, b bigint, e bigint"


def run(engine: Engine, workspace: Workspace, options: Options) -> None:
    """Needs events_raw; `incidents` if it is there."""
    workspace.load(engine, "events_raw")
    activity.run(engine, workspace, options)
    activity.spans(engine, workspace)
    dialect, shortest = engine.dialect, options.shortest
    _small(engine, "links", _LINKS, windows.links("events_raw", options.clock))
    _small(engine, "client_lives", _LIVES, windows.client_lives(dialect, options.end))
    _small(engine, "consumer_queues", _QUEUES, windows.consumer_queues(dialect))
    engine.view("producer_waits", windows.producer_waits(shortest))
    _small(engine, "producer_islands", _ISLANDS, islands.islands("producer_waits", "cluster, client_id"))
    views = {
        "producer_outages": windows.producer_outages(shortest),
        "queue_waits": windows.queue_waits(),
        "queue_islands": windows.queue_islands(),
        "pauses": windows.pauses(shortest),
        "consumer_waits": windows.consumer_waits(dialect),
        "consumer_outages": windows.consumer_outages(dialect, shortest),
        "parts": windows.parts(),
    }
    for name, query in views.items():
        engine.view(name, query)
    workspace.save(engine, "outages", windows.outages(shortest))
    engine.view("cut", windows.cut())
    workspace.save(engine, "outage_union", windows.outage_union())


def _small(engine: Engine, name: str, columns: str, query: str) -> None:
    """A view that is read more than once, or that Spark shall know to be small."""
    engine.table(name, columns, engine.rows(query))
