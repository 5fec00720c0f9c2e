"""The outcome of every message, as SQL (pure text).

Jepsen's `total-queue` (checker.clj), per message id, with a attempts, e confirms and d dequeues:

    ok         = D intersect A            min(d, a)
    unexpected = D without any key of A   d                if a = 0
    duplicated = (D minus A) - unexpected max(0, d - a)    if a > 0
    lost       = E minus D                max(0, e - d)
    recovered  = ok minus E               max(0, min(d, a) - e)

Our rows in these terms:

* attempt: the first send of an id (`publish` without `resend`).  A re-send is the client's own and would hide a
  duplicate.
* confirm: an id that was sent again may be confirmed again, which is the same fact: e = min(confirms, max(a, 1)).
* dequeue: an `ack`.  What was delivered, not acknowledged and delivered again is one dequeue.  A message that was
  delivered without an attempt is unexpected, acknowledged or not.
* several queues: an exchange may put a message into many (it was delivered from several), and each has its own
  dequeues.  d is that of the queue with the most; duplicates are those of all queues, max(0, d - a) each.

Jepsen has one complete history; logs are not.  What is missing (e > d) is

* explained    a row says why: returned, rejected, expired, dropped, dead-lettered, purged, still in the queue (unless
               that was drained later: then it was there, and is not).  What a primary removed and no later one has
               heard of has not been removed (`survivors`)
* lost         all logs that could say otherwise are complete (below), and its queue was drained after the confirm
* unaccounted  otherwise: the outcome is unknown

The logs of a queue are complete when each process that took from it has written `drain_end` with result `ok` for it,
`log_end`, and all numbers (`seq`) from 1 on.  A client that wrote nothing about messages counts as one that may have
taken from any queue.  Brokers' logs say which clients were connected and what was removed: each process has all numbers
from 1 on, each epoch that another one goes on from has a primary's log, and each client that connected has a log here
(`client_id`; plain AMQP clients name themselves by the property `qpid.client_id`).  So neither a row nor a file that is
missing turns anything into `lost`, unless it is the end of a broker's log.  In the same way a delivery without an
attempt is a finding only when the log of its producer is here and complete (a killed client's last 100 ms are missing).

A duplicate is *redelivered* when some delivery of it said so, else *resend* when its producer sent it again, as its own
log or a delivery says (both are allowed by at-least-once), else *unmarked*: a finding.

Three steps: `lives` (one row a message, by one grouping of all rows; its counters are packed, 20 bits each, because a
grouping costs by the column), `verdicts` (of the few that are not simply ok), `summary`.  `messages.job` decides from
`takings`, which is small, how complete the logs are as evidence.

Sent to two queues, a message needs the evidence of both; if its producer names more than two, those that sort first
and last are asked.  From how many queues it was taken does not matter (`messages.fans`).
"""

from __future__ import annotations

from typing import Final

from spark_jobs.sql.rows import FLAGS, NONE, REDELIVERED, RESENT, SENDS, coded, messages, quoted

MASK: Final = (1 << 20) - 1
_B1: Final = 1 << 20
_B2: Final = 1 << 40
SHAKY: Final = "its producer's log is incomplete"
_LATE: Final = "confirmed after its queue was drained"
_HELD: Final = "delivered, never acknowledged"
OK: Final = "a > 0 and d > 0 and d = e and d <= a"


def lives(events: str = "events_raw", clock: str = "ts_wall", undone: str = NONE) -> str:
    """cluster, producer, pub; sends = attempts | confirms | resends; takes = acks | delivers | refusals; flags;
    times in µs (first sent, confirmed, refused, delivered; confirmed_by: a run's end; dumped: when it was last seen in
    a queue's dump); client and places (hashes).  `undone`: condition of rows that do not count."""
    return f"""
select cluster, producer, pub,
  cast(sum(case code when 1 then 1 when 3 then {_B1} when 2 then {_B2} else 0 end) as bigint) as sends,
  cast(sum(case code when 7 then 1 when 6 then {_B1} when 4 then {_B2} when 5 then {_B2} else 0 end)
    as bigint) as takes,
  bit_or(flags) as flags,
  min(case when code in (1, 2) then ts end) as sent,
  min(case when code = 3 then ts end) as confirmed,
  min(case when code = 3 then done_ts end) as confirmed_by,
  min(case when code in (4, 5) then ts end) as refused,
  min(case when code = 6 then ts end) as delivered,
  max(case when flags & {FLAGS["queue_dump"]} > 0 then ts end) as dumped,
  min(case when code between 1 and 5 then client end) as client,
  min(case when code between 1 and 5 then place end) as sent_to,
  max(case when code between 1 and 5 then place end) as sent_to_2,
  min(case when code = 6 then place end) as taken_from,
  max(case when code = 6 then place end) as taken_from_2
from ({messages(events, clock, undone)})
group by cluster, producer, pub"""


