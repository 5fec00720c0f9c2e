"""`user-id` names the user who is logged in."""

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from tests.unit.broker.peer import Peer

EVERYTHING = {
    "content_type": "t",
    "content_encoding": "e",
    "headers": {"a": 1},
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "100000",
    "message_id": "m",
    "message_type": "y",
    "app_id": "a",
}


@pytest.mark.parametrize("others", [{}, EVERYTHING, {"headers": {"x" * 100: "y" * 1000}}])
@pytest.mark.parametrize("user", ["anna", "gues", "guestx", "", "x" * 255])
def test_another_name_is_refused(user: str, others: dict) -> None:
    peer = Peer(Broker())
    peer.open_channel()
    peer.call(1, commands.Queue.Declare(queue="q"))
    peer.publish(b"mine", "q", user_id="guest", **others)
    assert peer.frames() == []
    peer.publish(b"theirs", "q", user_id=user or "\x00", **others)
    (close,) = peer.frames()
    assert isinstance(close, commands.Channel.Close) and close.reply_code == 406 and "user-id" in close.reply_text
    assert [message[5] for message in peer.broker.vhost.queues["q"].core.peek(9)] == [b"mine"]


@pytest.mark.parametrize("user", ["", "a", "anna"])
def test_short_names(user: str) -> None:
    peer = Peer(Broker())
    peer.connection.core.user = user.encode()
    peer.open_channel()
    peer.call(1, commands.Queue.Declare(queue="q"))
    for others in ({}, {"priority": 1}, EVERYTHING):
        peer.publish(b"mine", "q", user_id=user, **others)
    assert peer.frames() == [] and peer.broker.vhost.queues["q"].core.ready == 3


def test_a_broker_may_restore_messages_of_others() -> None:
    broker = Broker()
    broker.couriers.add("guest")
    peer = Peer(broker)
    peer.open_channel()
    peer.call(1, commands.Queue.Declare(queue="q"))
    peer.publish(b"theirs", "q", user_id="anna")
    assert peer.frames() == []
    assert broker.vhost.queues["q"].core.ready == 1


def test_a_header_that_ends_before_its_user_id_is_refused() -> None:
    peer = Peer(Broker())
    peer.open_channel()
    peer.call(1, commands.Queue.Declare(queue="q"))
    peer.send(1, commands.Basic.Publish(routing_key="q"))
    for flags in (b"\x00\x10", b"\x20\x10", b"\xff\xf0"):
        header = b"\0\x3c\0\0" + (0).to_bytes(8, "big") + flags + b"\xff\xff\xff\xff"
        fresh = Peer(peer.broker)
        fresh.open_channel()
        fresh.send(1, commands.Basic.Publish(routing_key="q"))
        fresh.feed(b"\x02\0\x01" + len(header).to_bytes(4, "big") + header + b"\xce")
        (close,) = fresh.frames()
        assert close.reply_code in (406, 501)
