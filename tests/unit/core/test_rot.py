"""A segment that does not come back from the page file: its messages wait where they are, all others go on."""

from __future__ import annotations

import pytest

from qpidd_py.core import Catchup, Engine, Queue, Route, decode_ids, ready_soon, soon
from qpidd_py.errors import PageError, RotError
from tests.support.memory import MemoryClient, deliveries
from tests.support.paged import MemoryPages

SEGMENT = 8192
BODY = 1000
EACH = 7
"""Messages of `BODY` octets in a segment."""


class Broker:
    """Queues `a` and `b`; the messages of `a` come first, and some of them cannot be read back."""

    def __init__(self, expiration: str | None = None) -> None:
        self.engine = Engine(segment_size=SEGMENT)
        self.queue = self.engine.create_queue(1, "a", True)
        self.other = self.engine.create_queue(2, "b", True)
        self.client = MemoryClient(self.engine, a=self.queue, b=self.other)
        self.pages = MemoryPages(self.engine)
        self.told: list[int] = []
        self.pages.on_rot = lambda: self.told.append(self.engine.pool.rotten)
        for name in "a" * 21 + "b" * 21:
            self.client.publish(name.encode() * BODY, name, expiration=expiration)
            self.engine.end_turn()

    def rot(self) -> None:
        """Of the first segment, which only `a` has messages in (it left last); it is not known yet."""
        self.pages.everything()
        self.pages.octets[max(self.pages.octets)][-5] ^= 1

    def find(self) -> None:
        """The rot of the first segment is known."""
        self.rot()
        assert not soon(self.queue, 0, lambda: None)
        self.read()

    def read(self) -> list[bytes]:
        """What is handed out when all that is asked for has come."""
        found = [body for _, body, _ in deliveries(self.client.turn())]
        while self.pages.arrive():
            found += [body for _, body, _ in deliveries(self.client.turn())]
        return found


def number(ids: bytes) -> int:
    return sum(high - low + 1 for low, high in decode_ids(ids))


def test_a_queue_waits_and_another_goes_on() -> None:
    broker = Broker()
    broker.rot()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.client.channel.consume(broker.other, "d", False, 0)
    assert broker.read() == [b"b" * BODY] * 21
    assert broker.told and broker.told[0], "before anybody who waits for it goes on"
    assert broker.queue.ready == 21 and broker.queue.unacked == 0 and number(broker.queue.rotten()) == EACH
    waits, read = broker.pages.paging.waits, broker.pages.read
    for _ in range(10):
        broker.client.turn()
        assert not broker.pages.arrive(), "it is not read again and again"
    assert (broker.pages.paging.waits, broker.pages.read) == (waits, read)
    broker.queue.check()


def test_what_is_in_front_of_it_is_handed_out() -> None:
    broker = Broker()
    broker.pages.everything()
    second = sorted(broker.pages.octets)[-2]
    broker.pages.octets[second][-5] ^= 1
    broker.client.channel.consume(broker.queue, "c", False, 0)
    assert len(broker.read()) == EACH


def test_a_get_waits_and_goes_on_when_the_message_has_left() -> None:
    broker = Broker()
    broker.find()
    called: list[None] = []
    assert broker.client.channel.get(broker.queue, False, lambda: called.append(None)) is None
    broker.pages.paging.look_again()
    assert len(called) == 1
    broker.pages.paging.look_again()
    assert len(called) == 1, "who does not ask again is forgotten"
    broker.engine.purge(broker.queue)
    broker.client.turn()
    assert broker.client.channel.get(broker.queue, False, lambda: None) is False


def test_purged_messages_leave_and_the_rot_with_them() -> None:
    broker = Broker()
    broker.find()
    assert broker.engine.pool.rotten
    assert broker.engine.purge(broker.queue) == 21
    broker.client.turn()
    assert not broker.engine.pool.rotten and not number(broker.queue.rotten())
    broker.client.publish(b"new", "a")
    broker.client.channel.consume(broker.queue, "c", False, 0)
    assert broker.read() == [b"new"]


def test_a_limit_removes_them_without_a_name() -> None:
    broker = Broker()
    broker.engine.on_removed = lambda: None
    broker.rot()
    broker.queue.max_count = 10
    broker.client.publish(b"new", "a")
    broker.client.turn()
    assert broker.queue.ready == 10 and not broker.engine.pool.rotten, "found while names are read, and gone"


def test_messages_that_may_have_expired_stay() -> None:
    broker = Broker(expiration="1000")
    broker.find()
    broker.engine.now += 5000
    for _ in range(20):
        broker.engine.tick()
        broker.pages.arrive()
    assert broker.queue.ready == 21 and broker.other.ready == 0


