"""`ha-public-url` with real brokers: clients are told it when they connect, and learn from it where to go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from client_lib import Connection
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

NAME = "qpid.ha-public-url"


@pytest.fixture
def members(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Members]:
    """The parameter: the public URL, in which {a} is the port of the broker a."""
    found = Members(tmp_path)
    ports = {name: broker.port for name, broker in found.brokers.items()}
    for broker in found.brokers.values():
        broker.options = [*broker.options, "--ha-public-url", request.param.format(**ports)]
    try:
        found.up()
        yield found
    finally:
        found.close()


def told(port: int) -> Any:
    """What a broker says of its cluster; it need not let us in for that."""
    properties: list[Any] = []

    class Listening(pika.SelectConnection):  # type: ignore[misc]
        def _set_server_information(self, method_frame: Any) -> None:
            properties.append(method_frame.method.server_properties)
            super()._set_server_information(method_frame)

    connection = Listening(
        pika.ConnectionParameters("127.0.0.1", port),
        on_open_callback=lambda connection: connection.close(),
        on_open_error_callback=lambda connection, _: connection.ioloop.stop(),
        on_close_callback=lambda connection, _: connection.ioloop.stop(),
    )
    connection.ioloop.start()
    return properties[0].get(NAME)


@pytest.mark.parametrize("members", ["localhost:{a},localhost:{b},localhost:{c}"], indirect=True)
def test_a_client_that_knows_one_broker_learns_of_the_others(members: Members) -> None:
    ports = [broker.port for broker in members.brokers.values()]
    url = ",".join(f"localhost:{port}" for port in ports)
    assert [told(port) for port in ports] == [url] * 3
    events: list[Any] = []
    with Connection(members.brokers["b"].address, on_event=events.append) as connection:
        assert str(connection.address) == f"localhost:{ports[0]}", "b has named its primary as clients reach it"
        refusals = [event["reason"] for event in events if event.get("result") == "320"]
        assert all(reason.endswith(f"the primary is localhost:{ports[0]}") for reason in refusals) and refusals
        members.brokers["b"].kill()
        members.brokers["a"].kill()
        members.tool("promote", "--cluster-manager", "--force", name="c")
        wait_for(lambda: connection.is_connected and str(connection.address) == f"localhost:{ports[2]}", TIME)


@pytest.mark.parametrize("members", ["amqp:ssl:localhost:1"], indirect=True)
def test_one_address_for_all_is_told_and_refusals_name_the_member(members: Members) -> None:
    assert told(members.brokers["a"].port) == "amqp:ssl:localhost:1"
    with pytest.raises(pika.exceptions.AMQPConnectionError) as refused:
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", members.brokers["b"].port))
    assert f"the primary is {members.brokers['a'].address}" in repr(refused.value)


@pytest.mark.parametrize("members", ["none"], indirect=True)
def test_none_tells_nothing(members: Members) -> None:
    assert told(members.brokers["a"].port) is None


def test_a_broker_alone_tells_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as alone:
        assert told(alone.port) is None
