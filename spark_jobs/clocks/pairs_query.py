"""What big logs say about the difference of two nodes' clocks, as SQL (pure text); see `clocks.pairs`.

"Sent by A when A's clock showed `sent`, received by B `delay` µs later by B's clock": of each ordered pair of nodes,
kind and BUCKET the one with the least delay + slack is kept.  `slack`: the receiver's stamp is cut to its resolution.

The broker's samples of positions (rows of replication without a peer, at most one a second) are few and stay with
`clocks.pairs`, as do Pacemaker's lines.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.clocks.pairs import BUCKET, READING_DIGITS
from spark_jobs.sql.rows import quoted

_ROUTES: Final = (("repl", "repl_send", "repl_recv"), ("replack", "replack_send", "replack_recv"))
_MESSAGES: Final = (("publish", "publish", "enqueue"), ("confirm", "confirm_sent", "confirm"))
_TOLD: Final = "('clock', 'connected', 'client_open')"
_SLACK: Final = (
    "case when coalesce(ts_res, 0) = 0 then 1 when ts_res in (1, 1000, 1000000) then ts_res else ts_res + 1000 end"
)

_IS_READING: Final = (
    f"length(attrs['peer_wall']) <= {READING_DIGITS} and translate(attrs['peer_wall'], '0123456789', '') = ''"
)
"""try_cast alone takes blanks, signs and exponents, each engine others."""


def named(events: str = "events_raw") -> str:
    """Rows that say which names a node has: few."""
    of_start = "case when kind = 'start' then attrs['{}'] end"
    client = "case when source = 'client' and kind = 'connected' then client_id end"
    names = ("node", of_start.format("address"), of_start.format("broker_id"), client)
    name = " ".join(f"when {number} then {text}" for number, text in enumerate(names))
    numbers = ", ".join(f"({number})" for number in range(len(names)))
    return f"""
select distinct cluster, node, name from (
  select coalesce(cluster, '') as cluster, node, case number {name} end as name
  from {events} cross join (values {numbers}) as numbers(number)
  where node <> ''
) where name <> ''"""


def aliases(relation: str = "node_names") -> str:
    """A name that only one node has -> that node: cluster, name, node."""
    only = "having count(distinct node) = 1"
    return f"select cluster, name, min(node) as node from {relation} group by cluster, name {only}"


def _told(events: str) -> str:
    """Rows that carry the sender's own reading."""
    return f"""
select v.cluster, a.node as sender, v.node as receiver, v.kind, v.sent, v.ts_wall - v.sent as delay, v.slack
from (
  select coalesce(cluster, '') as cluster, node, kind, ts_wall, {_SLACK} as slack,
    case when {_IS_READING} then try_cast(attrs['peer_wall'] as bigint) end as sent,
    case when kind = 'client_open' then client_id else coalesce(nullif(attrs['broker'], ''), peer) end as name
  from {events} where kind in {_TOLD} and node <> '' and ts_wall is not null
) as v join aliases as a on a.cluster = v.cluster and a.name = v.name
where v.sent >= 0"""


def _batches(events: str) -> str:
    """Both ends name each other and the same positions, once: what was sent twice may have arrived the first time."""
    routes = " ".join(f"when '{kind}' then '{route}'" for route, *both in _ROUTES for kind in both)
    sends = quoted([send for _, send, _ in _ROUTES])
    kinds = quoted([kind for _, *both in _ROUTES for kind in both])
    return f"""
select cluster, sender, receiver, kind, max(sent) as sent, max(received) - max(sent) as delay, max(slack) as slack
from (
  select v.scope as cluster, case kind {routes} end as kind,
    case when is_send then v.node else coalesce(a.node, v.peer) end as sender,
    case when is_send then coalesce(a.node, v.peer) else v.node end as receiver,
    coalesce(queue, '') as queue, coalesce(first_pos, -1) as first_pos, last_pos,
    case when is_send then ts_wall end as sent, case when not is_send then ts_wall end as received,
    case when not is_send then {_SLACK} end as slack
  from (select *, coalesce(cluster, '') as scope, kind in ({sends}) as is_send from {events}
        where source <> 'client' and kind in ({kinds}) and peer <> '' and node <> '' and last_pos is not null
          and ts_wall is not null) as v
  left join aliases as a on a.cluster = v.scope and a.name = v.peer
)
group by cluster, sender, receiver, kind, queue, first_pos, last_pos
having count(sent) = 1 and count(received) = 1"""


def _same_message(events: str, kind: str, send: str, receive: str, broker: str) -> str:
    """One row at each end about one message; `broker`: which end is a broker's, of which there are few."""
    few = f"""(
  select distinct coalesce(cluster, '') as few_cluster, msg_id as few_id
  from {events} where kind = '{broker}' and msg_id <> '')"""
    return f"""
select cluster, max(sender) as sender, max(receiver) as receiver, '{kind}' as kind, max(sent) as sent,
  max(received) - max(sent) as delay, max(slack) as slack
from (
  select coalesce(cluster, '') as cluster, coalesce(queue, '') as queue, msg_id,
    case when kind = '{send}' then node end as sender, case when kind = '{receive}' then node end as receiver,
    case when kind = '{send}' then ts_wall end as sent, case when kind = '{receive}' then ts_wall end as received,
    case when kind = '{receive}' then {_SLACK} end as slack
  from {events} join {few} on few_cluster = coalesce(cluster, '') and few_id = msg_id
  where kind in ('{send}', '{receive}') and msg_id <> '' and node <> '' and ts_wall is not null
)
group by cluster, queue, msg_id having count(sent) = 1 and count(received) = 1"""


def observations(events: str = "events_raw", messages: bool = True) -> str:
    """All of them: cluster, sender, receiver, kind, sent, delay, slack.  `messages`: brokers wrote rows about single
    messages; without them two scans are spared."""
    found = [_told(events), _batches(events)]
    if messages:
        found += [_same_message(events, *_MESSAGES[0], "enqueue"), _same_message(events, *_MESSAGES[1], "confirm_sent")]
    return " union all ".join(f"select * from ({text})" for text in found)


def thinned(relation: str) -> str:
    """The tightest of each ordered pair, kind and bucket, and how many there were (`count`)."""
    keys = f"cluster, sender, receiver, kind, div(sent, {BUCKET})"
    best = f"row_number() over (partition by {keys} order by delay + slack, sent, delay)"
    return f"""
select cluster, sender, receiver, kind, sent, delay, slack, count from (
  select *, {best} as place, cast(count(*) over (partition by {keys}) as bigint) as count
  from ({relation}) where sender <> receiver
) where place = 1"""
