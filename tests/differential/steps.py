"""Random conversations: what a client does, step by step, in words that mean the same for every broker.

Names are few, so that steps meet: three queues, two exchanges, three consumer tags.  A delivery is named by its place
among those that the client holds: brokers number them as they like when several queues deliver at the same time.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

Step = tuple[str, dict[str, Any]]
"""What to do, and with which values."""

QUEUES: Final = ("q0", "q1", "q2")
EXCHANGES: Final = ("x0", "x1")
PREDECLARED: Final = ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers")
KEYS: Final = (*QUEUES, *QUEUES, "a", "a.b", "")
PATTERNS: Final = (*KEYS, "#", "*", "a.*", "#.b")
TAGS: Final = ("c0", "c1", "c2")
HOUR: Final = 3_600_000
LETTERS: Final = {"x-dead-letter-exchange": ("", "x0", "amq.topic"), "x-dead-letter-routing-key": QUEUES}

_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "x-max-length": (0, 1, 2),
    "x-max-length-bytes": (0, 3),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-max-priority": (1, 4),
    "x-message-ttl": (HOUR,),
    "x-expires": (HOUR,),
    "x-single-active-consumer": (True, True, False),
    "x-queue-type": ("classic",),
    **LETTERS,
}
_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "x-max-length": (-1, "1"),
    "x-message-ttl": (-1, True),
    "x-expires": (0,),
    "x-overflow": ("drop-tail",),
    "x-dead-letter-exchange": (1,),
    "x-mine": (1,),
    "x-queue-type": ("fifo", 1),
    "x-delivery-limit": (3, -1),  # of quorum queues only
}
_MATCHES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"k": 1},
    {"k": 1, "j": "v", "x-match": "any"},
    {"k": 1, "j": "v", "x-match": "all"},
)
COPIES: Final[tuple[dict[str, Any], ...]] = (
    {"CC": ["q1"]},
    {"BCC": ["q2", "a"], "CC": ["q0"], "k": 1},
    {"CC": ["q0", "q0", 5, "a"], "BCC": []},
    {"BCC": ["none"]},
    {"CC": "q1"},
    {"BCC": 1},
)
REPLY_TO: Final = "amq.rabbitmq.reply-to"
flag = st.booleans()
seldom = st.sampled_from((False, False, False, False, True))


def _one(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _whole(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(entries)
    if found.keys() & {"x-max-length", "x-max-length-bytes"}:
        found.pop("x-max-priority", None)
    return {"x-dead-letter-exchange": "", **found} if "x-dead-letter-routing-key" in found else found


def _table(choices: dict[str, tuple[Any, ...]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these arguments; see the end of `differences` for what does not go together."""
    entry = _one(tuple(choices)).flatmap(lambda name: st.tuples(st.just(name), _one(choices[name])))
    return st.lists(entry, max_size=most).map(_whole)


def _step(name: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.fixed_dictionaries(values))


queue, exchange = _one(QUEUES), _one(EXCHANGES)
any_exchange = _one((*EXCHANGES, *EXCHANGES, *PREDECLARED))
arguments = st.one_of(_table(_ARGUMENTS, 3), _table(_WRONG, 1))
headers = st.one_of(
    st.none(),
    st.none(),
    _one(({"k": 1}, {"j": "v"}, {"k": 1, "j": "v"})),
    _one(COPIES),
)


def queue_named(name: str) -> st.SearchStrategy[Step]:
    arguments = _table(_ARGUMENTS, 3)
    return _step(
        "declare", queue=st.just(name), durable=flag, exclusive=seldom, auto_delete=seldom, arguments=arguments
    )


def _consume(queue: st.SearchStrategy[str], no_ack: st.SearchStrategy[bool]) -> st.SearchStrategy[Step]:
    rank = _one((None, None, 0, 1))
    return _step("consume", queue=queue, tag=_one(TAGS), no_ack=no_ack, exclusive=seldom, priority=rank)


declare_queue = _step("declare", queue=queue, durable=flag, exclusive=seldom, auto_delete=seldom, arguments=arguments)
declare_exchange = _step(
    "exchange",
    exchange=exchange,
    exchange_type=_one(("direct", "fanout", "topic", "headers")),
    durable=flag,
    auto_delete=seldom,
    internal=seldom,
    arguments=_table({"alternate-exchange": ("amq.fanout", "x1", "none")}, 1),
)
bind = _step("bind", queue=queue, exchange=any_exchange, routing_key=_one(PATTERNS), arguments=_one(_MATCHES))
publish = _step(
    "publish",
    exchange=any_exchange,
    routing_key=_one(KEYS),
    mandatory=flag,
    priority=_one((None, None, 0, 1, 9)),
    delivery_mode=_one((None, 1, 2)),
    expiration=_one((None,) * 8 + (str(HOUR), "x")),
    headers=headers,
    reply_to=_one((None,) * 7 + (REPLY_TO,)),
)
publish_direct = _step("publish", exchange=st.just(""), routing_key=queue, mandatory=seldom)
settle = _step(
    "settle", place=st.integers(0, 3), how=_one(("ack", "ack", "nack", "reject")), requeue=flag, multiple=seldom
)
other = st.one_of(
    _step("unbind", queue=queue, exchange=any_exchange, routing_key=_one(PATTERNS), arguments=_one(_MATCHES)),
    _step("exchange-bind", destination=exchange, source=exchange, routing_key=_one(PATTERNS)),
    _step("exchange-unbind", destination=exchange, source=exchange, routing_key=_one(PATTERNS)),
    _step("cancel", tag=_one(TAGS)),
    _step("qos", count=st.integers(0, 2), everywhere=flag),
    _step("recover", requeue=st.just(True)),
    _step("purge", queue=queue),
    _step("delete", queue=queue, if_unused=flag, if_empty=flag),
    _step("exchange-delete", exchange=exchange, if_unused=flag),
    _step("confirm"),
    _step("tx"),
    _step("commit"),
    _step("rollback"),
    _step("settle-unknown"),
    _consume(st.just(REPLY_TO), no_ack=st.just(True)),
    _consume(st.just(REPLY_TO), no_ack=seldom),
    _step("declare-replies", passive=flag, answered=flag),
    _step("reply", mandatory=flag),
    _step("reply", mandatory=flag),
    _step("close-channel"),
)
consume = _consume(queue, flag)
get = _step("get", queue=queue, no_ack=flag)
work = st.one_of(publish, publish_direct, publish_direct, settle, settle, consume, get)
step = st.one_of(work, work, work, bind, declare_queue, declare_exchange, other)
opening = st.one_of(st.just([]), st.just([("confirm", {})]), st.just([("tx", {})]))


@st.composite
def conversations(draw: st.DrawFn) -> list[Step]:
    """Begins with what everything else needs: most of the names are there."""
    declared = [draw(queue_named(name)) for name in QUEUES]
    return [
        *declared,
        draw(declare_exchange),
        *draw(st.lists(bind, max_size=2)),
        *draw(opening),
        *draw(st.lists(work, min_size=3, max_size=5)),
        *draw(st.lists(step, min_size=5, max_size=12)),
    ]
