"""Where applications have noticed that this is another broker, stand-alone, in a cluster, and over a fail-over."""

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from tests.interop.raw import method
from tests.support import three_ways
from tests.support.memory import publish_octets
from tests.support.three_ways import WAYS, Client, Site, declaration
from tests.support.wait import wait_for

Basic, Channel, Connection, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Connection,
    commands.Queue,
    commands.Tx,
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with three_ways.alone(tmp_path_factory.mktemp("alone")) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    members = three_ways.cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield members
    finally:
        members.close()


@pytest.fixture(params=WAYS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    brokers = request.getfixturevalue("alone" if request.param == "alone" else "cluster")
    site = Site(request.param, brokers).begin()
    yield site
    site.end()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test and way."""
    return str(request.node.name).replace("[", ".").replace("]", "")


@pytest.fixture
def client(site: Site) -> Client:
    return site.client()


# ---------------------------------------------------------------- transactions

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def test_what_a_full_queue_refuses_refuses_the_whole_transaction(site: Site, client: Client, queue: str) -> None:
    other = f"{queue}.other"
    client.declare(queue, arguments=FULL)
    client.declare(other)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"a", other)
    client.publish(b"b", queue)
    client.publish(b"c", queue)
    client.send(method(1, Tx.Commit()))
    assert f"queue '{queue}' is full" in client.expect_channel_close(406, 90, 20)
    client = site.middle()
    assert (client.count(queue), client.count(other)) == (0, 0)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"a", other)
    client.publish(b"b", queue)
    client.call(1, Tx.Commit(), Tx.CommitOk)
    assert (client.bodies(queue), client.bodies(other)) == ([b"b"], [b"a"])


# ---------------------------------------------------------------- the end of a connection

CLOSE = method(0, Connection.Close(200, "bye", 0, 0))


def test_close_behind_answers_that_wait(site: Site, client: Client, queue: str) -> None:
    client.send(declaration(queue), publish_octets(b"1", queue), declaration(queue), publish_octets(b"2", queue), CLOSE)
    for answer in (Queue.DeclareOk, Queue.DeclareOk, Connection.CloseOk):
        client.expect(answer)
    client = site.client()
    assert client.count(queue) == 2  # an answer that is safe, and so is what came before
    client = site.middle()
    assert client.bodies(queue) == [b"1", b"2"]


def test_the_end_of_the_stream_behind_answers_that_wait(site: Site, client: Client, queue: str) -> None:
    client.send(declaration(queue), publish_octets(b"1", queue))
    client.close()
    client = site.client()
    wait_for(lambda: client.declare(queue).message_count == 1)
    client = site.middle()
    assert client.bodies(queue) == [b"1"]
