"""The outages of clients, as SQL (pure text).

A client is down while it waits and nothing comes.  All times are integers in µs of one clock (`clock` gives a row's);
intervals are half-open.

* A **producer** waits while something that it sent is not answered (confirm, nack or return); each answer ends a
  standstill.  What is never answered is waited for until something that was sent after it is answered.
* A **consumer** waits while a message of a queue that it takes from is long (`shortest`) on its way: from the first
  send until it was delivered to anybody and, if it ever was, confirmed.  (What others get at once is no outage of it.)
  Each delivery to it ends a standstill; so does the next one if it comes less than `shortest` after the wait.  Its own
  acknowledgements long after a delivery mean that the application was busy, not that nothing came: it waits from the
  last of them.  What is never delivered is waited for until something that was sent after it is delivered; if the
  consumer has drained the queue to its end, not at all.
* A client that is **not connected** and did not ask for that is down until it is connected again; one that begins with
  connecting is down from its first attempt.  A client that publishes is down while the broker asks it to pause.

Down times of a client that touch are one.  Those shorter than `shortest` are what every client has all the time and are
left out; the times inside a run are known to 1 ms.  A client that never comes back is
down until the last row of its cluster (censored).

The sweep over all of them: any client down, all down (of those that exist at the time), client-seconds.

Each function is one view or table, which names those before it.  Only waits that may matter are looked at one by one:

* producer: an outage ends with an answer, and the first message that waits in it waits until then.  So an outage of at
  least `shortest` has one message that waited as long: all others are left out at once.
* consumer: by definition.

Both are waits; what has no answer at all waits until something sent later has one.  To find that, messages are not
sorted per client or queue, since one of them may have most of all: the messages of each second are sorted, and the
seconds.

`broadcast` is a hint for Spark, which cannot know that a view is small: the big side of a join stays where it is.
"""

from __future__ import annotations

from typing import Final

SECOND: Final = 1_000_000
MINUTE: Final = 60_000_000
MOMENTS: Final = "cluster string, client_id string, span bigint, got int, ts bigint"
WHY: Final = {1: "confirm", 2: "connection", 4: "deliver", 8: "go-ahead"}
"""Bits, in the order of the alphabet."""
_AWAY: Final = "('connect', 'connect_refused', 'disconnected')"
_BACK: Final = "('connected', 'log_end')"
_GO_AHEAD: Final = "('unblocked', 'disconnected', 'connected', 'log_end')"
_LINK: Final = "('connect', 'connect_refused', 'disconnected', 'connected', 'log_end', 'blocked', 'unblocked')"
_ANSWERED: Final = "least(confirmed, refused)"


def links(events: str = "events_raw", clock: str = "ts_wall") -> str:
    """Rows about connections."""
    return f"""
select coalesce(cluster, '') as cluster, coalesce(client_id, '') as client_id, {clock} as ts, coalesce(seq, 0) as seq,
  kind, coalesce(planned, false) as planned
from {events} where source = 'client' and kind in {_LINK}"""


def client_lives() -> str:
    """The lives of clients (first_ts, last_ts), `until`: a client that ended cleanly waits for nothing; `horizon`: the
    end of the observation of the cluster, µs.  `client`: the hash in `message_lives`, of the view `names`."""
    return """
select c.*, n.hash as client, case when ended > 0 then last_ts else horizon end as until
from (
  select *, max(last_ts) over (partition by cluster) as horizon
  from (
    select cluster, client_id, max(ended) as ended, cast(sum(publishes) as bigint) as publishes,
      min(first_ts) as first_ts, max(last_ts) as last_ts, max(last_back) as last_back,
      min(first_deliver) as first_deliver
    from takings group by cluster, client_id
  ) where first_ts is not null
) as c join names as n on n.cluster = c.cluster and n.name = c.client_id"""


def consumer_queues() -> str:
    """The queues of each consumer; `drained`: to its end."""
    return """
select t.cluster, t.client_id, t.queue, n.hash as place, c.horizon, c.first_deliver, c.until,
  case when t.drained is not null or a.drained is not null then 1 else 0 end as drained
from (
  select cluster, client_id, queue, max(drained) as drained, sum(delivers) as delivers
  from takings group by cluster, client_id, queue
) as t
join client_lives as c on c.cluster = t.cluster and c.client_id = t.client_id
join names as n on n.cluster = t.cluster and n.name = t.queue
left join (
  select cluster, client_id, max(drained) as drained from takings where queue = '' group by cluster, client_id
) as a on a.cluster = t.cluster and a.client_id = t.client_id
where t.delivers > 0"""


# ---- waits ----------------------------------------------------------------------------------------------------------


