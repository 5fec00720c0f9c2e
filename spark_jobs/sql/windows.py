"""How long clients stood still, as SQL; `solve.windows_small` is the reference and has the definitions (pure text).

Each function is one view, which names those before it.  Only waits that may matter are looked at one by one:

* producer: an outage ends with an answer, and the first message that waits in it waits until then.  So an outage of at
  least `shortest` has one message that waited as long: all others are left out at once.
* consumer: candidates are the pauses of at least `shortest` between its own deliveries (table `activity`); only what
  was on its way in the same second is compared with them.

A message that was delivered from more than two queues is waited for in two of them.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.sql.dialect import Dialect
from spark_jobs.sql.islands import islands
from spark_jobs.sql.rows import takes

BUCKET: Final = 10_000
"""µs of one row of `activity`."""
SECOND: Final = 1_000_000
WHY: Final = {1: "confirm", 2: "connection", 4: "deliver", 8: "go-ahead"}
"""Bits, in the order of the alphabet."""
_AWAY: Final = "('connect', 'connect_refused', 'disconnected')"
_BACK: Final = "('connected', 'log_end')"
_GO_AHEAD: Final = "('unblocked', 'disconnected', 'connected', 'log_end')"
_LINK: Final = "('connect', 'connect_refused', 'disconnected', 'connected', 'log_end', 'blocked', 'unblocked')"
_ANSWERED: Final = "least(confirmed, refused)"


def activity(dialect: Dialect, events: str = "events_raw", clock: str = "ts_wall") -> str:
    """Per consumer and BUCKET: of deliveries and settlements how many, the first and the last (µs).  What producers
    did is in `message_lives`."""
    columns = ", ".join(
        f"cast(sum(case when {codes} then 1 else 0 end) as bigint) as {name}s, "
        f"min(case when {codes} then ts end) as first_{name}, max(case when {codes} then ts end) as last_{name}"
        for name, codes in (("deliver", "code = 6"), ("settle", "code > 6"))
    )
    bucket = dialect.quotient("ts", str(BUCKET))
    return f"""
select cluster, client_id, {bucket} as bucket, {columns}
from ({takes(dialect, events, clock)}) group by cluster, client_id, {bucket}"""


def links(events: str = "events_raw", clock: str = "ts_wall") -> str:
    """Rows about connections."""
    return f"""
select coalesce(cluster, '') as cluster, coalesce(client_id, '') as client_id, {clock} as ts, coalesce(seq, 0) as seq,
  kind, coalesce(planned, false) as planned
from {events} where source = 'client' and kind in {_LINK}"""


def client_lives(dialect: Dialect, end: int | None = None) -> str:
    """Who existed when (first_ts, last_ts), `until`: whoever has ended in order waits for nothing; `horizon`: the end
    of the observation of the cluster, µs.  `client`: the hash in `message_lives`."""
    last = "last_ts" if end is None else f"greatest(last_ts, {end})"
    return f"""
select c.*, {dialect.hashed("client_id")} as client, case when ended > 0 then last_ts else horizon end as until
from (
  select *, max({last}) over (partition by cluster) as horizon
  from (
    select cluster, client_id, max(ended) as ended, cast(sum(publishes) as bigint) as publishes,
      min(first_ts) as first_ts, max(last_ts) as last_ts, max(last_back) as last_back
    from takings group by cluster, client_id
  ) where first_ts is not null
) as c"""


# ---- producers ------------------------------------------------------------------------------------------------------


def producer_waits(shortest: int) -> str:
    """Messages that waited long: cluster, client_id, b, e."""
    return f"""
select c.cluster, c.client_id, b, coalesce(e, c.until) as e
from (
  select cluster, client, sent as b, {_end("done", "cluster, client")} as e
  from (
    select *, case when {_ANSWERED} is not null then greatest(sent, {_ANSWERED}) end as done
    from (select cluster, client, producer, pub, sent, confirmed, refused from message_lives where sent is not null)
  )
) as w
join client_lives as c on c.cluster = w.cluster and c.client = w.client
where coalesce(e, c.until) - b >= {shortest}"""


def _end(done: str, keys: str) -> str:
    """When a message was answered, else when one was that was sent later."""
    earlier = "order by sent desc, producer desc, pub desc rows between unbounded preceding and 1 preceding"
    return f"coalesce({done}, min({done}) over (partition by {keys} {earlier}))"


def producer_outages(shortest: int) -> str:
    """The union of the waits, cut at each answer."""
    return f"""
