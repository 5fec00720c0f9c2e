"""Limits of users and of the virtual host: who is refused, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.quotas import USER_LIMITS, VHOST_LIMITS, check_limits
from qpidd_py.broker.settings import Key
from tests.unit.broker.peer import Peer
from tests.unit.broker.test_permissions import Realm

Channel, Connection, Queue = commands.Channel, commands.Connection, commands.Queue
ADMIN: Any = {"qpid.ha-admin": True}


def limited(broker: Broker, user: str = "", **limits: int) -> None:
    """`max_channels` for max-channels."""
    key = Key(USER_LIMITS, "", user) if user else Key(VHOST_LIMITS, "/", "limits")
    broker.vhost.configuration.settings.put(key, {name.replace("_", "-"): most for name, most in limits.items()})


def entered(broker: Broker, user: str = "guest", **properties: bool) -> Peer | None:
    """None for one that was refused."""
    peer = Peer(broker, opened=False, user=user)
    try:
        peer.handshake(0, properties)
    except ValueError:
        return None
    return peer if peer.connection.opened else None


@pytest.mark.parametrize(("most", "number"), [(0, 0), (1, 1), (2, 2), (-1, 3), (-7, 3)])
def test_connections_of_a_user(most: int, number: int) -> None:
    broker = Broker()
    limited(broker, "guest", max_connections=most)
    peers = [peer for _ in range(3) if (peer := entered(broker))]
    assert len(peers) == number
    for peer in peers:
        peer.connection.closed("lost")
    assert bool(entered(broker)) == bool(number)


def test_the_tools_of_administrators_and_brokers_are_beyond_the_limits_of_users() -> None:
    """Who has set a limit that is too low has to be able to take it back."""
    broker = Broker()
    limited(broker, "guest", max_connections=0, max_channels=0)
    assert not entered(broker)
    tool = entered(broker, **ADMIN)
    assert tool
    tool.open_channel(1)
    broker.couriers.add("guest")
    assert entered(broker)


def test_where_brokers_have_a_user_only_that_one_and_administrators_are_beyond_them() -> None:
    """Who may do everything does not administer there, and could not take a limit back."""
    broker = Broker()
    broker.couriers.add("ha")
    limited(broker, "guest", max_connections=0)
    assert not entered(broker, **ADMIN)
    limited(broker, "ha", max_connections=0)
    assert entered(broker, "ha")


def test_who_says_that_he_administers_counts_for_his_user() -> None:
    realm = Realm()
    realm.allow(".*", ".*", ".*")
    realm.ask("limit.set", user="anna", limits={"max-connections": 1})
    for tags, number in (([], 1), (["administrator"], 3)):
        realm.ask("user.put", user="anna", tags=tags)
        peers = [peer for _ in range(3) if (peer := entered(realm.broker, "anna", **ADMIN))]
        assert len(peers) == number
        for peer in peers:
            peer.connection.closed("lost")


def test_connections_of_the_host_leave_room_for_administrators() -> None:
    broker = Broker()
    limited(broker, max_connections=1)
    assert entered(broker) and not entered(broker) and entered(broker, **ADMIN)


def test_channels_of_a_user_on_all_connections() -> None:
    broker = Broker()
    limited(broker, "guest", max_channels=2)
    one, two = entered(broker), entered(broker)
    assert one and two
    one.open_channel(1)
    two.open_channel(1)
    two.send(1, Channel.Close(200, "", 0, 0))
    two.frames()
    two.open_channel(5)
    one.connection.closed("lost")
    two.open_channel(6)
    two.send(7, Channel.Open())
    (close,) = two.frames()
    assert (close.name, close.reply_code) == ("Connection.Close", 530)
    assert not broker.connection_count._channels


def test_a_channel_that_fails_counts_until_its_end() -> None:
    broker = Broker()
    limited(broker, "guest", max_channels=1)
    peer = entered(broker)
    assert peer
    for _ in range(3):
        peer.open_channel(1)
        peer.send(1, Queue.Declare(queue="none", passive=True))
        peer.frames()
        assert broker.connection_count._channels["guest"] == 1
        peer.send(1, Channel.CloseOk())
        assert not broker.connection_count._channels


def test_queues_of_the_host() -> None:
    broker = Broker()
    limited(broker, max_queues=1)
    peer = Peer(broker)
    peer.open_channel()
    assert peer.call(1, Queue.Declare(queue="q")).name == "Queue.DeclareOk"
    assert peer.call(1, Queue.Declare(queue="q")).name == "Queue.DeclareOk"
    assert peer.call(1, Queue.Declare(queue="r")).reply_code == 406


@pytest.mark.parametrize(
    "value", [{"max-queues": 1}, {"max-channels": "1"}, {"max-channels": True}, {"max-channels": 1 << 60}]
)
def test_values_that_are_none(value: Any) -> None:
    with pytest.raises(ValueError, match="max-"):
        check_limits(USER_LIMITS, value)