def takings(events: str = "events_raw", clock: str = "ts_wall") -> str:
    """What each process wrote about each queue: small.  Of a log without holes `seqs` = `seq_max`, and their sum fits.

    `drained`, first_ts, last_ts (of all its rows) and last_back (an answer or a delivery) are µs."""

    def number(condition: str, name: str) -> str:
        return f"cast(sum(case when {condition} then 1 else 0 end) as bigint) as {name}"

    return f"""
select cluster, proc, client_id, queue,
  count(seq) as seqs, cast(sum(seq) as bigint) as seq_sum, max(seq) as seq_max,
  max(case when code = 0 and kind = 'log_end' then 1 else 0 end) as ended,
  max(case when code = 0 and kind = 'drain_end' and result = 'ok' then ts end) as drained,
  min(case when code > 0 or kind <> 'torn' then ts end) as first_ts,
  max(case when code > 0 or kind <> 'torn' then done_ts end) as last_ts,
  max(case when code between 3 and 6 then done_ts end) as last_back,
  min(case when code = 6 then ts end) as first_deliver,
  {number("code between 1 and 5", "sends")}, {number("code >= 6", "takes")},
  {number("code = 6 and producer is not null", "delivers")},
  {number("code in (1, 2) and producer is not null", "publishes")},
  {number("code > 0 and producer is null", "anonymous")}
from {coded(events, clock)}
group by cluster, proc, client_id, queue"""


def doubts(events: str = "events_raw", undone: str = NONE) -> str:
    """Queues of which a broker removed messages without saying which; `count` of a row: how many."""
    return f"""
select coalesce(cluster, '') as cluster, queue, min(kind) as kind from {events}
where source <> 'client' and kind in ({quoted(FLAGS)}) and producer is null and queue <> ''
  and coalesce(attrs['count'], '') <> '0' and not {undone}
group by coalesce(cluster, ''), queue"""


def brokers(events: str = "events_raw") -> str:
    """What each broker's process wrote: of a log without holes `seqs` = seq_max - seq_min + 1, and their sum fits.

    `client`: that connected, '' without a name.  `begun`: an epoch that this broker began, with `base`; `followed`: one
    whose primary has brought it up to date."""
    return f"""
select cluster, proc, client, begun, base, followed,
  count(*) as seqs, cast(sum(seq) as bigint) as seq_sum, min(seq) as seq_min, max(seq) as seq_max
from (
  select coalesce(cluster, '') as cluster, coalesce(proc, '') as proc, seq,
    case when kind = 'client_open' then coalesce(client_id, '') end as client,
    case when kind = 'promoted' then term end as begun, case when kind = 'promoted' then attrs['base'] end as base,
    case when kind = 'state' and new = 'ready' then term end as followed
  from {events} where source = 'broker' and kind <> 'torn' and seq is not null
) group by cluster, proc, client, begun, base, followed"""


def names() -> str:
    """cluster, name: of clients and queues."""
    return "select cluster, client_id as name from takings union select cluster, queue as name from takings"