select cluster, client_id, b, e, 1 as why from (
  select cluster, client_id, whole, ts as b, lead(ts) over (partition by cluster, client_id, whole order by ts) as e
  from (
    select cluster, client_id, b as whole, b as ts from producer_islands
    union select cluster, client_id, b, e from producer_islands
    union select i.cluster, i.client_id, i.b, answered
    from producer_islands as i
    join client_lives as c on c.cluster = i.cluster and c.client_id = i.client_id
    join (select cluster, client, {_ANSWERED} as answered from message_lives) as l
      on l.cluster = c.cluster and l.client = c.client and answered > i.b and answered < i.e
  )
) where e - b >= {shortest}"""


# ---- consumers ------------------------------------------------------------------------------------------------------


def consumer_queues(dialect: Dialect) -> str:
    """Who takes from what; `drained`: to its end."""
    return f"""
select t.cluster, t.client_id, t.queue, {dialect.hashed("t.queue")} as place, c.horizon,
  case when t.drained is not null or a.drained is not null then 1 else 0 end as drained
from (
  select cluster, client_id, queue, max(drained) as drained, sum(delivers) as delivers
  from takings group by cluster, client_id, queue
) as t
join client_lives as c on c.cluster = t.cluster and c.client_id = t.client_id
left join (
  select cluster, client_id, max(drained) as drained from takings where queue = '' group by cluster, client_id
) as a on a.cluster = t.cluster and a.client_id = t.client_id
where t.delivers > 0"""


def queue_waits() -> str:
    """cluster, place, unseen (0 or 1), b, e; what was never delivered, and nothing sent later either, is waited for
    until the horizon."""
    # a refusal by the exchange says nothing about the queue that the message came to
    seen = "case when taken_from <> sent_to then delivered else least(delivered, refused) end"
    return f"""
select cluster, place, case when done is null then 1 else 0 end as unseen, sent as b,
  coalesce({_end("done", "cluster, place")}, horizon) as e
from (
  select l.cluster, l.place, producer, pub, sent, horizon,
    case when seen is not null then greatest(sent, seen, confirmed) end as done
  from (
    select *, coalesce(taken_from, sent_to) as place, {seen} as seen from message_lives where sent is not null
    union all select *, taken_from_2 as place, delivered as seen from message_lives
    where sent is not null and taken_from_2 <> taken_from
  ) as l
  join (select distinct cluster, place, horizon from consumer_queues) as q
    on q.cluster = l.cluster and q.place = l.place
)"""


def queue_islands() -> str:
    """The unions of the waits."""
    return islands("(select * from queue_waits where e > b)", "cluster, place, unseen")


def pauses(shortest: int) -> str:
    """Of consumers: from one delivery to the next, or to the end."""
    return f"""
select * from (
  select a.cluster, a.client_id, last_deliver as g0,
    coalesce(lead(first_deliver) over (partition by a.cluster, a.client_id order by bucket), c.until) as g1, c.until
  from activity as a join client_lives as c on c.cluster = a.cluster and c.client_id = a.client_id where delivers > 0
) where g1 - g0 >= {shortest}"""


def consumer_waits(dialect: Dialect) -> str:
    """What was on its way in a pause: cluster, client_id, g0, b, e."""
    first, last = dialect.quotient("g0", str(SECOND)), dialect.quotient("g1", str(SECOND))
    begin, end = dialect.quotient("b", str(SECOND)), dialect.quotient("e", str(SECOND))
    mine = """from pauses as p join consumer_queues as q on q.cluster = p.cluster and q.client_id = p.client_id"""
    return f"""
select distinct p.cluster, p.client_id, p.g0, greatest(p.g0, w.b) as b, least(p.g1, w.e) as e
from (select p.*, q.place, q.drained, {dialect.numbers(first, last)} as second {mine}) as p
join (select *, {dialect.numbers(begin, end)} as second from queue_islands) as w
  on w.cluster = p.cluster and w.place = p.place and w.second = p.second
  and w.b < p.g1 and w.e > p.g0 and (w.unseen = 0 or p.drained = 0)"""


def consumer_outages(dialect: Dialect, shortest: int) -> str:
    """The waits joined; an application that was busy was not waiting until it settled something."""
    pieces = islands("consumer_waits", "cluster, client_id, g0", shortest)
    first, last = dialect.quotient("b", str(SECOND)), dialect.quotient("e", str(SECOND))
    ts = dialect.quotient(f"bucket * {BUCKET}", str(SECOND))
    return f"""
