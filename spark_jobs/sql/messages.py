"""What became of every message, as SQL; `solve.messages_small` is the reference and has the definitions (pure text).

Three steps: `lives` (one row a message, by one grouping of all rows; its counters are packed, 20 bits each, because a
grouping costs by the column), `judged` (the verdict), `summary`.  What the logs are worth as evidence is worked out
from `takings`, which is small, by the reference's own code (`jobs.messages`).

Sent to two queues, a message needs the evidence of both; of more than two those that sort first and last are asked.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.sql.dialect import Dialect
from spark_jobs.sql.rows import FLAGS, SENDS, coded, messages

MASK: Final = (1 << 20) - 1
_B1: Final = 1 << 20
_B2: Final = 1 << 40
SHAKY: Final = "its producer's log is incomplete"
_LATE: Final = "confirmed after its queue was drained"
_HELD: Final = "delivered, never acknowledged"


def lives(dialect: Dialect, events: str = "events_raw", clock: str = "ts_wall") -> str:
    """cluster, producer, pub; sends = attempts | confirms | resends; takes = acks | delivers | refusals; flags;
    times in µs (first sent, confirmed, refused, delivered; confirmed_by: a run's end); client and places (hashes)."""
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
  min(case when code between 1 and 5 then client end) as client,
  min(case when code between 1 and 5 then place end) as sent_to,
  max(case when code between 1 and 5 then place end) as sent_to_2,
  min(case when code = 6 then place end) as taken_from,
  max(case when code = 6 then place end) as taken_from_2
from ({messages(dialect, events, clock)})
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
  {number("code between 1 and 5", "sends")}, {number("code >= 6", "takes")},
  {number("code = 6 and producer is not null", "delivers")},
  {number("code in (1, 2) and producer is not null", "publishes")},
  {number("code > 0 and producer is null", "anonymous")}
from {coded(events, clock)}
group by cluster, proc, client_id, queue"""


def doubts(events: str = "events_raw") -> str:
    """Queues of which a broker removed messages without saying which."""
    kinds = ", ".join(f"'{kind}'" for kind in FLAGS)
    return f"""
select coalesce(cluster, '') as cluster, queue, min(kind) as kind from {events}
where source <> 'client' and kind in ({kinds}) and producer is null and queue <> ''
group by coalesce(cluster, ''), queue"""


def places(dialect: Dialect, relation: str) -> str:
    """A relation with the column `queue`, and the hash that stands for it."""
    return f"select *, {dialect.hashed('queue')} as place from {relation}"


def shaky(events: str = "events_raw", incomplete: str = "incomplete", found: str = "unexpected") -> str:
    """Producers of unexpected messages for which a process sent whose log is incomplete: cluster, producer."""
    return f"""
select distinct u.cluster, u.producer
from {events} as v
join (select distinct cluster, producer from {found}) as u
  on u.cluster = coalesce(v.cluster, '') and u.producer = v.producer
join {incomplete} as i on i.cluster = u.cluster and i.proc = coalesce(nullif(v.proc, ''), v.client_id, '')
where v.source = 'client' and v.kind in {SENDS}"""


def counted(dialect: Dialect, relation: str = "message_lives") -> str:
    """Lives with their counters apart: a attempts, confirms, e (Jepsen's), d dequeues, ..."""
    fields = [("a", "sends", 0), ("confirms", "sends", 20), ("resends", "sends", 40)]
    fields += [("d", "takes", 0), ("delivers", "takes", 20), ("refusals", "takes", 40)]
    columns = ", ".join(
        f"{dialect.shifted(packed, bits) if bits else packed} & {MASK} as {name}" for name, packed, bits in fields
    )
    return f"""
select *, least(confirms, greatest(a, 1)) as e, case when d > 0 then d when delivers > 0 then 1 else 0 end as got
from (select *, {columns} from {relation})
where a + confirms + d + delivers + refusals > 0"""


def _causes() -> str:
    return " ".join(f"when l.flags & {bit} > 0 then '{kind}'" for kind, bit in FLAGS.items())


def unexpected(dialect: Dialect, relation: str = "message_lives") -> str:
    """Producers of messages that came and that nobody attempted."""
    return f"select distinct cluster, producer from ({counted(dialect, relation)}) where a = 0 and got > 0 and e <= d"


def judged(dialect: Dialect, relation: str = "message_lives") -> str:
    """All messages with verdict and cause.

    Views: `evidence` (cluster, place, doubt, why, drained_at), `shaky_producers`, `spans` (incident, cluster, ts_begin,
    ts_end): a message belongs to the incident in which it was sent, else confirmed, else delivered."""
    return f"""
select coalesce(s.incident, '') as incident, m.*,
  case when e > d then e - d else 0 end as missing,
  case when e > d then 0 when a = 0 then got else greatest(0, d - a) end as duplicates,
  case when e > d then 0 else greatest(0, least(d, a) - e) end as recovered
from (
  select l.*,
    case
      when e > d then case
        when {_any_cause()} then 'explained'
        when coalesce(q.doubt, r.doubt) is not null or {_unknown("q")} or {_unknown("r")} then 'unaccounted'
        else 'lost' end
      when a = 0 and got > 0 then 'unexpected'
      when d > a and a > 0 then 'duplicated'
      when d > 0 then case when least(d, a) > e then 'recovered' else 'ok' end
      when refusals > 0 then 'refused' else 'unknown' end as verdict,
    case
      when e > d then case {_causes()}
        when coalesce(q.doubt, r.doubt) is not null then concat(coalesce(q.doubt, r.doubt), ' in its queue')
        when {_unknown("q")} then case when q.why <> '' then q.why else '{_LATE}' end
        when {_unknown("r")} then case when r.why <> '' then r.why else '{_LATE}' end
        when delivers > 0 then '{_HELD}' else '' end
      when a = 0 and got > 0 then case when p.producer is null then '' else '{SHAKY.replace("'", "''")}' end
      when d > a and a > 0 then
        case when l.flags & 1 > 0 then 'redelivered' when resends > 0 then 'resend' else 'unmarked' end
      when d = 0 and delivers > 0 then '{_HELD}' else '' end as cause,
    coalesce(sent, confirmed, delivered, refused) as moment
  from ({counted(dialect, relation)}) as l
  left join evidence as q on q.cluster = l.cluster and q.place = l.sent_to
  left join evidence as r on r.cluster = l.cluster and r.place = l.sent_to_2
  left join shaky_producers as p on p.cluster = l.cluster and p.producer = l.producer
) as m
left join spans as s on s.cluster = m.cluster and moment >= s.ts_begin and moment < s.ts_end"""


def _any_cause() -> str:
    return f"l.flags & {sum(FLAGS.values())} > 0"


def _unknown(side: str) -> str:
    return f"({side}.why <> '' or l.confirmed_by > {side}.drained_at)"


def verdicts(relation: str = "judged") -> str:
    """Those that are not simply ok."""
    return f"""
select incident, cluster, producer, pub, verdict, cause, missing, duplicates, recovered,
  a as attempts, resends, confirms, refusals, delivers, d as acks, sent, confirmed, delivered, n.queue
from (select * from {relation} where verdict <> 'ok') as v
left join queue_names as n on n.cluster_of = v.cluster and n.place = coalesce(v.sent_to, v.taken_from)"""


def summary(relation: str = "judged") -> str:
    """Sums per incident and queue, as `messages_small.Summary` names them."""

    def total(expression: str, name: str) -> str:
        return f"cast(sum({expression}) as bigint) as {name}"

    def of(verdict: str, expression: str, name: str = "") -> str:
        return total(f"case when verdict = '{verdict}' then {expression} else 0 end", name or verdict)

    def marked(cause: str) -> str:
        return total(f"case when verdict = 'duplicated' and cause = '{cause}' then duplicates else 0 end", cause)

    sums = [total("a", "attempts"), total("e", "confirmed"), total("least(d, a)", "ok"), total("resends", "resends")]
    sums += [of(verdict, "missing") for verdict in ("lost", "unaccounted", "explained")]
    sums += [of("unexpected", "duplicates"), of("duplicated", "duplicates")]
    sums += [of("unexpected", "case when cause <> '' then duplicates else 0 end", "unlogged")]
    sums += [marked(cause) for cause in ("redelivered", "resend", "unmarked")]
    sums += [total("recovered", "recovered"), of("refused", "1"), of("unknown", "1")]
    listed = ",\n  ".join(sums)
    return f"""
select incident, cluster, n.queue, messages, {", ".join(_names(sums))} from (
  select incident, cluster, coalesce(sent_to, taken_from) as place, count(*) as messages,
  {listed}
  from {relation} group by incident, cluster, coalesce(sent_to, taken_from)
) as t left join queue_names as n on n.cluster_of = t.cluster and n.place = t.place"""


def _names(sums: list[str]) -> list[str]:
    return [text.rpartition(" as ")[2] for text in sums]


def causes(relation: str = "message_verdicts") -> str:
    """How many messages each cause explains: incident, cluster, verdict, cause, messages."""
    return f"""
select incident, cluster, verdict, cause, cast(sum(greatest(missing, duplicates, 1)) as bigint) as messages
from {relation} where cause <> '' group by incident, cluster, verdict, cause"""
