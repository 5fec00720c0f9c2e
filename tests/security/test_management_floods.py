"""Management requests that ask for much, or whose answers no client reads."""

import json
import time
from collections.abc import Callable, Iterator

import pamqp.commands as commands
import pamqp.header
import psutil
import pytest

from qpidd_py.amqp.codec import encode_content, encode_method
from qpidd_py.broker.broker import Broker
from qpidd_py.management.model import BROWSE_OCTETS, PART_OCTETS, Management
from qpidd_py.management.shown import PEEK_BODY
from qpidd_py.management.turns import AT_ONCE, BACKLOG, Turns
from tests.security.peers import Raw, longest_wait
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for
from tests.unit.broker.peer import Peer

Basic, Queue = commands.Basic, commands.Queue
MakeBroker = Callable[..., BrokerProcess]


def request(method: str, channel: int = 1, **arguments: object) -> bytes:
    publish = Basic.Publish(exchange="qpid.management", routing_key=method)
    return encode_content(channel, publish, {"correlation_id": "1"}, json.dumps(arguments).encode(), 131072)


def resident(broker: BrokerProcess) -> int:
    """Octets of memory."""
    return psutil.Process(broker.pid).memory_info().rss


def administrator(peer: Raw) -> None:
    """Answers come on channel 1."""
    peer.log_in()
    peer.send(encode_method(1, commands.Channel.Open()))
    peer.send(encode_method(1, Basic.Consume(queue="qpid.management", no_ack=True)))
    assert isinstance(peer.frame(), commands.Channel.OpenOk)
    assert isinstance(peer.frame(), Basic.ConsumeOk)


@pytest.fixture
def full(broker: BrokerProcess) -> Iterator[Raw]:
    """An administrator's connection to a broker with 1,000 messages of 64 KiB."""
    with Raw(broker.port) as peer:
        administrator(peer)
        peer.send(encode_method(2, commands.Channel.Open()))
        peer.send(encode_method(2, Queue.Declare(queue="q")))
        publish = Basic.Publish(exchange="", routing_key="q")
        peer.send(encode_content(2, publish, {}, b"\0" * PEEK_BODY, 131072) * 1000)
        assert isinstance(peer.frame(), commands.Channel.OpenOk)
        assert isinstance(peer.frame(), Queue.DeclareOk)
        yield peer


def test_peeks_stop_no_client(full: Raw, broker: BrokerProcess) -> None:
    """Three of them took 4.3 seconds, in which the broker did nothing else."""
    with Raw(broker.port) as other:
        other.log_in()
        full.send(request("queue.peek", queue="q", limit=1000) * 10)
        assert longest_wait(other, 1.0) < 3.0
    for _ in range(10):
        assert isinstance(full.frame(), Basic.Deliver)
        header = full.frame()
        assert isinstance(header, pamqp.header.ContentHeader)
        assert header.body_size < 8 * BROWSE_OCTETS, "a NUL takes six octets in JSON"
        got = 0
        while got < header.body_size:
            got += len(full.frame().value)


def test_unread_answers_are_not_made(full: Raw, broker: BrokerProcess) -> None:
    before = resident(broker)
    full.send(request("queue.peek", queue="q", limit=1000) * 200)
    with Raw(broker.port) as other:
        administrator(other)
        other.send(request("queue.peek", queue="q", limit=1))
        assert isinstance(other.frame(), Basic.Deliver), "another administrator is answered"
    time.sleep(0.5)  # what would be made is made meanwhile
    assert resident(broker) - before < 60 << 20, "200 answers are a gigabyte"


def test_no_look_into_exclusive_queues_of_others() -> None:
    broker = Broker()
    management, owner, other = Management(broker), Peer(broker), Peer(broker)
    owner.open_channel()
    owner.call(1, Queue.Declare(queue="mine", exclusive=True))
    owner.publish(b"secret", "mine")
    for after in ({}, {"after": 0}):
        for asker, allowed in ((owner.connection, True), (other.connection, False), (None, False)):
            answers: list = []
            for _ in management.work("queue.peek", {"queue": "mine", **after}, answers.append, asker):
                pass
            assert answers[0]["ok"] is allowed, (after, answers)
            assert "secret" not in json.dumps(answers) or allowed


def test_the_user_of_brokers_looks_into_exclusive_queues() -> None:
    """It could replicate them."""
    broker = Broker()
    broker.couriers.add("guest")
    management, owner, other = Management(broker), Peer(broker), Peer(broker)
    owner.open_channel()
    owner.call(1, Queue.Declare(queue="mine", exclusive=True))
    for asker, allowed in ((other.connection, True), (None, False)):
        answers: list = []
        for _ in management.work("queue.peek", {"queue": "mine"}, answers.append, asker):
            pass
        assert answers[0]["ok"] is allowed


