"""A queue is deleted, and what it has to send on first has left memory: it waits for the page file, and with a message
that cannot be read back it stays."""

from __future__ import annotations

from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core import Engine, Route
from qpidd_py.errors import AmqpError, ReplyCode
from tests.support.memory import MemoryClient
from tests.support.paged import MemoryPages

NUMBER = 30
BODY = b"x" * 400
DURABLE = (True, False, False)
AUTO_DELETE = (True, False, True)
EXCLUSIVE = (False, True, False)
ELSE: dict[str, Any] = {"alternate-exchange": "else"}


class Site:
    """What queues leave goes to the queue `grave`."""

    def __init__(self) -> None:
        self.engine = Engine(segment_size=4096)
        self.broker = Broker("b", engine=self.engine)
        self.vhost = self.broker.vhost
        self.broker.vhosts.rules.default_replicate = "all"
        self.pages = MemoryPages(self.engine)
        self.pages.on_rot = lambda: None
        for kind in ("else", "dead"):
            self.vhost.declare_exchange(kind, "fanout", True, False, False, {})
        self.grave = self.vhost.declare_queue(None, "grave", *DURABLE, {})[0]
        for kind in ("else", "dead"):
            self.vhost.bindings.bind(kind, self.grave, b"", {})
        self.now = 0.0

    def queue(self, flags: tuple[bool, bool, bool], owner: object = None, **arguments: Any) -> DeclaredQueue:
        declared = {name.replace("_", "-"): value for name, value in arguments.items()}
        queue = self.vhost.declare_queue(owner, "q", *flags, declared)[0]
        for number in range(NUMBER):
            self.publish(queue, b"%09d" % number + BODY)
        self.settle()
        return queue

    def publish(self, queue: DeclaredQueue, body: bytes) -> None:
        assert self.engine.publish(Route([queue.core]), b"x", b"key", encode_properties({}, len(body)), body)

    def settle(self) -> None:
        self.engine.end_turn()
        self.engine.flush()

    def page(self, rotten: bool) -> None:
        """All that may leave is gone; `rotten`: the pages with the first and the last messages."""
        self.pages.everything()
        for place in (min(self.pages.octets), max(self.pages.octets)) if rotten else ():
            self.pages.octets[place][-5] ^= 1

    def go_on(self, seconds: float = 5.0) -> None:
        """Time passes, what is read comes; nothing ends the process."""
        for _ in range(8):
            self.now += seconds / 8
            self.vhost.tick(self.now)
            self.settle()
            while self.pages.arrive():
                self.settle()
        self.pages.paging.look_again()
        self.settle()

    def ids(self) -> list[int]:
        """Of the messages that were sent on, in order of their arrival."""
        while self.pages.arrive():
            self.settle()
        return [int(message[5][:9]) for message in self.grave.core.peek(1000)]

    @property
    def deleted(self) -> bool:
        return "q" not in self.vhost.queues


@pytest.fixture
def site() -> Site:
    return Site()


def end_by_time(site: Site) -> DeclaredQueue:
    return site.queue(DURABLE, x_expires=1000, alternate_exchange="else")


def end_by_consumer(site: Site) -> DeclaredQueue:
    queue = site.queue(AUTO_DELETE, alternate_exchange="else")
    queue.used = True
    return queue


def end_by_owner(site: Site) -> DeclaredQueue:
    return site.queue(EXCLUSIVE, "owner", alternate_exchange="else")


def end(site: Site, queue: DeclaredQueue) -> None:
    """What the broker does then."""
    if queue.auto_delete:
        site.vhost.endings.consumers_gone([queue.core])
    elif queue.exclusive:
        site.vhost.endings.connection_gone("owner")
    site.go_on()


KINDS = [end_by_time, end_by_consumer, end_by_owner]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_left_memory_is_sent_on_and_nobody_waits(site: Site, kind: Any) -> None:
    queue = kind(site)
    site.page(rotten=False)
    end(site, queue)
    assert site.deleted and site.ids() == list(range(NUMBER))
    assert site.engine.pool.at_once == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_with_a_message_that_cannot_be_read_stays(site: Site, kind: Any) -> None:
    queue = kind(site)
    site.page(rotten=True)
    end(site, queue)
    assert not site.deleted and queue.core.rotten()
    sent = site.ids()
    assert sorted({*sent, *range(NUMBER - queue.core.ready, NUMBER)}) == list(range(NUMBER)), "none is lost"
    queue.core.check()
    site.engine.purge(queue.core)
    site.settle()
    site.go_on()
    assert site.deleted and not site.engine.pool.rotten, "it goes when they have left"


def test_who_comes_back_meanwhile_keeps_it(site: Site) -> None:
    queue = end_by_consumer(site)
    site.page(rotten=True)
    end(site, queue)
    assert site.vhost.declare_queue(None, "q", *AUTO_DELETE, ELSE)[0] is queue
    site.engine.purge(queue.core)
    site.settle()
    site.go_on()
    assert not site.deleted
    site.vhost.endings.consumers_gone([queue.core])
    assert site.deleted


def test_a_consumer_keeps_it(site: Site) -> None:
    queue = end_by_consumer(site)
    site.page(rotten=True)
    end(site, queue)
    client = MemoryClient(site.engine, q=queue.core)
    client.channel.consume(queue.core, "c", False, 0)
    site.engine.purge(queue.core)
    site.settle()
    site.go_on()
    assert not site.deleted


