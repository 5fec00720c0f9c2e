"""Addresses against real brokers: each option does what it says, and what was declared comes back after a fail-over."""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pika
import pytest

from client_lib import (
    AssertionFailed,
    Connection,
    Empty,
    InvalidOption,
    LinkClosed,
    Message,
    NotFound,
    ReceiverError,
    Returned,
    Session,
    aio,
)
from demo.cluster import Cluster
from ha.qpid_cluster.main import settled
from tests.support.fault_proxy import FaultProxy
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for


@dataclass(frozen=True)
class Broker:
    address: str
    ours: bool


@pytest.fixture(scope="module", params=["qpidd", "rabbitmq"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "qpidd":
        with BrokerProcess(tmp_path_factory.mktemp("addresses")) as process:
            yield Broker(process.address, True)
        return
    yield Broker(f"127.0.0.1:{request.getfixturevalue('rabbit_port')}", False)


@pytest.fixture
def session(broker: Broker) -> Iterator[Session]:
    with Connection(broker.address, heartbeat=10).open(30) as connection:
        yield connection.session()


@pytest.fixture
def witness(broker: Broker) -> Iterator[Any]:
    """Plain pika, to look at the broker with other eyes."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=int(broker.address.rpartition(":")[2])))
    yield connection
    connection.close()


@pytest.fixture
def browsable(broker: Broker) -> None:
    if not broker.ours:
        pytest.skip("brokers of ours only")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Queues and exchanges of a test are its own."""
    return str(request.node.name).replace("[", ".").replace("]", "")


def there(witness: Any, kind: str, name: str) -> bool:
    channel = witness.channel()
    try:
        getattr(channel, f"{kind}_declare")(name, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        assert error.reply_code == 404
        return False
    channel.close()
    return True


def wait_gone(witness: Any, kind: str, name: str) -> None:
    wait_for(lambda: not there(witness, kind, name), what=f"{kind} {name} is gone")


def contents(receiver: Any, count: int) -> list[Any]:
    return [receiver.fetch(30).content for _ in range(count)]


# ---- nodes


def test_a_missing_node_is_told_and_does_no_harm(session: Session, name: str) -> None:
    for opening in (session.sender, session.receiver):
        with pytest.raises(NotFound, match=name):
            opening(name)
    session.sender("amq.fanout").send(b"still alive", timeout=30)


def test_a_queue_is_created_used_and_deleted(session: Session, witness: Any, name: str) -> None:
    sender = session.sender(f"{name}; {{create: always}}")
    sender.send(Message("one", subject="red"), timeout=30)
    receiver = session.receiver(f"{name}; {{delete: receiver}}")
    message = receiver.fetch(30)
    assert (message.content, message.subject, message.routing_key, sender.target) == ("one", "red", name, name)
    session.acknowledge(message)
    assert there(witness, "queue", name)
    sender.close()
    assert there(witness, "queue", name)
    receiver.close()
    wait_gone(witness, "queue", name)


def test_the_subject_of_the_address_is_the_default(session: Session, name: str) -> None:
    sender = session.sender(f"{name}/blue; {{create: always}}")
    sender.send("one", timeout=30)
    sender.send(Message("two", subject="red"), timeout=30)
    receiver = session.receiver(name)
    assert [receiver.fetch(30).subject for _ in range(2)] == ["blue", "red"]


def test_create_leaves_what_is_there_and_assert_compares(session: Session, name: str) -> None:
    session.declare_queue(name, durable=True)
    transient = "node: {durable: false}"
    session.sender(f"{name}; {{create: always, {transient}}}").send(b"x", timeout=30)
    with pytest.raises(AssertionFailed, match="durable"):
        session.sender(f"{name}; {{assert: always, {transient}}}")
    session.sender(f"{name}; {{assert: always, node: {{durable: true, type: queue}}}}").send(b"y", timeout=30)
    with pytest.raises(AssertionFailed, match="is a queue, not a topic"):
        session.sender(f"{name}; {{assert: always, node: {{type: topic}}}}")


def test_a_queue_is_created_with_its_arguments_and_bindings(session: Session, witness: Any, name: str) -> None:
    bindings = f"x-bindings: [{{exchange: amq.topic, key: '{name}.#'}}]"
    options = f"durable: true, x-declare: {{arguments: {{x-max-length: 2}}}}, {bindings}"
    receiver = session.receiver(f"{name}; {{create: receiver, node: {{{options}}}}}", capacity=1)
    channel = witness.channel()
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 2})
    session.sender("amq.topic").send(Message("found", subject=f"{name}.a"), timeout=30)
    assert contents(receiver, 1) == ["found"]


def test_a_bad_argument_is_told(session: Session, name: str) -> None:
    with pytest.raises(Exception, match="x-max-length") as caught:
        session.sender(f"{name}; {{create: always, node: {{x-declare: {{arguments: {{x-max-length: many}}}}}}}}")
    assert "406" in str(caught.value)


@pytest.mark.parametrize("whole", [True, False], ids=["connection", "session"])
def test_delete_is_done_at_the_end_of_a_session_or_connection(
    broker: Broker, witness: Any, whole: bool, name: str
) -> None:
    with Connection(broker.address).open(30) as connection:
        session = connection.session()
        session.sender(f"{name}; {{create: always, delete: always}}").send("x", timeout=30)
        session.receiver(f"{name}.t; {{create: always, delete: receiver, node: {{type: topic}}}}")
        timed = session.receiver("amq.topic; {link: {x-declare: {arguments: {qpid.auto_delete_timeout: 60}}}}")
        private = session.receiver("amq.topic").queue
        if not whole:
            session.close()
    for kind, node in (("queue", name), ("exchange", f"{name}.t"), ("queue", timed.queue), ("queue", private)):
        wait_gone(witness, kind, node)


def test_delete_is_done_though_a_message_came_back(broker: Broker, witness: Any, name: str) -> None:
    with pytest.raises(Returned), Connection(broker.address).open(30) as connection:
        session = connection.session()
        session.receiver(f"{name}; {{create: always, delete: always}}")
        gone = session.sender(f"{name}.gone; {{create: always}}")
        session.delete_queue(f"{name}.gone")
        gone.send("lost?", sync=False)
    wait_gone(witness, "queue", name)


def test_a_receiver_that_cannot_be_made_leaves_nothing_behind(session: Session, name: str) -> None:
    with pytest.raises(ValueError, match="capacity"):
        session.receiver(f"{name}; {{create: always}}", capacity=-1)
    with pytest.raises(ValueError, match="capacity"):
        session.sender(f"{name}; {{create: always}}", capacity=-1)
    assert session._waiting.worker.requests.restores == {}


@pytest.mark.parametrize("kind", ["topic", "fanout", "direct", "headers"])
def test_topics_of_every_type(session: Session, witness: Any, kind: str, name: str) -> None:
    declare = f"node: {{type: topic, x-declare: {{type: {kind}}}}}"
    sender = session.sender(f"{name}; {{create: always, delete: sender, {declare}}}")
    everything = session.receiver(f"{name}; {{{declare}}}")
    red = session.receiver(f"{name}/red")
    sender.send(Message("1", subject="red"), timeout=30)
    sender.send(Message("2", subject="blue"), timeout=30)
    sender.send("3", timeout=30)
    all_three = ["1", "2", "3"]
    assert contents(everything, 1 if kind == "direct" else 3) == (["3"] if kind == "direct" else all_three)
    chooses = kind in ("topic", "direct")
    assert contents(red, 1 if chooses else 3) == (["1"] if chooses else all_three)
    sender.close()
    wait_gone(witness, "exchange", name)


def test_headers_choose_with_x_bindings(session: Session) -> None:
    match = "{key: any, arguments: {x-match: all, colour: red, size: 3}}"
    receiver = session.receiver(f"amq.match; {{link: {{x-bindings: [{match}]}}}}")
    sender = session.sender("amq.match")
    for number, size in enumerate((3, 4, 3)):
        sender.send(Message(str(number), properties={"colour": "red", "size": size}), timeout=30)
    assert contents(receiver, 2) == ["0", "2"]


def test_a_private_subscription_goes_with_its_receiver(session: Session, witness: Any) -> None:
    receiver = session.receiver("amq.topic")
    assert receiver.source == "amq.topic"
    queue = receiver.queue
    receiver.close()
    wait_gone(witness, "queue", queue)


def test_a_durable_subscription_stays(session: Session, witness: Any, name: str) -> None:
    address = f"amq.topic/{name}; {{link: {{name: {name}, durable: true}}}}"
    session.receiver(address).close()
    session.sender(f"amq.topic/{name}").send("while away", timeout=30)
    assert contents(session.receiver(address), 1) == ["while away"]


def test_bindings_of_a_link_go_with_it(session: Session, name: str) -> None:
    session.declare_queue(name)
    link = f"{{link: {{x-bindings: [{{exchange: amq.direct, key: {name}}}]}}}}"
    receiver = session.receiver(f"{name}; {link}")
    sender = session.sender(f"amq.direct/{name}")
    sender.send("1", timeout=30)
    assert contents(receiver, 1) == ["1"]
    receiver.close()
    sender.send("2", timeout=30)
    with pytest.raises(Empty):
        session.receiver(name).fetch(0.1)


def test_request_and_response_over_temporary_queues(session: Session, broker: Broker, name: str) -> None:
    with Connection(broker.address).open(30) as other:
        server = other.session()
        requests = server.receiver(f"{name}; {{create: always}}")
        replies = session.receiver("#reply")
        session.sender(name).send(Message("ping", reply_to=replies.source), timeout=30)
        request = requests.fetch(30)
        assert request.reply_to is not None and request.reply_to.endswith("#reply")
        server.sender(request.reply_to).send(request.content + " pong", timeout=30)
        assert contents(replies, 1) == ["ping pong"]


# ---- links


def test_unreliable_receivers_do_not_acknowledge(session: Session, witness: Any, name: str) -> None:
    sender = session.sender(f"{name}; {{create: always}}")
    sender.send("gone", timeout=30)
    receiver = session.receiver(f"{name}; {{link: {{reliability: unreliable}}}}")
    message = receiver.fetch(30)
    session.acknowledge(message)  # does nothing
    assert witness.channel().queue_declare(name, passive=True).method.message_count == 0


def test_exclusive_subscriptions_and_priorities(session: Session, broker: Broker, name: str) -> None:
    session.receiver(f"{name}; {{create: always, link: {{x-subscribe: {{exclusive: true}}}}}}")
    with Connection(broker.address).open(30) as other, pytest.raises(Exception, match="exclusive"):
        other.session().receiver(name)
    low = session.receiver(f"{name}.p; {{create: always}}")
    high = session.receiver(f"{name}.p; {{link: {{x-subscribe: {{arguments: {{x-priority: 9}}}}}}}}")
    session.sender(f"{name}.p").send("first", timeout=30)
    assert contents(high, 1) == ["first"]
    assert low.available() == 0


def test_contents_travel(session: Session, name: str) -> None:
    sender = session.sender(f"{name}; {{create: always}}")
    given = [b"\xff\0", "text", {"map": [1, 2.5, None, {"deep": b"\xff"}]}, ["list", True]]
    for content in given:
        sender.send(content if isinstance(content, (bytes, str)) else Message(content), timeout=30)
    receiver = session.receiver(name)
    assert contents(receiver, 4) == given
    properties = {"price": 1.25, "tiny": -1e-300, "deep": {"list": [0.5, b"\xff", None]}}
    sender.send(Message(b"", properties=properties), timeout=30)
    assert receiver.fetch(30).properties == properties


def test_a_queue_that_vanishes_under_its_sender_is_no_silent_loss(session: Session, name: str) -> None:
    sender = session.sender(f"{name}; {{create: always}}")
    sender.send("kept", timeout=30)
    session.delete_queue(name)
    with pytest.raises(Exception, match="312"):
        sender.send("lost?", timeout=30)


# ---- browsing


@pytest.mark.usefixtures("browsable")
def test_browsing_shows_each_message_once_and_takes_none(session: Session, name: str) -> None:
    sender = session.sender(f"{name}; {{create: always}}")
    for number in range(25):
        sender.send(str(number), sync=False)
    sender.sync(30)
    browser = session.receiver(f"{name}; {{mode: browse}}", capacity=10)
    first = browser.fetch(0)
    assert (first.content, first.redelivered) == ("0", False)
    assert contents(browser, 24) == [str(number) for number in range(1, 25)]
    with pytest.raises(Empty):
        browser.fetch(0.05)
    session.acknowledge(first)  # does nothing
    sender.send("new", timeout=30)
    assert contents(browser, 1) == ["new"]
    assert contents(session.receiver(name), 26)[-1] == "new"


@pytest.mark.usefixtures("browsable")
def test_browsing_shows_what_others_hold_and_large_bodies(session: Session, broker: Broker, name: str) -> None:
    sender = session.sender(f"{name}; {{create: always}}")
    large = bytes(range(256)) * 8192
    sender.send(large, timeout=30)
    held = session.receiver(name).fetch(30)
    with Connection(broker.address).open(30) as other:
        assert contents(other.session().receiver(f"{name}; {{mode: browse}}"), 1) == [large]
    session.release(held)


@pytest.mark.usefixtures("browsable")
def test_browsers_end(session: Session, name: str) -> None:
    browser = session.receiver(f"{name}; {{create: always, mode: browse}}")
    ended = threading.Thread(target=lambda: list(browser))
    ended.start()
    browser.close()
    ended.join(30)
    assert not ended.is_alive()
    with pytest.raises(LinkClosed):
        browser.fetch(0)
    browser = session.receiver(f"{name}; {{mode: browse}}")
    session.delete_queue(name)
    with pytest.raises((ReceiverError, NotFound), match="no queue"):
        browser.fetch(30)


def test_browsing_is_refused_where_it_cannot_be_had(session: Session, broker: Broker, name: str) -> None:
    session.declare_queue(name)
    if broker.ours:
        session.receiver(f"{name}; {{mode: browse}}")
    else:
        with pytest.raises(InvalidOption, match="this broker does not"):
            session.receiver(f"{name}; {{mode: browse}}")


def test_what_cannot_be_is_refused(session: Session, name: str) -> None:
    for address in (
        "amq.topic; {mode: browse}",
        "amq.topic; {link: {selector: x}}",
        "amq.topic; {link: {durable: true}}",
    ):
        with pytest.raises(InvalidOption):
            session.receiver(address)


def test_many_links_leave_nothing_behind(session: Session, witness: Any, name: str) -> None:
    session.declare_queue(name)
    for _ in range(30):
        session.sender(name).close()
        session.receiver("amq.fanout").close()
    assert session._waiting.worker.requests.restores == {}


def test_the_same_with_asyncio(broker: Broker, witness: Any, name: str) -> None:
    async def main() -> None:
        async with aio.Connection(broker.address) as connection:
            session = await connection.session()
            with pytest.raises(NotFound):
                await session.sender(name)
            sender = await session.sender(f"{name}; {{create: always, delete: always}}")
            news = await session.receiver(f"amq.topic/{name}.#")
            await sender.send(Message({"number": 1}))
            await (await session.sender("amq.topic")).send(Message("b", subject=f"{name}.b"))
            assert (await news.fetch(30)).content == "b"
            if broker.ours:
                browser = await session.receiver(f"{name}; {{mode: browse}}")
                assert (await browser.fetch(0)).content == {"number": 1}
                waiting = asyncio.ensure_future(browser.fetch(30))
                await sender.send("more")
                assert (await waiting).content == "more"
            await news.close()
            wait_gone(witness, "queue", news.queue)

    asyncio.run(main())
    wait_gone(witness, "queue", name)


# ---- fail-over


def test_a_broker_that_still_holds_the_old_connection_is_waited_for(broker: Broker, name: str) -> None:
    """A cut of which no process is told: exclusive queues stay locked until the broker's heartbeat ends the old one."""
    port = int(broker.address.rpartition(":")[2])
    with FaultProxy(port) as proxy, Connection(proxy.address, heartbeat=2, restore_timeout=0.2).open(30) as connection:
        session = connection.session()
        private, temporary = session.receiver(f"amq.topic/{name}"), session.receiver("#mine")
        proxy.vanish()
        session.sender(temporary.source, timeout=30).send("one", timeout=30)
        session.sender(f"amq.topic/{name}", timeout=30).send("two", timeout=30)
        assert [receiver.fetch(30).content for receiver in (temporary, private)] == ["one", "two"]
        assert connection.failovers == 1


@pytest.fixture
def cluster(tmp_path: Any) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


def test_everything_comes_back_after_a_failover(cluster: Cluster) -> None:
    """A topic with a private subscription, a temporary queue, link bindings and a browser, over a kill -9."""
    wait_for(lambda: settled(cluster.status()), 60, "one active, the others ready")
    with Connection(cluster.addresses(), heartbeat=1).open(20) as connection:
        session = connection.session()
        topic = "news; {create: always, node: {type: topic}}"
        news, sender = session.receiver(f"news/a.#; {topic.partition(';')[2]}"), session.sender(topic)
        reply = session.receiver("#reply")
        orders = session.sender("orders; {create: always, node: {durable: true}}")
        orders.send("before", timeout=30)
        browser = session.receiver("orders; {mode: browse}")
        linked = session.receiver("orders.copy; {create: always, link: {x-bindings: [{exchange: news, key: b}]}}")
        assert contents(browser, 1) == ["before"]
        old = cluster.primary
        cluster.command("kill", old)
        wait_for(lambda: connection.failovers >= 1, 60, "a fail-over")
        sender.send(Message("tidings", subject="a.b"), timeout=20)
        sender.send(Message("linked", subject="b"), timeout=20)
        session.sender(reply.source).send("answer", timeout=20)
        orders.send("after", timeout=20)
        assert [contents(receiver, 1) for receiver in (news, linked, reply)] == [["tidings"], ["linked"], ["answer"]]
        deadline, seen = time.monotonic() + 20, []
        while "after" not in seen and time.monotonic() < deadline:
            seen.append(browser.fetch(20).content)
        assert seen == ["after"]
