"""A queue without limits takes a shorter way to the same state."""

from qpidd_py.broker.arguments import REPLICATE
from qpidd_py.broker.qpid_arguments import shape
from qpidd_py.broker.queue import limit, relimit
from qpidd_py.core import Engine, Queue

SET = [
    "max_count",
    "max_bytes",
    "ttl",
    "patience",
    "keeps",
    "rejects",
    "refused_die",
    "window",
    "watch",
    "kind",
    "shares",
    "levels",
    "weighted",
    "single",
    "fenced",
    "counts",
    "most_returns",
]


def state(queue: Queue) -> dict[str, object]:
    return {name: getattr(queue, name) for name in SET}


def test_what_no_argument_names_is_as_in_a_new_queue() -> None:
    engine = Engine()
    plain, whole, other = (engine.create_queue(number, "q", True) for number in (1, 2, 3))
    limit(plain, {REPLICATE: "all"})
    relimit(whole, {})
    shape(whole, {})
    assert state(plain) == state(whole)
    limit(other, {REPLICATE: "all", "x-max-length": 3})
    assert state(plain) != state(other)