def test_long_lists_come_in_parts() -> None:
    broker = Broker()
    peer = Peer(broker)
    peer.open_channel()
    for number in range(1000):
        peer.call(1, Queue.Declare(queue=f"queue-{number:04}"))
        peer.call(1, Queue.Bind(queue=f"queue-{number:04}", exchange="amq.direct", routing_key=f"{number:04}"))
    for method in ("queue.list", "binding.list"):
        answers: list = []
        for slices, _ in enumerate(Management(broker).work(method, {}, answers.append, None), 1):
            assert len(answers) == slices, "one part in each slice"
        assert len(answers) > 2
        assert all(answer["more"] for answer in answers[:-1]) and "more" not in answers[-1]
        assert max(len(json.dumps(answer["result"])) for answer in answers) < 2 * PART_OCTETS
        names = [item.get("name", item.get("destination")) for answer in answers for item in answer["result"]]
        assert names == [f"queue-{number:04}" for number in range(1000)]


class Loop:
    def __init__(self) -> None:
        self.works: list = []

    def defer(self, seconds: float, work: Callable[[], None]) -> None:
        self.works.append(work)

    def turn(self) -> None:
        works, self.works = self.works, []
        for work in works:
            work()


def noted(done: list, *items: object) -> Iterator[None]:
    """A slice for each."""
    for item in items:
        done.append(item)
        yield


def test_connections_take_turns() -> None:
    broker, loop, done = Broker(), Loop(), []
    turns = Turns(loop.defer, lambda: 0.0)
    peers = [Peer(broker) for _ in range(AT_ONCE + 2)]

    for name, peer in enumerate(peers):
        for channel in (1, 2):
            peer.open_channel(channel)
            turns.add(peer.connection.channels[channel], noted(done, (name, 0), (name, 1)))
    while loop.works:
        loop.turn()
    assert done[:AT_ONCE] == [(name, 0) for name in range(AT_ONCE)]
    assert sorted(done) == sorted([(name, step) for name in range(len(peers)) for step in (0, 1)] * 2)


def test_who_does_not_read_gets_nothing_and_is_closed_in_the_end() -> None:
    broker, loop, done = Broker(), Loop(), []
    now = [0.0]
    turns = Turns(loop.defer, lambda: now[0])
    deaf, other = Peer(broker), Peer(broker)
    for peer in (deaf, other):
        peer.open_channel()
    deaf.connection.core.write(bytes(BACKLOG + 1))
    for peer in (deaf, other):
        turns.add(peer.connection.channels[1], noted(done, peer))
    for _ in range(20):
        loop.turn()
    assert done == [other]
    now[0] = 31.0
    loop.turn()
    assert not deaf.connection.opened
    for _ in range(3):
        loop.turn()
    assert not loop.works, "nothing is left to look at"


def test_requests_of_a_closed_channel_are_forgotten() -> None:
    broker, loop, done = Broker(), Loop(), []
    turns = Turns(loop.defer, lambda: 0.0)
    peer = Peer(broker)
    peer.open_channel()
    turns.add(peer.connection.channels[1], noted(done, 1))
    peer.connection.closed("lost")
    while loop.works:
        loop.turn()
    assert done == []


def test_what_a_channel_sends_while_it_waits_comes_in_order(broker: BrokerProcess) -> None:
    with Raw(broker.port) as peer:
        administrator(peer)
        declare = encode_method(1, Queue.Declare(queue="late"))
        peer.send(request("queue.list") + declare + request("queue.list"))
        seen = []
        for _ in range(7):
            frame = peer.frame()
            seen.append(json.loads(frame.value)["result"] if hasattr(frame, "value") else type(frame))
        assert seen[2] == [] and seen[3] is Queue.DeclareOk
        assert [queue["name"] for queue in seen[6]] == ["late"]


def test_a_large_request_is_refused(broker: BrokerProcess) -> None:
    with Raw(broker.port) as peer:
        administrator(peer)
        peer.send(request("queue.list", text="x" * (1 << 19)))
        assert isinstance(peer.frame(), Basic.Deliver)
        peer.frame()
        assert "at most" in json.loads(peer.frame().value)["error"]


def test_the_log_has_no_whole_names(broker: BrokerProcess) -> None:
    """Of methods, queues and connections that a peer names."""
    with Raw(broker.port) as peer:
        administrator(peer)
        peer.send(request("x\n" * 120, queue="y\n" * 1000))
        assert isinstance(peer.frame(), Basic.Deliver)
    wait_for(lambda: broker.running, what="it goes on")
    assert all(len(line) < 2200 for line in broker.log.splitlines())