def message_waits() -> str:
    """Of all messages: side (0: a producer waits for the answer, 1: a queue's consumers for the message), cluster, k
    (hash of the client or the queue), sent, done (NULL: never).  What never came to a queue that all its consumers have
    drained, they do not wait for.  View `queue_sights` is about messages of several queues."""
    # a refusal by the exchange says nothing about the queue that the message came to
    seen = "case when taken_from <> sent_to then delivered else least(delivered, refused) end"
    return f"""
select 0 as side, cluster, client as k, producer, pub, sent,
  case when {_ANSWERED} is not null then greatest(sent, {_ANSWERED}) end as done
from message_lives where sent is not null
union all
select /*+ broadcast(q) */ 1 as side, l.cluster, l.k, producer, pub, sent,
  case when seen is not null then greatest(sent, seen, confirmed) end as done
from (
  select cluster, coalesce(taken_from, sent_to) as k, producer, pub, sent, confirmed, {seen} as seen
  from message_lives where sent is not null and coalesce(taken_from_2 = taken_from, true)
  union all select l.cluster, s.place as k, l.producer, l.pub, sent, confirmed, s.delivered as seen
  from message_lives as l
  join queue_sights as s on s.cluster = l.cluster and s.producer = l.producer and s.pub = l.pub
  where sent is not null
) as l
join (select cluster, place, min(drained) as drained from consumer_queues group by cluster, place) as q
  on q.cluster = l.cluster and q.place = l.k
where seen is not null or q.drained = 0"""


def slow(shortest: int) -> str:
    """Those that took long, or for ever: few."""
    return f"select * from message_waits where done is null or done - sent >= {shortest}"


def later_answers() -> str:
    """When something was answered that was sent after a message without an answer: side, cluster, k, producer, pub, e
    (NULL: never).  Table `slow_waits`."""
    second = f"div(sent, {SECOND})"
    keys = "side, cluster, k"
    asked = f"select distinct {keys}, {second} as asked from slow_waits where done is null"
    all_of = f"select m.*, div(m.sent, {SECOND}) as second from message_waits as m"
    same = "o.side = m.side and o.cluster = m.cluster and o.k = m.k"
    before = "rows between unbounded preceding and 1 preceding"
    return f"""
select n.side, n.cluster, n.k, n.producer, n.pub, least(n.e, f.e) as e
from (
  select *, min(done) over (partition by {keys}, second order by sent desc, producer desc, pub desc {before}) as e
  from (select /*+ broadcast(o) */ m.* from ({all_of}) as m join ({asked}) as o on {same} and o.asked = m.second)
) as n
join (
  select *, min(least_done) over (partition by {keys} order by second desc {before}) as e
  from (
    select /*+ broadcast(o) */ m.side, m.cluster, m.k, m.second, min(m.done) as least_done
    from ({all_of}) as m join (select distinct {keys} from slow_waits where done is null) as o on {same}
    group by m.side, m.cluster, m.k, m.second
  )
) as f on f.side = n.side and f.cluster = n.cluster and f.k = n.k and f.second = n.second
where n.done is null"""


def standstills(shortest: int) -> str:
    """The unions of the waits of at least `shortest`: side, cluster, k, unseen (0 or 1), b, e.  No wait lasts beyond
    `horizon`."""
    waits = """
select w.side, w.cluster, w.k, w.unseen, w.b, coalesce(w.e, c.horizon) as e
from (
  select side, cluster, k, 0 as unseen, sent as b, done as e from slow_waits where done is not null
  union all
  select w.side, w.cluster, w.k, w.side as unseen, w.sent as b, l.e
  from slow_waits as w join later_answers as l
    on l.side = w.side and l.cluster = w.cluster and l.k = w.k and l.producer = w.producer and l.pub = w.pub
  where w.done is null
) as w
join (select distinct cluster, horizon from client_lives) as c on c.cluster = w.cluster"""
    return _islands(f"(select * from ({waits}) where e - b >= {shortest})", "side, cluster, k, unseen")


def _islands(source: str, keys: str, slack: int = 0, more: str = "") -> str:
    """The union of the intervals [b, e) of `source` for each value of `keys`; two with less than `slack` between them
    are one, too, and so are two that touch.  `more`: more aggregates."""
    before = f"max(e) over (partition by {keys} order by b, e rows between unbounded preceding and 1 preceding)"
    joins = f"b <= {before}" if not slack else f"b - {before} < {slack}"
    extra = f", {more}" if more else ""
    so_far = f"partition by {keys} order by b, e rows between unbounded preceding and current row"
    return f"""
select {keys}, min(b) as b, max(e) as e{extra}
from (
  select *, sum(apart) over ({so_far}) as island
  from (select *, case when {joins} then 0 else 1 end as apart from {source})
)
group by {keys}, island"""


# ---- producers ------------------------------------------------------------------------------------------------------


