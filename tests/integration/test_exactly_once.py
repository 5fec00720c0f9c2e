"""`exactly_once` of senders: what is sent again enters its queue once, in the three APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from client_lib import AssertionFailed, InvalidOption, MessagingError, NotFound
from tests.support.fault_proxy import FaultProxy, Way
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for
from tests.unit.client_lib.styles import Asyncio, PikaStyle, Threaded

ONCE = {"x-message-deduplication": True}
COUNT = 50
STYLES = pytest.mark.parametrize("style", [Threaded, Asyncio, PikaStyle])
QUICK = {"restore_timeout": 1.0, "heartbeat": 0}
Send = Callable[..., Any]


@contextmanager
def connected(style: type[Threaded], address: str) -> Iterator[Threaded]:
    more = {"publish_window": 1000} if style is PikaStyle else {}
    client = style([address], **QUICK, **more)
    try:
        yield client
    finally:
        client.end()


def opened(client: Threaded, queue: str, once: bool | str = True) -> Send:
    """Sends a body without waiting for the confirm, in session 0."""
    if isinstance(client, PikaStyle):
        return pikas(client.session(0), queue, once)
    sender = client.session(0).sender(queue, exactly_once=once)

    def send(body: bytes, headers: Any = None, message_id: str | None = None) -> None:
        sender.send(message(body, id=message_id, properties=headers), sync=False)

    return send


def message(*arguments: Any, **named: Any) -> Any:
    from client_lib import Message

    return Message(*arguments, **named)


def pikas(channel: Any, queue: str, once: bool | str) -> Send:
    if once:
        channel.confirm_exactly_once(once if isinstance(once, str) else None)

    def send(body: bytes, headers: Any = None, message_id: str | None = None) -> None:
        properties = pika.BasicProperties(headers=headers, message_id=message_id, delivery_mode=2)
        channel.basic_publish("", queue, body, properties)

    return send


@contextmanager
def asking(port: int) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        yield connection.channel()


def count(port: int, queue: str) -> int:
    with asking(port) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def declare(port: int, queue: str, arguments: dict[str, Any] | None = None) -> None:
    with asking(port) as channel:
        channel.queue_declare(queue, durable=True, arguments=arguments)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("once")) as broker:
        yield broker


# ---------------------------------------------------------------- what is sent again


@STYLES
@pytest.mark.parametrize("once", [True, False])
def test_answers_that_are_cut_off(alone: BrokerProcess, style: type[Threaded], once: bool) -> None:
    """The broker has the messages, and their confirms never arrive.  Without the argument all of them are there
    twice."""
    queue = f"cut.{style.__name__}.{once}"
    declare(alone.port, queue, ONCE if once else None)
    with FaultProxy(alone.port) as proxy, connected(style, proxy.address) as client:
        send = opened(client, queue, once)
        send(b"the first one asks", {"order": -1})
        client.sync()
        proxy.vanish(Way.TO_CLIENT)
        for number in range(COUNT):
            send(b"%d" % number)
        wait_for(lambda: count(alone.port, queue) == 1 + COUNT, TIME, "the broker has all")
        proxy.cut()
        client.sync()
        assert client.failovers == 1
    assert count(alone.port, queue) == 1 + (COUNT if once else 2 * COUNT)


@STYLES
@pytest.mark.parametrize("once", [True, False])
def test_a_primary_that_is_killed(members: Members, style: type[Threaded], once: bool) -> None:
    """Its backups have the messages, and the publisher has no confirm."""
    primary = members.brokers["a"]
    declare(primary.port, "kill", ONCE if once else None)
    with FaultProxy(primary.port) as proxy, connected(style, proxy.address) as client:
        send = opened(client, "kill", once)
        send(b"the first one asks", {"order": -1})
        client.sync()
        proxy.vanish(Way.TO_CLIENT)
        for number in range(COUNT):
            send(b"%d" % number)
        wait_for(lambda: count(primary.port, "kill") == 1 + COUNT, TIME, "the primary has all")
        members.level()
        primary.kill()
        new = members.promote_newest("b", "c")
        wait_for(lambda: members.states()[new] == "active", TIME, "the new primary is active")
        proxy.move(members.brokers[new].port)
        proxy.cut()
        send(b"one more")
        client.sync()
    assert count(members.brokers[new].port, "kill") == 2 + (COUNT if once else 2 * COUNT)


@STYLES
def test_the_key_in_a_header(alone: BrokerProcess, style: type[Threaded]) -> None:
    queue = f"header.{style.__name__}"
    declare(alone.port, queue, {**ONCE, "x-deduplication-key": "order"})
    with FaultProxy(alone.port) as proxy, connected(style, proxy.address) as client:
        send = opened(client, queue, "order")
        send(b"the first one asks", {"order": -1})
        client.sync()
        proxy.vanish(Way.TO_CLIENT)
        for number in range(COUNT):
            send(b"body", {"order": number})
        wait_for(lambda: count(alone.port, queue) == 1 + COUNT, TIME, "the broker has all")
        proxy.cut()
        client.sync()
        for headers in (None, {"other": 1}, {"order": None}):
            with pytest.raises(ValueError, match="no header 'order'"):
                send(b"without a key", headers)
    assert count(alone.port, queue) == 1 + COUNT


@STYLES
def test_a_queue_that_has_lost_the_argument_gets_nothing_again(alone: BrokerProcess, style: type[Threaded]) -> None:
    """It was deleted and declared anew while the connection was away: the session ends, its messages are in doubt."""
    queue = f"changed.{style.__name__}"
    declare(alone.port, queue, ONCE)
    with FaultProxy(alone.port) as proxy, connected(style, proxy.address) as client:
        send = opened(client, queue)
        send(b"the first one asks", {"order": -1})
        client.sync()
        proxy.vanish(Way.TO_CLIENT)
        send(b"0")
        wait_for(lambda: count(alone.port, queue) == 2, TIME, "the broker has it")
        with asking(alone.port) as channel:
            channel.queue_delete(queue)
        declare(alone.port, queue)
        proxy.cut()
        with pytest.raises((MessagingError, pika.exceptions.AMQPError), match="x-message-deduplication"):
            client.sync()
    assert count(alone.port, queue) == 0


# ---------------------------------------------------------------- what is refused


@STYLES
def test_what_cannot_be_promised_is_refused(alone: BrokerProcess, style: type[Threaded]) -> None:
    queue, plain, other = (f"{name}.{style.__name__}" for name in ("once", "plain", "other"))
    declare(alone.port, queue, ONCE)
    declare(alone.port, plain)
    declare(alone.port, other, {**ONCE, "x-deduplication-key": "order"})
    refused: list[tuple[Any, str, bool | str, str]] = [
        (AssertionFailed, plain, True, "is not declared with {'x-message-deduplication': True}"),
        (AssertionFailed, plain, "order", "is not declared with"),
        (AssertionFailed, other, True, "current is 'order'"),
        (AssertionFailed, queue, "order", "received 'order' but current is none"),
        (NotFound, "no.such.queue", True, "no.such.queue"),
    ]
    with connected(style, f"127.0.0.1:{alone.port}") as client:
        for kind, name, once, text in refused:
            with pytest.raises(kind, match=text):
                opened(client, name, once)(b"0")
        assert count(alone.port, plain) == count(alone.port, other) == 0
        send = opened(client, queue)
        for header in ("CC", "BCC"):
            with pytest.raises(ValueError, match=header):
                send(b"0", {header: [plain]})
        send(b"1")
        client.sync()
    assert (count(alone.port, queue), count(alone.port, plain)) == (1, 0)


def test_an_exchange_without_the_argument_is_refused(alone: BrokerProcess) -> None:
    address = f"127.0.0.1:{alone.port}"
    with connected(Threaded, address) as client, pytest.raises(AssertionFailed, match=r"exchange 'amq\.topic'"):
        client.session(0).sender("amq.topic/a", exactly_once=True)
    with connected(PikaStyle, address) as client, pytest.raises(AssertionFailed, match=r"exchange 'amq\.topic'"):
        client.session(0).confirm_exactly_once()
        client.session(0).basic_publish("amq.topic", "a", b"")


@STYLES
def test_an_exchange(alone: BrokerProcess, style: type[Threaded]) -> None:
    """Two queues behind it get what was sent twice once."""
    name = f"passes.{style.__name__}"
    queues = [f"{name}.{n}" for n in range(2)]
    with asking(alone.port) as channel:
        channel.exchange_declare(name, "topic", durable=True, arguments=ONCE)
        for queue in queues:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, name, "#")
    for _ in range(2):
        with connected(style, f"127.0.0.1:{alone.port}") as client:
            send = through(client, name)
            for n in range(5):
                send(f"{n}")
            client.sync()
    assert [count(alone.port, queue) for queue in queues] == [5, 5]


def through(client: Threaded, exchange: str) -> Callable[[str], None]:
    """Sends a message of this id."""
    if not isinstance(client, PikaStyle):
        sender = client.session(0).sender(f"{exchange}/k", exactly_once=True)
        return lambda id: sender.send(message(b"m", id=id), sync=False)
    client.session(0).confirm_exactly_once()
    return lambda id: client.session(0).basic_publish(exchange, "k", b"m", pika.BasicProperties(message_id=id))


@pytest.mark.parametrize("wrong", [1, None, b"x", [], "", 1.5])
def test_wrong_arguments(alone: BrokerProcess, wrong: Any) -> None:
    with (
        connected(Threaded, f"127.0.0.1:{alone.port}") as client,
        pytest.raises((TypeError, ValueError), match="exactly"),
    ):
        client.session(0).sender("q; {create: always}", exactly_once=wrong)


def test_an_address_says_it(alone: BrokerProcess) -> None:
    """As in Qpid: `link: {reliability: exactly-once}`; and the queue can be created so."""
    arguments = "{x-declare: {arguments: {x-message-deduplication: true}}}"
    once = "link: {reliability: exactly-once}"
    with connected(Threaded, f"127.0.0.1:{alone.port}") as client:
        session = client.session(0)
        sender = session.sender(f"said; {{create: always, node: {arguments}, {once}}}")
        for _ in range(2):
            sender.send(message("order", id="7"))
        assert count(alone.port, "said") == 1
        with pytest.raises(AssertionFailed, match="x-message-deduplication"):
            session.sender(f"unsaid; {{create: always, {once}}}")
        with pytest.raises(InvalidOption, match="is for senders"):
            session.receiver(f"said; {{{once}}}")


def test_a_transaction_that_is_done_again(alone: BrokerProcess) -> None:
    declare(alone.port, "transacted", ONCE)
    with connected(Threaded, f"127.0.0.1:{alone.port}") as client:
        client.begin(0)
        sender = client.session(0).sender("transacted", exactly_once=True)
        with pytest.raises(ValueError, match="needs an id"):
            sender.send("no id")
        for _ in range(2):
            sender.send(message("order", id="7"))
            client.commit(0)
    assert count(alone.port, "transacted") == 1