def shaky(events: str = "events_raw", incomplete: str = "incomplete", found: str = "unexpected") -> str:
    """Producers of unexpected messages that have no log, or an incomplete one, though they may have sent: cluster,
    producer, cause.  View `log_gaps`: cluster, gap (why a client may have no log)."""
    return f"""
select u.cluster, u.producer, max(case when v.proc is null then g.gap else {quoted([SHAKY])} end) as cause
from (select distinct cluster, producer from {found}) as u
left join (
  select distinct coalesce(cluster, '') as cluster, producer, coalesce(nullif(proc, ''), client_id, '') as proc
  from {events} where source = 'client' and kind in {SENDS}
) as v on v.cluster = u.cluster and v.producer = u.producer
left join log_gaps as g on g.cluster = u.cluster
left join {incomplete} as i on i.cluster = u.cluster and i.proc = v.proc
where i.proc is not null or v.proc is null and g.gap is not null
group by u.cluster, u.producer"""


def counted(relation: str = "message_counts") -> str:
    """Lives with their counters apart: a attempts, confirms, e (Jepsen's), d dequeues, ...

    `message_counts`: as `fans.alone` or `fans.apart` gives it."""
    fields = [("a", "sends", 0), ("confirms", "sends", 20), ("resends", "sends", 40)]
    fields += [("d", "takes", 0), ("delivers", "takes", 20), ("refusals", "takes", 40)]
    columns = ", ".join(f"shiftright({packed}, {bits}) & {MASK} as {name}" for name, packed, bits in fields)
    return f"""
select *, least(confirms, greatest(a, 1)) as e, case when d > 0 then d when delivers > 0 then 1 else 0 end as got
from (select *, {columns} from {relation})
where a + confirms + d + delivers + refusals > 0"""


def unexpected(relation: str = "message_counts") -> str:
    """Producers of messages that came without an attempt."""
    return f"select distinct cluster, producer from ({counted(relation)}) where a = 0 and got > 0 and e <= d"


def judged(relation: str = "message_counts") -> str:
    """All messages that are not simply ok (attempted, confirmed, dequeued, and nothing more), with verdict and cause.

    Views: `evidence` (cluster, place, doubt, why, drained_at), `shaky_producers`."""
    return f"""
select l.*, coalesce(sent, confirmed, delivered, refused) as moment,
  case
    when e > d then case when explained then 'explained' when why is not null then 'unaccounted' else 'lost' end
    when a = 0 and got > 0 then 'unexpected'
    when d > a and a > 0 then 'duplicated'
    when d > 0 then 'recovered'
    when refusals > 0 then 'refused' else 'unknown' end as verdict,
  case
    when e > d then case
      when explained then case {_causes()} end
      when why is not null then why
      when delivers > 0 then '{_HELD}' else '' end
    when a = 0 and got > 0 then coalesce(p.cause, '')
    when d > a and a > 0 then case
      when l.flags & {REDELIVERED} > 0 then 'redelivered'
      when resends > 0 or l.flags & {RESENT} > 0 then 'resend' else 'unmarked' end
    when d = 0 and delivers > 0 then '{_HELD}' else '' end as cause
from ({_weighed(relation)}) as l
left join shaky_producers as p on p.cluster = l.cluster and p.producer = l.producer"""


def _weighed(relation: str) -> str:
    """Adds the evidence about missing messages: explained; why the outcome is unknown (NULL: it is known)."""
    doubt, why = "least(q.doubt, r.doubt)", f"least({_why('q')}, {_why('r')})"
    known = sum(FLAGS.values()) - FLAGS["queue_dump"]
    return f"""
select /*+ broadcast(q), broadcast(r) */ l.*, flags & {known} > 0 or (
    flags & {FLAGS["queue_dump"]} > 0 and not ({_emptied("q")} or {_emptied("r")})) as explained,
  case when {doubt} is not null then concat({doubt}, ' in its queue') else {why} end as why
from (select * from ({counted(relation)}) where not ({OK})) as l
left join evidence as q on q.cluster = l.cluster and q.place = l.sent_to and l.e > l.d
left join evidence as r on r.cluster = l.cluster and r.place = l.sent_to_2 and l.e > l.d"""


def _causes() -> str:
    # who is explained and has no other cause is in a dump
    named = [f"when l.flags & {bit} > 0 then '{kind}'" for kind, bit in FLAGS.items()]
    return " ".join(named)


def _why(side: str) -> str:
    return f"case when {side}.why <> '' then {side}.why when l.confirmed_by > {side}.drained_at then '{_LATE}' end"