def producer_outages(shortest: int) -> str:
    """The union of the waits, cut at each answer (table `producer_moments`)."""
    return f"""
select cluster, client_id, b, e, 1 as why from (
  select cluster, client_id, whole, ts as b, lead(ts) over (partition by cluster, client_id, whole order by ts) as e
  from (
    select cluster, client_id, b as whole, b as ts from producer_standstills
    union select cluster, client_id, b, e from producer_standstills
    union select cluster, client_id, span, ts from producer_moments
  )
) where e - b >= {shortest}"""


def producer_moments() -> str:
    """When something was answered in a standstill: cluster, client_id, span (its begin), ts."""
    minutes, answered = _minutes("b", "e"), f"div({_ANSWERED}, {MINUTE})"
    return f"""
select /*+ broadcast(i) */ distinct i.cluster, i.client_id, i.b as span, answered as ts
from (select *, {minutes} as minute from producer_standstills) as i
join (select cluster, client, {_ANSWERED} as answered, {answered} as minute from message_lives) as l
  on l.cluster = i.cluster and l.client = i.client and l.minute = i.minute and answered > i.b and answered < i.e"""


def producer_standstills() -> str:
    """cluster, client_id, client, b, e"""
    return """
select * from (
  select c.cluster, c.client_id, c.client, s.b, least(s.e, c.until) as e
  from standstills as s join client_lives as c on c.cluster = s.cluster and c.client = s.k where s.side = 0
) where b < e"""


def _minutes(first: str, last: str) -> str:
    """Column of a SELECT: one row for each minute, so that a long one is not compared with everything."""
    return f"explode(sequence(div({first}, {MINUTE}), div({last}, {MINUTE})))"


# ---- consumers ------------------------------------------------------------------------------------------------------


def consumer_waits() -> str:
    """When something of its queues was on its way, as far as a consumer was there; not before its first delivery:
    cluster, client_id, b, e."""
    return """
select * from (
  select q.cluster, q.client_id, greatest(s.b, q.first_deliver) as b, least(s.e, q.until) as e
  from standstills as s
  join consumer_queues as q on q.cluster = s.cluster and q.place = s.k and (s.unseen = 0 or q.drained = 0)
  where s.side = 1
) where b < e"""


def consumer_spans(shortest: int) -> str:
    """Those with less than `shortest` between them as one, and that much behind them: cluster, client_id, b, e."""
    spans = _islands("consumer_waits", "cluster, client_id", shortest)
    return f"select cluster, client_id, b, e + {shortest} as e from ({spans})"


def consumer_moments(rows: str) -> str:
    """What a consumer got (`got` = 1) or settled in its spans: MOMENTS.  `rows`: as `takes` gives them."""
    minutes = _minutes("b", "e")
    return f"""
select /*+ broadcast(s) */ s.cluster, s.client_id, s.b as span, case when t.code = 6 then 1 else 0 end as got, t.ts
from (select *, div(ts, {MINUTE}) as minute from ({rows})) as t
join (select *, {minutes} as minute from consumer_spans) as s
  on s.cluster = t.cluster and s.client_id = t.client_id and s.minute = t.minute and t.ts >= s.b and t.ts < s.e"""


def consumer_outages(shortest: int) -> str:
    """The spans cut at each delivery, and what was waited for in each piece: to its end, or to the delivery soon after.
    An application that was busy was not waiting until it settled something.  Table `consumer_moments`."""
    pieces = f"""
select * from (
  select cluster, client_id, span, ts as g0, lead(ts) over (partition by cluster, client_id, span order by ts) as g1
  from (
    select cluster, client_id, b as span, b as ts from consumer_spans
    union select cluster, client_id, b, e from consumer_spans
    union select cluster, client_id, span, ts from consumer_moments where got = 1
  )
) where g1 - g0 >= {shortest}"""
    waited = f"""
select cluster, client_id, span, b, case when g1 - e < {shortest} then g1 else e end as e from (
  select p.cluster, p.client_id, p.span, p.g1, min(greatest(p.g0, w.b)) as b, max(least(p.g1, w.e)) as e
  from ({pieces}) as p
  join consumer_waits as w on w.cluster = p.cluster and w.client_id = p.client_id and w.b < p.g1 and w.e > p.g0
  group by p.cluster, p.client_id, p.span, p.g0, p.g1
)"""
    return f"""
select cluster, client_id, case when settled - b >= {shortest} then settled else b end as b, e, 4 as why
from (
  select w.cluster, w.client_id, w.b, w.e, max(m.ts) as settled
  from ({waited}) as w
  left join consumer_moments as m
    on m.cluster = w.cluster and m.client_id = w.client_id and m.span = w.span and got = 0 and m.ts > w.b and m.ts < w.e
  group by w.cluster, w.client_id, w.b, w.e
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
    joined = _islands("parts", "cluster, client_id", more="bit_or(why) as why")
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