@pytest.mark.parametrize("known", [False, True])
def test_a_client_is_refused_and_told_why(site: Site, known: bool) -> None:
    queue = site.queue(DURABLE, alternate_exchange="else")
    site.page(rotten=True)
    if known:
        site.vhost.endings.remove_queue(queue)
        site.go_on()
    for _ in range(2):
        with pytest.raises(AmqpError, match="has messages that cannot be read, and have to be sent on") as refused:
            site.vhost.delete_queue(None, "q", False, False)
        assert refused.value.reply_code == ReplyCode.RESOURCE_ERROR and not site.deleted
    assert len(site.ids()) + queue.core.ready == NUMBER
    site.engine.purge(queue.core)
    site.vhost.delete_queue(None, "q", False, False)
    assert site.deleted


def test_what_clients_hold_is_sent_on(site: Site) -> None:
    """Their acknowledgements come later, and are too late."""
    queue = end_by_consumer(site)
    client = MemoryClient(site.engine, q=queue.core)
    client.channel.consume(queue.core, "c", False, 0)
    client.turn()
    assert queue.core.unacked == NUMBER
    client.channel.cancel("c")
    site.page(rotten=False)
    end(site, queue)
    assert site.deleted and site.ids() == list(range(NUMBER))


def test_what_clients_hold_and_cannot_be_read_stays_theirs(site: Site) -> None:
    queue = end_by_consumer(site)
    client = MemoryClient(site.engine, q=queue.core)
    client.channel.consume(queue.core, "c", False, 0)
    client.turn()
    client.channel.cancel("c")
    site.page(rotten=True)
    end(site, queue)
    assert not site.deleted and queue.core.unacked == NUMBER and not site.ids()
    client.send(commands.Basic.Ack(NUMBER, True))
    site.settle()
    site.go_on()
    assert site.deleted and queue.core.enqueued == NUMBER


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("by_client", [False, True])
def test_dead_letters_that_cannot_be_read_wait_in_their_queue(site: Site, known: bool, by_client: bool) -> None:
    queue = site.queue(AUTO_DELETE, x_dead_letter_exchange="dead")
    queue.used = True
    site.page(rotten=True)
    queue.core.max_count = 5
    site.publish(queue, b"%09d" % NUMBER + BODY)
    site.engine.end_turn()
    if known:
        site.go_on()
    if by_client:
        ready = queue.core.ready
        with pytest.raises(AmqpError, match="cannot be read"):
            site.vhost.delete_queue(None, "q", False, False)
        assert site.vhost.deletable_queue(None, "q", False, False) is None and queue.core.ready == ready
    else:
        site.vhost.endings.consumers_gone([queue.core])
        site.go_on()
    assert not site.deleted
    sent = site.ids()
    assert sent and queue.core.unacked and len(sent) + queue.core.unacked == NUMBER + 1 - 5
    count = site.engine.purge(queue.core)
    assert count == NUMBER + 1 - len(sent), "an administrator may give them up"
    site.settle()
    site.go_on()
    assert site.deleted is not by_client
    if by_client:
        site.vhost.delete_queue(None, "q", False, False)
    assert not site.engine.pool.rotten


def test_a_deposed_broker_deletes_nothing(site: Site) -> None:
    queue = end_by_time(site)
    site.page(rotten=True)
    end(site, queue)
    site.engine.demote()
    site.engine.passive = True
    site.engine.drop(queue.number, queue.core.rotten())
    site.go_on()
    assert not site.deleted


def test_consumers_that_come_and_go_add_no_work(site: Site) -> None:
    queue = end_by_consumer(site)
    site.page(rotten=True)
    end(site, queue)
    looks = 0

    def sent_on(queue: DeclaredQueue, waiter: Any = None, sent_on: Any = site.vhost.endings.sent_on) -> bool:
        nonlocal looks
        looks += 1
        return bool(sent_on(queue, waiter))

    site.vhost.endings.sent_on = sent_on  # type: ignore[method-assign]
    for _ in range(100):
        site.vhost.declare_queue(None, "q", *AUTO_DELETE, ELSE)
        site.vhost.endings.consumers_gone([queue.core])
    site.go_on()
    assert looks == 1


def test_a_queue_that_is_gone_is_not_looked_at(site: Site) -> None:
    """The page comes after somebody else has deleted it; another one has its name."""
    queue = end_by_consumer(site)
    site.page(rotten=False)
    site.vhost.endings.consumers_gone([queue.core])
    assert not site.deleted
    site.vhost.delete_queue(None, "q", False, False)
    other = site.queue(AUTO_DELETE)
    other.used = True
    site.go_on()
    assert site.vhost.queues["q"] is other and sorted(site.ids()) == list(range(NUMBER))


def test_a_change_of_role_makes_stuck_letters_messages_again(site: Site) -> None:
    queue = site.queue(DURABLE, x_dead_letter_exchange="dead")
    site.page(rotten=True)
    queue.core.max_count = 5
    site.publish(queue, b"%09d" % NUMBER + BODY)
    site.engine.end_turn()
    site.go_on()
    stuck = len(queue.core.stuck)
    assert stuck and queue.core.unacked == stuck
    site.engine.demote()
    assert not queue.core.stuck and not queue.core.unacked and queue.core.ready == 5 + stuck


def test_a_backup_deletes_a_queue_of_its_own(site: Site) -> None:
    site.broker.vhosts.rules.default_replicate = "none"
    queue = site.queue(AUTO_DELETE, alternate_exchange="else")
    queue.used, site.engine.passive = True, True
    site.page(rotten=False)
    end(site, queue)
    assert site.deleted