def _emptied(side: str) -> str:
    """Drained after it was last seen there."""
    return f"coalesce({side}.why = '' and {side}.drained_at >= l.dumped, false)"


def verdicts(relation: str = "judged") -> str:
    """cluster, producer, pub, verdict, ...; `incident`: in which it was sent, else confirmed, else delivered.

    View `spans` (incident, cluster, ts_begin, ts_end)."""
    return f"""
select coalesce(s.incident, '') as incident, v.cluster, producer, pub, verdict, cause,
  case when e > d then e - d else 0 end as missing,
  case when e > d then 0 when a = 0 then greatest(got, copies) else coalesce(copies, greatest(0, d - a)) end
    as duplicates,
  case when e > d then 0 else greatest(0, least(d, a) - e) end as recovered,
  a as attempts, resends, confirms, refusals, delivers, d as acks, sent, confirmed, delivered, n.queue
from {relation} as v
left join spans as s on s.cluster = v.cluster and moment >= s.ts_begin and moment < s.ts_end
left join queue_names as n on n.cluster_of = v.cluster and n.place = coalesce(v.sent_to, v.taken_from)"""


def summary(lives: str = "message_counts", verdicts: str = "message_verdicts") -> str:
    """Sums per incident and queue, as `reference.Summary` names them."""
    totals = [_total("n", "messages"), *(_total(name, name) for name in (*_OF_ALL, *_OF_VERDICTS))]
    zeros = ", ".join(f"0 as {name}" for name in _OF_ALL)
    found = ", ".join(f"{text} as {name}" for name, text in _OF_VERDICTS.items())
    return f"""
select incident, cluster, queue, {", ".join(totals)} from (
  select t.incident, t.cluster, n.queue, t.n, {", ".join(_OF_ALL)}, {", ".join(f"0 as {name}" for name in _OF_VERDICTS)}
  from ({_all(lives)}) as t
  left join queue_names as n on n.cluster_of = t.cluster and n.place = t.place
  union all select incident, cluster, queue, 0 as n, {zeros}, {found} from {verdicts}
) group by incident, cluster, queue"""


def _all(relation: str) -> str:
    """What every message counts for."""
    return f"""
select incident, cluster, place, count(*) as n, {", ".join(_total(text, name) for name, text in _OF_ALL.items())}
from (
  select coalesce(s.incident, '') as incident, l.cluster, coalesce(sent_to, taken_from) as place, a, d, e, resends as r
  from ({counted(relation)}) as l
  left join spans as s on s.cluster = l.cluster and coalesce(sent, confirmed, delivered, refused) >= s.ts_begin
    and coalesce(sent, confirmed, delivered, refused) < s.ts_end
) group by incident, cluster, place"""


def _total(expression: str, name: str) -> str:
    return f"cast(sum({expression}) as bigint) as {name}"


def _of(verdict: str, expression: str) -> str:
    return f"case when verdict = '{verdict}' then {expression} else 0 end"


def _marked(cause: str) -> str:
    return f"case when verdict = 'duplicated' and cause = '{cause}' then duplicates else 0 end"


_OF_ALL: Final = {"attempts": "a", "confirmed": "e", "ok": "least(d, a)", "resends": "r"}
_OF_VERDICTS: Final = {
    **{verdict: _of(verdict, "missing") for verdict in ("lost", "unaccounted", "explained")},
    **{verdict: _of(verdict, "duplicates") for verdict in ("unexpected", "duplicated")},
    "unlogged": _of("unexpected", "case when cause <> '' then duplicates else 0 end"),
    **{cause: _marked(cause) for cause in ("redelivered", "resend", "unmarked")},
    "recovered": "recovered",
    **{verdict: _of(verdict, "1") for verdict in ("refused", "unknown")},
}


def causes(relation: str = "message_verdicts") -> str:
    """How many messages each cause explains: incident, cluster, verdict, cause, messages."""
    return f"""
select incident, cluster, verdict, cause, cast(sum(greatest(missing, duplicates, 1)) as bigint) as messages
from {relation} where cause <> '' group by incident, cluster, verdict, cause"""
