"""Which rows are facts of a cluster, few enough for the solvers of `spark_jobs.solve` (pure text).

The table `facts` has all rows that are about no message.  Of a *crowded* cluster (more than FEW of them are no
client's) the SAMPLES are thinned: rows that are written again and again while all is well.  Of each process, kind, term
and slot of time the first and the last stay: a slot is a second within NEAR minutes of a sign that something happens,
else a minute.  What they decide (the last sign of life, how far was confirmed when) moves by no more than that.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.schema import MESSAGE_KINDS, NAMES
from spark_jobs.sql.rows import quoted

FEW: Final = 20_000
SAMPLES: Final = (
    *("clock", "repl_send", "repl_recv", "replack_send", "replack_recv", "confirm_sent", "enqueue"),
    *("expire", "drop", "dead_letter", "purge", "queue_dump", "client_open", "client_close"),
)
SIGNS: Final = (
    *("start", "stop", "promoted", "demote", "claim", "primary_lost", "isolated", "fenced_self", "relocate"),
    *("exit", "hung", "kill", "down", "token_lost", "sched_pause", "daemon_exit", "will_fence", "fence_op_done"),
    *("self_fenced", "op_unexpected", "backup_lost"),
)
NEAR: Final = 3
SECOND: Final = 1_000_000
MINUTE: Final = 60_000_000
READING: Final = 10_000_000
"""µs of one reading of a clock."""
_SCOPE: Final = "coalesce(cluster, '')"
_NAMES: Final = ", ".join(name for name in NAMES if name != "cluster")


def facts(events: str = "events_raw") -> str:
    """All rows about no message; `cluster` is never NULL."""
    return f"select {_SCOPE} as cluster, {_NAMES} from {events} where kind not in ({quoted(sorted(MESSAGE_KINDS))})"


def crowded(few: int = FEW) -> str:
    """cluster"""
    counts = "select cluster, count(*) as n from facts where source <> 'client' group by cluster"
    return f"select cluster from ({counts}) where n > {few}"


def steady() -> str:
    """Facts that are no samples, and all of clusters that are not crowded.  View `crowded`."""
    return f"""
select cluster, {_NAMES} from facts
where source <> 'client' and (kind not in ({quoted(SAMPLES)}) or cluster not in (select cluster from crowded))"""


def witnesses() -> str:
    """One row of a client for each cluster that has any: that there is such a log."""
    return f"""
select cluster, {_NAMES} from (
  select *, row_number() over (partition by cluster order by ts_wall, proc, seq, file, line_no) as turn
  from facts where source = 'client' and kind <> 'torn' and ts_wall is not null
) where turn = 1"""


def near(events: str, clock: str) -> str:
    """Minutes in which something happens, and the adjacent ones: cluster, minute."""
    minute = f"div({clock}, {MINUTE})"
    return f"""
select distinct cluster, explode(sequence(minute - {NEAR}, minute + {NEAR})) as minute from (
  select distinct cluster, {minute} as minute from {events} where kind in ({quoted(SIGNS)}) and {clock} is not null
)"""


def thinned(events: str, clock: str) -> str:
    """Samples of crowded clusters, the first and the last of each slot.  Views `crowded` and `near`."""
    minute = f"div({clock}, {MINUTE})"
    second = f"div({clock}, {SECOND})"
    samples = f"source <> 'client' and kind in ({quoted(SAMPLES)}) and cluster in (select cluster from crowded)"
    slots = f"""
select v.cluster, node, proc, min(seq) as first_seq, max(seq) as last_seq
from (
  select cluster, coalesce(node, '') as node, coalesce(proc, '') as proc, kind, coalesce(term, 0) as term,
    seq, {minute} as minute, {second} as second
  from {events} where {samples} and seq is not null
) as v left join near as n on n.cluster = v.cluster and n.minute = v.minute
group by v.cluster, node, proc, kind, term, v.minute, case when n.minute is not null then second else 0 end"""
    kept = f"select cluster as of_cluster, node as of_node, proc as of_proc, {{}} as of_seq from ({slots})"
    return f"""
select cluster, {_NAMES} from {events}
join (select * from ({kept.format("first_seq")}) union select * from ({kept.format("last_seq")})) as k
  on of_cluster = cluster and of_node = coalesce(node, '') and of_proc = coalesce(proc, '') and of_seq = seq
where {samples}"""


def readings(events: str = "events_raw") -> str:
    """How clients' hosts' wall clocks and monotonic ones differed, a row for each node, boot and READING.

    A late look at the clock makes the difference smaller, so the greatest counts."""
    return _read(
        f"""
  select {_SCOPE} as cluster, node, coalesce(boot_id, '') as boot_id, ts_mono, ts_wall, ts_res,
    div(ts_mono, {READING}) as slot
  from {events} where source = 'client' and ts_wall is not null and ts_mono >= 0 and node <> ''"""
    )


def crowded_readings() -> str:
    """The same of what `steady` leaves out; each second near signs.  Views `crowded` and `near`."""
    return _read(
        f"""
  select v.cluster, node, coalesce(boot_id, '') as boot_id, ts_mono, ts_wall, ts_res,
    case when n.minute is not null then div(ts_mono, {SECOND}) else -1 - div(ts_mono, {READING}) end as slot
  from facts as v
  left join near as n on n.cluster = v.cluster and n.minute = div(ts_wall, {MINUTE})
  where source <> 'client' and ts_wall is not null and ts_mono >= 0 and node <> ''
    and v.cluster in (select cluster from crowded)"""
    )


def _read(rows: str) -> str:
    return f"""
select cluster, node, boot_id, min_mono as ts_mono, min_mono + level as ts_wall, ts_res, 'reading' as kind from (
  select cluster, node, boot_id, min(ts_mono) as min_mono, max(ts_wall - ts_mono) as level, max(ts_res) as ts_res
  from ({rows}) group by cluster, node, boot_id, slot
)"""


def samples_of_positions() -> str:
    """What a backup's sample and the primary's last one *behind* it say about their clocks, as
    `clocks.pairs._samples` does, of crowded clusters and of terms with one sender."""
    keys = "partition by cluster, term"
    return f"""
select cluster, sender, receiver, 'repl_sample' as kind, sent, ts_wall - sent as delay, slack
from (
  select cluster, node as receiver, kind, ts_wall, slack,
    max(case when kind = 'repl_send' then ts_wall end) over (
      {keys} order by last_pos range between unbounded preceding and 1 preceding) as sent,
    min(case when kind = 'repl_send' then node end) over ({keys}) as sender,
    max(case when kind = 'repl_send' then node end) over ({keys}) as other
  from (
    select cluster, node, kind, ts_wall, term, last_pos, coalesce(ts_res, 1) as slack from facts
    where kind in ('repl_send', 'repl_recv') and coalesce(peer, '') = '' and node <> '' and last_pos is not null
      and term is not null and ts_wall is not null and cluster in (select cluster from crowded)
  )
) where kind = 'repl_recv' and sent is not null and sender = other and sender <> receiver"""