@pytest.mark.parametrize("known", [False, True])
def test_a_dead_letter_stays_and_the_others_go_on(known: bool) -> None:
    broker = Broker()
    grave = broker.engine.create_queue(3, "grave", True)
    for queue in (broker.queue, broker.other):
        queue.dead_letter = lambda reason, exchange, key, header, body: (Route([grave]), exchange, key, header)
    if known:
        broker.find()
    else:
        broker.rot()
    broker.queue.max_count = broker.other.max_count = 10
    broker.client.publish(b"new", "a")
    broker.client.publish(b"new", "b")
    broker.read()
    assert grave.ready == 12 - EACH + 12 and broker.queue.unacked == EACH
    assert number(broker.queue.rotten()) == EACH
    broker.engine.settle(broker.queue)
    broker.engine.demote()
    assert broker.queue.ready == 10 + EACH, "nothing is lost when the role changes"


def test_a_letter_that_cannot_be_read_goes_with_its_queue() -> None:
    broker = Broker()
    grave = broker.engine.create_queue(3, "grave", True)
    broker.queue.dead_letter = lambda reason, exchange, key, header, body: (Route([grave]), exchange, key, header)
    broker.rot()
    broker.queue.max_count = 10
    broker.client.publish(b"new", "a")
    broker.client.turn()
    assert not grave.ready, "the letters wait for the page, and the rot is not known yet"
    broker.engine.settle(broker.queue)
    broker.engine.delete_queue(broker.queue)
    broker.read()
    assert grave.ready == 12 - EACH and not broker.engine.pool.rotten


def test_the_difference_for_a_backup_ends_before_it() -> None:
    broker = Broker()
    broker.rot()
    called: list[None] = []
    cursor = Catchup(broker.queue, b"", broker.engine.flush(), lambda: called.append(None))
    assert cursor.slice(1 << 20) is None and not cursor.rotten, "it is not known yet"
    broker.pages.arrive()
    assert len(called) == 1
    assert cursor.slice(1 << 20) is None and cursor.rotten
    broker.pages.paging.look_again()
    assert len(called) == 2 and not broker.pages.arrive()


def test_what_the_backup_holds_is_not_needed() -> None:
    broker = Broker()
    broker.find()
    cursor = Catchup(broker.queue, broker.queue.rotten(), broker.engine.flush())
    while cursor.slice(1 << 20) is None:
        assert not cursor.rotten and broker.pages.arrive()
    while cursor.slice(1 << 20) != b"":
        broker.pages.arrive()
    assert cursor.messages == 21 - EACH


def test_a_request_is_told() -> None:
    broker = Broker()
    broker.find()
    with pytest.raises(RotError, match="queue a cannot be read back"):
        soon(broker.queue, 0, lambda: None)
    assert soon(broker.other, 0, lambda: None) or broker.pages.arrive()
    with pytest.raises(PageError):
        broker.queue.peek(1)


def test_dropped_messages_come_back_by_a_difference() -> None:
    """As a deposed primary refills itself: it drops what it cannot read, and gets it in slices."""
    broker, whole = Broker(), Broker()
    broker.find()
    broker.engine.demote()
    broker.engine.drop(1, broker.queue.rotten())
    assert broker.queue.ready == 21 - EACH and not broker.engine.pool.rotten
    cursor = Catchup(whole.queue, broker.queue.held(), whole.engine.flush())
    while records := cursor.slice(1 << 20):
        broker.engine.apply_slice(records)
    broker.engine.merge(1)
    assert broker.queue.held() == whole.queue.held()
    while not soon(broker.queue, 0, lambda: None):
        broker.pages.arrive()
    assert bodies(broker.queue) == bodies(whole.queue)
    broker.queue.check()


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(100)]


def test_what_is_behind_the_last_one_is_not_waited_for() -> None:
    broker = Broker()
    broker.find()
    broker.pages.everything()
    first, *_ = decode_ids(broker.queue.held())
    rotten = decode_ids(broker.queue.rotten())[0]
    assert rotten[0] == first[0], "it begins with them"
    with pytest.raises(RotError):
        soon(broker.queue, 0, lambda: None, first[0])
    assert soon(broker.queue, 0, lambda: None, first[0] - 1)
    assert not soon(broker.queue, rotten[1], lambda: None) and soon(broker.queue, rotten[1], lambda: None, rotten[1])


def test_the_next_ready_message_is_that_behind_those_which_clients_hold() -> None:
    broker = Broker()
    broker.client.channel.consume(broker.queue, "c", False, EACH)
    broker.read()
    broker.client.channel.cancel("c")
    assert broker.queue.unacked == EACH
    broker.find()
    broker.pages.everything()
    called: list[None] = []
    assert not ready_soon(broker.queue, lambda: called.append(None))
    broker.pages.arrive()
    assert called and ready_soon(broker.queue, lambda: called.append(None))
    broker.engine.purge(broker.queue)
    assert ready_soon(broker.queue, lambda: None), "there is none"


def test_a_ready_message_that_cannot_be_read() -> None:
    broker = Broker()
    broker.find()
    with pytest.raises(RotError, match="queue a cannot be read back"):
        ready_soon(broker.queue, lambda: None)
