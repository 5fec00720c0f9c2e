"""How many connections and queues there may be, and who is admitted beyond that."""

from __future__ import annotations

from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import make
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.limits import RESERVED, VISITORS, Limits
from tests.unit.broker.peer import HEADER, Peer, Replicated

Queue = commands.Queue


class Named(Peer):
    """Of a user, at an address."""

    def __init__(self, broker: Broker, user: str = "guest", host: str = "10.0.0.1", **properties: Any):
        super().__init__(broker, opened=False)
        self.connection.peer = f"{host}:4711"
        self.feed(HEADER)
        response = f"\0{user}\0{user}".encode()
        start_ok = make(
            commands.Connection.StartOk,
            client_properties=properties,
            mechanism="PLAIN",
            response=response.decode(),
            locale="en_US",
        )
        self.send(0, start_ok, commands.Connection.TuneOk(0, 0, 0), commands.Connection.Open())
        self.answer = self.frames()[-1]

    @property
    def refusal(self) -> tuple[int, str]:
        return self.answer.reply_code, self.answer.reply_text

    @property
    def opened(self) -> bool:
        return self.connection.opened


def test_more_connections_than_allowed_are_refused_with_a_reason_until_one_ends() -> None:
    broker = Broker(limits=Limits(connections=2))
    first, second = Named(broker), Named(broker)
    assert first.opened and second.opened
    third = Named(broker)
    assert third.refusal == (530, "NOT_ALLOWED - connection refused: max-connections (2) is reached")
    assert broker.alarms == {"connections": "connections: max-connections (2) is reached"}
    third.connection.closed("gone")
    second.connection.closed("gone")
    assert broker.alarms == {}
    assert Named(broker).opened


def test_each_user_and_each_address_has_its_own_limit() -> None:
    broker = Broker(limits=Limits(connections_per_user=1, connections_per_ip=2))
    assert Named(broker, "a", "10.0.0.1").opened
    text = "NOT_ALLOWED - connection refused for user 'a': max-connections-per-user (1) is reached"
    assert Named(broker, "a", "10.0.0.2").refusal == (530, text)
    assert Named(broker, "b", "10.0.0.1").opened
    text = "NOT_ALLOWED - connection refused from 10.0.0.1: max-connections-per-ip (2) is reached"
    assert Named(broker, "c", "10.0.0.1").refusal == (530, text)
    assert Named(broker, "c", "10.0.0.2").opened


def test_administrators_and_links_are_admitted_beyond_the_limit_but_not_without_end() -> None:
    broker = Broker(limits=Limits(connections=1, connections_per_user=1, connections_per_ip=1))
    assert Named(broker).opened
    names = ("qpid.ha-admin", "qpid.ha-backup")
    peers = [Named(broker, "guest", "10.0.0.1", **{names[i % 2]: 1}) for i in range(RESERVED)]
    assert all(peer.opened for peer in peers)
    assert Named(broker, "guest", "10.0.0.1", **{"qpid.ha-admin": 1}).refusal[0] == 530
    peers[0].connection.closed("gone")
    assert Named(broker, "guest", "10.0.0.1", **{"qpid.ha-admin": 1}).opened


def test_a_user_that_says_it_is_a_tool_keeps_no_administrator_and_no_link_out() -> None:
    broker = Broker()
    broker.couriers.add("ha")
    tool: dict[str, Any] = {"qpid.ha-admin": 1}
    peers = [Named(broker, "anna", **tool) for _ in range(RESERVED)]
    assert sum(peer.opened for peer in peers) == VISITORS
    text = f"NOT_ALLOWED - connection refused: administrative connections of users that do not administer ({VISITORS})"
    assert peers[-1].refusal == (530, f"{text} is reached")
    ours = [Named(broker, "ha", **tool) for _ in range(RESERVED - VISITORS)]
    assert all(peer.opened for peer in ours) and not Named(broker, "ha", **tool).opened
    peers[0].connection.closed("gone")
    assert Named(broker, "anna", **tool).opened and not Named(broker, "anna", **tool).opened
    for peer in (*peers, *ours):
        peer.connection.closed("gone")
    assert len(broker.connection_count._visitors) == 1


def test_a_descriptor_of_the_reserve_is_for_administrators() -> None:
    broker = Broker()
    for properties, code in (({}, 506), ({"qpid.ha-admin": 1}, 0)):
        peer = Peer(broker, opened=False)
        peer.connection.scarce = True
        frames = peer.handshake(properties=properties)
        assert getattr(frames[-1], "reply_code", 0) == code


def test_limits_that_are_not_set_keep_no_books_wrong() -> None:
    broker = Broker()
    peers = [Named(broker) for _ in range(3)]
    for peer in peers:
        peer.connection.closed("gone")
    count = broker.connection_count
    assert (count._all, dict(count._by_user), dict(count._by_host)) == (0, {}, {})


def declare(peer: Peer, name: str, **options: Any) -> Any:
    if 1 not in peer.connection.channels:
        peer.open_channel()
    peer.send(1, Queue.Declare(queue=name, **options))
    if isinstance(peer.broker, Replicated):
        peer.broker.advance()
    (answer,) = peer.frames()
    if peer.connection.channels and answer.name == "Channel.Close":
        peer.send(1, commands.Channel.CloseOk())
    return answer


def test_more_queues_than_allowed_are_refused() -> None:
    broker = Broker(limits=Limits(queues=2))
    peer = Named(broker)
    for name in "ab":
        assert declare(peer, name).name == "Queue.DeclareOk"
    answer = declare(peer, "c")
    assert (answer.reply_code, answer.class_id, answer.method_id) == (406, 50, 10)
    assert answer.reply_text == "PRECONDITION_FAILED - cannot declare queue 'c': max-queues (2) is reached"
    assert declare(peer, "a").name == "Queue.DeclareOk", "it is there already"
    peer.send(1, Queue.Delete(queue="a"))
    peer.frames()
    assert declare(peer, "c").name == "Queue.DeclareOk"


@pytest.mark.parametrize("exclusive", [False, True])
def test_each_user_has_a_limit_of_queues_that_a_new_primary_knows(exclusive: bool) -> None:
    broker = Replicated(limits=Limits(queues_per_user=1))
    a, b = Named(broker, "a"), Named(broker, "b")
    assert declare(a, "q", exclusive=exclusive).name == "Queue.DeclareOk"
    answer = declare(a, "more")
    text = "PRECONDITION_FAILED - cannot declare queue 'more' of user 'a': max-queues-per-user (1) is reached"
    assert answer.reply_text == text
    assert declare(b, "more").name == "Queue.DeclareOk"
    backup = broker.backup()
    assert backup.configurations.common.queues_of == ({"b": 1} if exclusive else {"a": 1, "b": 1})
    a.connection.closed("gone")
    assert broker.configurations.common.queues_of["a"] == (0 if exclusive else 1)
