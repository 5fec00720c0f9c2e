"""`amq.failover`: who binds a queue to it gets the addresses of the cluster, at once and when they change."""

from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest

from client_lib import Connection, Message
from ha.shell.failover_updates import url
from qpidd_py.config import GROUPS
from qpidd_py.errors import ConfigError
from qpidd_py.options import load
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

EXCHANGE = "amq.failover"


def urls(members: Members) -> list[str]:
    return [f"amqp:tcp:{address}" for address in members.url.split(",")]


def fetched(channel: Any, queue: str) -> list[str]:
    """The addresses of the next message."""
    found: list[Any] = []

    def look() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            assert (method.exchange, body) == (EXCHANGE, b"")
            found.extend(properties.headers[EXCHANGE])
        return method is not None

    wait_for(look, TIME, "the addresses")
    return found


def test_addresses_at_once_and_at_each_change(members: Members) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", members.brokers["a"].port)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, EXCHANGE)
        assert fetched(channel, queue) == urls(members)
        shared = channel.queue_declare("shared", durable=True).method.queue
        channel.queue_bind(shared, EXCHANGE)
        assert fetched(channel, shared) == urls(members)
        new = BrokerProcess(members._directory, name="d")
        try:
            members.tool("member", "add", new.address)
            changed = [*urls(members), f"amqp:tcp:{new.address}"]
            assert fetched(channel, queue) == changed
            assert fetched(channel, shared) == changed
        finally:
            new.close()
        channel.queue_unbind(queue, EXCHANGE)
        assert channel.basic_get(queue)[0] is None
    backup = members.ask("b", "binding.list")
    assert not [binding for binding in backup if binding["source"] == EXCHANGE], "bindings are not replicated"


@pytest.mark.parametrize("what", ["publish", "delete", "declare"])
def test_nobody_can_send_clients_elsewhere(members: Members, what: str) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", members.brokers["a"].port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(EXCHANGE, passive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            if what == "publish":
                channel.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers={EXCHANGE: ["amqp:tcp:evil:1"]}))
            elif what == "delete":
                channel.exchange_delete(EXCHANGE)
            else:
                channel.exchange_declare(EXCHANGE, "fanout", durable=True)
        assert error.value.reply_code in (403, 406)


def test_the_url_of_jms_clients(members: Members) -> None:
    brokers = ";".join(f"tcp://{address}?heartbeat='3'" for address in members.url.split(","))
    text = f"amqp://guest:guest@clientid/?brokerlist='{brokers}'&failover='failover_exchange'"
    with Connection(text) as connection:
        assert connection.client_id == "clientid"
        session = connection.session()
        session.sender("q; {create: always}").send(Message("x"), timeout=TIME)
        assert session.receiver("q").fetch(TIME).content == "x"
    elsewhere = text.replace("clientid/?", "clientid/other?")
    with pytest.raises(Exception, match="vhost other not found"):
        Connection(elsewhere, reconnect=False).open(TIME)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("h:1", "amqp:tcp:h:1"),
        ("ssl:h:1", "amqp:ssl:h:1"),
        (" amqp:tcp:h:1", "amqp:tcp:h:1"),
        ("user/p@h:1", "amqp:tcp:h:1"),
        ("[::1]:1", "amqp:tcp:[::1]:1"),
    ],
)
def test_urls(address: str, expected: str) -> None:
    assert url(address) == expected


@pytest.mark.parametrize(("given", "wanted"), [("node1:5672,node2:5672", "node1:5672,node2:5672"), ("none", "")])
def test_known_hosts(make_broker: Callable[..., BrokerProcess], given: str, wanted: str) -> None:
    broker = make_broker("--known-hosts-url", given).start()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        assert connection._impl.known_hosts == wanted
    with Connection(broker.address) as ours:
        assert ours.session() is not None


@pytest.mark.parametrize("url", ["node1:x", "a,,b", ",".join(["node1:5672"] * 30)])
def test_what_are_no_known_hosts(url: str) -> None:
    with pytest.raises(ConfigError, match="option known-hosts-url"):
        load(GROUPS, ["--known-hosts-url", url], {}, "/none")
