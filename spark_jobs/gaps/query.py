"""Where evidence is missing, as far as rows can be counted (pure text); `gaps.findings` has the words."""

from __future__ import annotations

from typing import Final

HOLES: Final = 1000
"""Of a run of all jobs, so many holes are named one by one."""


def logs() -> str:
    """What each process that is no client wrote: seqs = seq_max and their sum fits if nothing is missing.  `first_ts`,
    `last_ts`: µs, as written."""
    return """
select cluster, source, coalesce(node, '') as node, coalesce(proc, '') as proc,
  cast(null as string) as client_id, count(seq) as seqs, cast(sum(seq) as bigint) as seq_sum, max(seq) as seq_max,
  max(case when kind = 'log_end' then 1 else 0 end) as ended, min(ts_wall) as first_ts, max(ts_wall) as last_ts,
  max(coalesce(ts_res, 1)) as ts_res, min(file) as file, count(*) as lines
from facts where source <> 'client' and kind <> 'torn'
group by cluster, source, coalesce(node, ''), coalesce(proc, '')"""


def clients() -> str:
    """The same of clients, from `takings`."""
    return """
select cluster, 'client' as source, '' as node, proc, max(client_id) as client_id,
  cast(sum(seqs) as bigint) as seqs, cast(sum(seq_sum) as bigint) as seq_sum, max(seq_max) as seq_max,
  max(ended) as ended, min(first_ts) as first_ts, max(last_ts) as last_ts, cast(1 as int) as ts_res,
  cast(null as string) as file, cast(sum(seqs) as bigint) as lines
from takings group by cluster, proc"""


def broken(relation: str = "logs") -> str:
    """Processes of which lines are missing: cluster, source, node, proc."""
    return f"""
select cluster, source, node, proc from {relation}
where proc <> '' and seqs > 0 and (seqs <> seq_max or 2 * seq_sum <> seq_max * (seq_max + 1))"""


def holes(events: str = "events_raw", relation: str = "broken") -> str:
    """Missing numbers after_seq + 1 .. seq - 1, and the lines around them (`file`, `line_no`: behind); the numbers of
    messages of clients are given in the order of their writing."""
    before = "partition by v.cluster, v.source, v.node, v.proc order by seq, line_no"
    return f"""
select * from (
  select v.cluster, v.source, v.node, v.proc, file, line_no, seq, ts_wall,
    coalesce(lag(seq) over ({before}), 0) as after_seq, lag(ts_wall) over ({before}) as after_ts
  from (
    select coalesce(cluster, '') as cluster, source, coalesce(node, '') as node,
      coalesce(nullif(proc, ''), client_id, '') as proc, file, line_no, seq, ts_wall
    from {events} where seq is not null
  ) as v
  join {relation} as b on b.cluster = v.cluster and b.source = v.source and b.proc = v.proc
    and (b.node = v.node or v.source = 'client')
) where seq > after_seq + 1 order by cluster, proc, seq limit {HOLES}"""


def odd() -> str:
    """Lines without an end, and rows without a time: how many of each file."""
    return """
select cluster, node, proc, file, case when kind = 'torn' then 'torn' else 'undated' end as kind,
  count(*) as count, min(line_no) as line_no
from facts where kind = 'torn' or ts_wall is null
group by cluster, node, proc, file, case when kind = 'torn' then 'torn' else 'undated' end"""