select cluster, client_id, case when settled - b >= {shortest} then settled else b end as b, e, 4 as why
from (
  select p.cluster, p.client_id, p.b, p.e, max(case
    when s.last_settle > p.b and s.last_settle < p.e then s.last_settle
    when s.first_settle > p.b and s.first_settle < p.e then s.first_settle end) as settled
  from (select *, {dialect.numbers(first, last)} as second from ({pieces}) where e - b >= {shortest}) as p
  left join (
    select cluster, client_id, first_settle, last_settle, {ts} as second from activity where settles > 0
  ) as s on s.cluster = p.cluster and s.client_id = p.client_id and s.second = p.second
  group by p.cluster, p.client_id, p.b, p.e
)
where e - case when settled - b >= {shortest} then settled else b end >= {shortest}"""


# ---- connections, and all together ----------------------------------------------------------------------------------


def _between(begins: str, ends: str, why: int, only: str = "true") -> str:
    """From a row of the one kinds to the next of the other; what the client has asked for itself ends it, too."""
    return f"""
select n.cluster, n.client_id, ts as b, coalesce(e, c.horizon) as e, {why} as why
from (
  select *, lead(ts) over (partition by cluster, client_id order by ts, seq, kind, planned) as e
  from (
    select *, coalesce(lag(away) over (partition by cluster, client_id order by ts, seq, kind, planned), 0) as was
    from (select *, case when kind in {begins} and not planned then 1 else 0 end as away from links
          where planned or kind in {begins} or kind in {ends})
  ) where away <> was
) as n
join client_lives as c on c.cluster = n.cluster and c.client_id = n.client_id
where away = 1 and {only}"""


def parts() -> str:
    """All down times of clients."""
    away = _between(_AWAY, _BACK, 2)
    blocked = _between("('blocked')", _GO_AHEAD, 8, "c.publishes > 0")
    found = ("select * from producer_outages", "select * from consumer_outages", away, blocked)
    return " union all ".join(found)


def outages(shortest: int) -> str:
    """cluster, client_id, ts_begin, ts_end (µs), why, censored."""
    why = ", ".join(f"case when why & {bit} > 0 then '+{word}' else '' end" for bit, word in WHY.items())
    joined = islands("parts", "cluster, client_id", more="bit_or(why) as why")
    back = "planned or kind in ('connected', 'unblocked')"
    return f"""
select p.cluster, p.client_id, b as ts_begin, e as ts_end, substring(concat({why}), 2) as why,
  e >= c.until and coalesce(greatest(c.last_back, k.ts), e - 1) < e as censored
from ({joined}) as p
join client_lives as c on c.cluster = p.cluster and c.client_id = p.client_id
left join (select cluster, client_id, max(ts) as ts from links where {back} group by cluster, client_id) as k
  on k.cluster = p.cluster and k.client_id = p.client_id
where e - b >= {shortest}"""


def outage_union() -> str:
    """The sweep for each span: any_down, all_down (of those that exist), client_us, most (clients at once), clients,
    ts_begin, ts_end of it all."""
    before = "partition by incident, cluster order by ts rows between unbounded preceding and current row"
    return f"""
select incident, cluster,
  cast(sum(case when down > 0 then later - ts else 0 end) as bigint) as any_down,
  cast(sum(case when alive > 0 and down >= alive then later - ts else 0 end) as bigint) as all_down,
  cast(sum(down * (later - ts)) as bigint) as client_us, cast(max(down) as bigint) as most,
  cast(sum(born) as bigint) as clients,
  min(case when down > 0 then ts end) as ts_begin, max(case when down > 0 then later end) as ts_end
from (
  select incident, cluster, ts, born, sum(down) over ({before}) as down, sum(alive) over ({before}) as alive,
    coalesce(lead(ts) over (partition by incident, cluster order by ts), ts) as later
  from (
    select incident, cluster, ts, sum(down) as down, sum(alive) as alive, sum(born) as born
    from (
      select incident, cluster, b as ts, down, alive, alive as born from cut
      union all select incident, cluster, e as ts, -down, -alive, 0 from cut
    ) group by incident, cluster, ts
  )
) group by incident, cluster"""


def cut() -> str:
    """Down times and lives of clients, as far as they are in a span."""
    return """
select * from (
  select s.incident, s.cluster, greatest(o.b, s.ts_begin) as b, least(o.e, s.ts_end) as e, down, alive
  from (
    select cluster, ts_begin as b, ts_end as e, 1 as down, 0 as alive from outages
    union all select cluster, first_ts, until, 0, 1 from client_lives
  ) as o join spans as s on s.cluster = o.cluster
) where b < e"""
