"""queue.purge and queue.delete of a deep queue: in slices, with one answer, and nothing of the channel goes ahead."""

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_method
from qpidd_py.broker.broker import Broker
from tests.support.memory import publish_octets
from tests.unit.broker.peer import Peer

LOOKS = 2
UNITS = LOOKS * 64


class Deep:
    """A broker whose slices are short, and a client with a deep queue."""

    def __init__(self, count: int) -> None:
        self.broker = Broker()
        self.wanted = 0
        self.broker.engine.schedule = self.want
        self.peer = self.client()
        self.peer.call(1, commands.Queue.Declare(queue="q"))
        self.peer.feed(publish_octets(b"x", "q") * count)
        self.peer.frames()
        self.core = self.broker.vhost.queues["q"].core
        assert self.core.ready == count
        self.broker.engine.slice.most = LOOKS

    def want(self) -> None:
        self.wanted += 1

    def client(self) -> Peer:
        peer = Peer(self.broker)
        peer.open_channel()
        return peer

    def turns(self, peer: Peer) -> tuple[list[int], list[object]]:
        """How many messages left in each, and what the client got, until none is wanted."""
        left, got = [], []
        while self.wanted:
            self.wanted, before = 0, self.core.ready
            got += peer.frames()
            left.append(before - self.core.ready)
        return left, got


@pytest.mark.parametrize("count", [500, 2000, 8000])
@pytest.mark.parametrize("method", [commands.Queue.Purge(queue="q"), commands.Queue.Delete(queue="q")])
def test_a_deep_queue_is_emptied_in_slices_with_one_answer_in_order(count: int, method: commands.Queue.Purge) -> None:
    deep = Deep(count)
    deep.peer.feed(encode_method(1, method) + encode_method(1, commands.Queue.Declare(queue="next")))
    assert deep.core.ready >= count - UNITS
    other = deep.client()
    assert other.call(1, commands.Queue.Declare(queue="other")).queue == "other"
    left, got = deep.turns(deep.peer)
    assert max(left) <= UNITS
    assert [type(frame).__name__ for frame in got] == [type(method).__name__ + "Ok", "DeclareOk"]
    assert got[0].message_count == count and deep.core.ready == 0  # type: ignore[attr-defined]
    assert ("q" in deep.broker.vhost.queues) == isinstance(method, commands.Queue.Purge)


def test_messages_that_come_during_a_purge_stay_and_those_during_a_deletion_go() -> None:
    for method, stay in ((commands.Queue.Purge(queue="q"), 1), (commands.Queue.Delete(queue="q"), 0)):
        deep = Deep(2000)
        deep.peer.send(1, method)
        deep.client().publish(b"y", "q")
        _, got = deep.turns(deep.peer)
        assert got[-1].message_count == 2001 - stay and deep.core.ready == stay  # type: ignore[attr-defined]


def test_a_consumer_that_comes_during_a_deletion_is_told_and_does_not_keep_the_queue() -> None:
    deep = Deep(2000)
    deep.peer.send(1, commands.Queue.Delete(queue="q", if_unused=True))
    other = deep.client()
    other.send(1, commands.Basic.Consume(queue="q"))
    deep.turns(deep.peer)
    assert "q" not in deep.broker.vhost.queues and deep.core.deleted


def test_a_queue_of_the_same_name_that_was_declared_meanwhile_is_left_alone() -> None:
    for method in (commands.Queue.Purge(queue="q"), commands.Queue.Delete(queue="q")):
        deep = Deep(2000)
        deep.peer.send(1, method)
        assert 0 < deep.core.ready < 2000
        deep.broker.engine.slice.most = 0
        other = deep.client()
        other.call(1, commands.Queue.Delete(queue="q", if_empty=False))
        other.call(1, commands.Queue.Declare(queue="q"))
        other.publish(b"new", "q")
        deep.turns(deep.peer)
        assert deep.broker.vhost.queues["q"].core.ready == 1


def test_a_purge_whose_client_goes_is_carried_out_as_all_that_it_sent_before() -> None:
    deep = Deep(2000)
    deep.peer.send(1, commands.Queue.Purge(queue="q"))
    assert 0 < deep.core.ready < 2000
    deep.peer.connection.closed("gone")
    deep.turns(deep.client())
    assert deep.core.ready == 0 and deep.peer.connection.finished
    deep.core.check()
