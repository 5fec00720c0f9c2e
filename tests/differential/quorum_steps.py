"""Random conversations about quorum queues, and about exchanges that hash.

RabbitMQ's quorum queues answer when they like: publishes are confirmed, messages are fetched by basic.get, and nothing
is counted.  What reaches another queue later (dead letters), is refused later (`reject-publish`) or comes back later
(basic.recover) is not in them.  A wrong argument is for a queue that is not there: RabbitMQ does not look at it again
when the queue is.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.differential.steps import HOUR, QUEUES, Step, flag, seldom

_QUORUM: Final = {"x-queue-type": "quorum", "qpid.replicate": "all"}
_NOWHERE: Final = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "none"}
_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "x-delivery-limit": (1, 2, 3),
    "x-max-length": (1, 2),
    "x-max-length-bytes": (3, 6),
    "x-message-ttl": (HOUR,),
    "x-expires": (HOUR,),
    "x-dead-letter-strategy": ("at-most-once",),
    "x-single-active-consumer": (False,),
    "x-overflow": ("drop-head",),
}
_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "x-delivery-limit": (-1,),
    "x-max-priority": (4,),
    "x-dead-letter-strategy": ("maybe", 1),
    "x-overflow": ("reject-publish-dlx", "drop-tail"),
    "x-queue-mode": ("lazy",),
    "x-max-length": (-1,),
    "x-queue-type": ("fifo", 1),
}
_WEIGHTS: Final = ("2", "2", "2", "0", "-1", "a", "", "1.5")


def _step(name: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.fixed_dictionaries(values))


def _table(choices: dict[str, tuple[Any, ...]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(tuple(choices)), max_size=most, unique=True)
    return names.flatmap(lambda found: st.fixed_dictionaries({name: st.sampled_from(choices[name]) for name in found}))


def _declare(
    queue: st.SearchStrategy[str], arguments: st.SearchStrategy[dict[str, Any]], odd: st.SearchStrategy[bool]
) -> st.SearchStrategy[Step]:
    kept = st.one_of(st.just({}), st.just({}), st.just(_NOWHERE))
    whole = st.tuples(kept, arguments).map(lambda both: {**_QUORUM, **both[0], **both[1]})
    return _step(
        "declare",
        queue=queue,
        durable=odd.map(lambda found: not found),
        exclusive=odd,
        auto_delete=odd,
        arguments=whole,
    )


def _is_wrong(step: Step) -> bool:
    arguments = step[1]["arguments"]
    return any(arguments.get(name) in values for name, values in _WRONG.items()) or not step[1]["durable"]


*DECLARED, REFUSED = QUEUES
queue = st.sampled_from(DECLARED)
never = st.just(False)
headers = st.sampled_from((None, None, {"k": 1}, {"x-delivery-count": "mine"}))
priority = st.sampled_from((None, None, 0, 4, 9))
redeclare = st.one_of(
    _declare(st.sampled_from(DECLARED), _table(_ARGUMENTS, 2), never),
    _declare(st.just(REFUSED), _table(_WRONG, 1), seldom).filter(_is_wrong),
)
publish = _step(
    "publish", exchange=st.just(""), routing_key=queue, mandatory=flag, headers=headers, delivery_mode=st.just(2)
)
get = _step("get", queue=queue, no_ack=seldom)
settle = _step(
    "settle",
    place=st.integers(0, 2),
    how=st.sampled_from(("ack", "nack", "nack", "reject")),
    requeue=flag,
    multiple=seldom,
)
work = st.one_of(publish, publish, get, get, get, settle, settle)
other = st.one_of(
    redeclare,
    _step("purge", queue=queue),
    _step("delete", queue=queue, if_unused=never, if_empty=never),
    _step("close-channel"),
)


@st.composite
def quorum_conversations(draw: st.DrawFn) -> list[Step]:
    declared = [draw(_declare(st.just(name), _table(_ARGUMENTS, 3), never)) for name in DECLARED]
    steps = draw(st.lists(st.one_of(work, work, work, other), min_size=6, max_size=16))
    # A channel that is closed forgets that it confirms.
    return [
        *declared,
        *(each for step in steps for each in ([("confirm", {}), step] if step[0] == "publish" else [step])),
    ]


@st.composite
def hash_conversations(draw: st.DrawFn) -> list[Step]:
    """One queue is bound at a time: which of several gets a message is our choice and theirs."""
    flags = {"durable": True, "auto_delete": False, "internal": False}
    opened: list[Step] = [
        ("exchange", {"exchange": "x0", "exchange_type": "x-consistent-hash", "arguments": draw(hashing), **flags}),
        ("declare", {"queue": "q0", "durable": True, "exclusive": False, "auto_delete": False, "arguments": {}}),
    ]
    steps = st.one_of(hash_bind, hash_bind, hash_publish, hash_publish, hash_unbind)
    return [*opened, *draw(st.lists(steps, min_size=3, max_size=10))]


_BINDING: Final = {"queue": st.just("q0"), "exchange": st.just("x0"), "routing_key": st.sampled_from(_WEIGHTS)}
hashing = st.sampled_from(
    ({}, {}, {"hash-header": "k"}, {"hash-property": "message_id"}, {"hash-property": "nothing"}, {"hash-header": 1})
)
hash_bind = _step("bind", **_BINDING, arguments=st.just({}))
hash_unbind = _step("unbind", **_BINDING, arguments=st.just({}))
hash_publish = _step(
    "publish", exchange=st.just("x0"), routing_key=st.sampled_from(("", "a", "b")), mandatory=flag, headers=headers
)
