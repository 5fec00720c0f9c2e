"""The job `windows`: events_raw, takings and message_lives → outages (per client), outage_union (per incident).

The incidents are found with the help of the outages, and cut their union: `clients` comes before them, `union` after.
"""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.facts import job as facts
from spark_jobs.messages import fans, reduced
from spark_jobs.options import Options
from spark_jobs.outages import query as windows
from spark_jobs.sql.rows import takes
from spark_jobs.workspace import Workspace

_SIGHTS = "cluster string, producer string, pub bigint, place bigint, delivered bigint"


def clients(engine: Engine, workspace: Workspace, options: Options) -> None:
    """events_raw and facts → takings, names, message_lives, slow_waits, standstills, .., outages."""
    workspace.load(engine, "events_raw")
    facts.need(engine, workspace)
    reduced.takings(engine, workspace, options)
    reduced.lives(engine, workspace, options)
    shortest = options.shortest
    engine.view("links", windows.links(options.facts, options.clock))
    engine.view("client_lives", windows.client_lives())
    engine.view("consumer_queues", windows.consumer_queues())
    _sights(engine, workspace, options)
    engine.view("message_waits", windows.message_waits())
    workspace.save(engine, "slow_waits", windows.slow(shortest))
    _later_answers(engine, workspace)
    workspace.save(engine, "standstills", windows.standstills(shortest))
    engine.view("producer_standstills", windows.producer_standstills())
    workspace.save(engine, "producer_moments", windows.producer_moments())
    engine.view("producer_outages", windows.producer_outages(shortest))
    engine.view("consumer_waits", windows.consumer_waits())
    engine.view("consumer_spans", windows.consumer_spans(shortest))
    _moments(engine, workspace, options)
    engine.view("consumer_outages", windows.consumer_outages(shortest))
    engine.view("parts", windows.parts())
    workspace.save(engine, "outages", windows.outages(shortest))


def _later_answers(engine: Engine, workspace: Workspace) -> None:
    """The view; two passes over all messages only when one has no answer."""
    if engine.rows("select 1 as n from slow_waits where done is null limit 1"):
        workspace.save(engine, "later_answers", windows.later_answers())
    else:
        engine.view("later_answers", "select side, cluster, k, producer, pub, done as e from slow_waits where false")


def _moments(engine: Engine, workspace: Workspace, options: Options) -> None:
    """The view `consumer_moments`; a pass over all rows only when there was a span."""
    if engine.rows("select 1 as n from consumer_spans limit 1"):
        rows = takes(options.events, options.clock)
        workspace.save(engine, "consumer_moments", windows.consumer_moments(rows))
    else:
        engine.table("consumer_moments", windows.MOMENTS, [])


def _sights(engine: Engine, workspace: Workspace, options: Options) -> None:
    """The view `queue_sights`; a pass over all rows only when an exchange has put messages into several queues."""
    if engine.rows(f"select 1 as n from ({fans.fanned()}) limit 1"):
        workspace.save(engine, "queue_sights", fans.sights(options.events, options.clock))
    else:
        engine.table("queue_sights", _SIGHTS, [])


def union(engine: Engine, workspace: Workspace, options: Options) -> None:
    """outages and takings → outage_union; without the table `incidents` a cluster is one."""
    workspace.load(engine, "outages", "takings", "names")
    reduced.spans(engine, workspace)
    engine.view("client_lives", windows.client_lives())
    engine.view("cut", windows.cut())
    workspace.save(engine, "outage_union", windows.outage_union())
