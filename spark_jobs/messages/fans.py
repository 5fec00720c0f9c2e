"""Messages that an exchange put into several queues, as SQL (pure text).

Each queue has its own dequeues (`messages.query`).  `message_lives` has those of all queues in one counter, so
that it is one grouping of all rows; which messages came from several queues it says, too, and only those are counted
again, by queue.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.sql.rows import CODES, messages

ACKS: Final = (1 << 20) - 1
"""Mask of the counter in `takes`."""


def fanned(relation: str = "message_lives") -> str:
    """Messages that were delivered from several queues: cluster, producer, pub, a (attempts)."""
    return f"select cluster, producer, pub, sends & {ACKS} as a from {relation} where taken_from <> taken_from_2"


def fans(events: str = "events_raw", relation: str = "message_lives") -> str:
    """Of those: `most` (dequeues of the queue with the most), `copies` (in all queues, more than attempted)."""
    acks = messages(f"(select * from {events} where kind = 'ack')")
    return f"""
select cluster, producer, pub, max(acks) as most, cast(sum(greatest(0, acks - a)) as bigint) as copies
from (
  select m.cluster, m.producer, m.pub, m.place, max(f.a) as a, count(*) as acks
  from ({acks}) as m
  join ({fanned(relation)}) as f on f.cluster = m.cluster and f.producer = m.producer and f.pub = m.pub
  where m.code = {CODES["ack"]}
  group by m.cluster, m.producer, m.pub, m.place
) group by cluster, producer, pub"""


def sights(events: str, clock: str, relation: str = "message_lives") -> str:
    """When they were first delivered from each of their queues: cluster, producer, pub, place, delivered (µs)."""
    delivers = messages(f"(select * from {events} where kind = 'deliver')", clock)
    return f"""
select m.cluster, m.producer, m.pub, m.place, min(m.ts) as delivered
from ({delivers}) as m
join ({fanned(relation)}) as f on f.cluster = m.cluster and f.producer = m.producer and f.pub = m.pub
where m.code = {CODES["deliver"]}
group by m.cluster, m.producer, m.pub, m.place"""


def alone(relation: str = "message_lives") -> str:
    """`message_lives` when no message is in several queues."""
    return f"select *, cast(null as bigint) as copies from {relation}"


def apart(relation: str = "message_lives", found: str = "fans") -> str:
    """`message_lives` with `copies`, and with `most` as the dequeues; of messages in several queues."""
    return f"""
select l.cluster, l.producer, l.pub, sends, takes - (takes & {ACKS}) + coalesce(f.most, takes & {ACKS}) as takes, flags,
  sent, confirmed, confirmed_by, refused, delivered, dumped, client, sent_to, sent_to_2, taken_from, taken_from_2,
  copies
from {relation} as l
left join {found} as f on f.cluster = l.cluster and f.producer = l.producer and f.pub = l.pub"""
