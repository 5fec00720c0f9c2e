"""`x-message-deduplication` of exchanges: what is published again does not pass twice."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from qpidd_py.broker.broker import Broker
from tests.unit.broker.numbered import done, got, link, plain, promoted, publish, queue, site
from tests.unit.broker.peer import Peer, Replicated

Basic, Confirm, Exchange, Queue, Tx = commands.Basic, commands.Confirm, commands.Exchange, commands.Queue, commands.Tx
ONCE = {"x-message-deduplication": True}
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def once(peer: Peer, name: str = "x", more: Any = None) -> None:
    plain(peer, name, "fanout", {**ONCE, **(more or {})})


def send(peer: Peer, body: bytes, id: str, to: str = "x", key: str = "k") -> list[str]:
    """What the broker answers."""
    peer.publish(body, key, to, message_id=id)
    return [frame.name for frame in done(peer)]


def bodies(peer: Peer, name: str = "q") -> list[bytes]:
    return [body for body, _ in got(peer, name)]


@pytest.fixture(params=[Broker, Replicated], ids=["local", "replicated"])
def peer(request: Any) -> Peer:
    peer = site(request.param())
    peer.call(1, Confirm.Select())
    return peer


def test_it_passes_once_and_is_confirmed_twice(peer: Peer) -> None:
    once(peer)
    queue(peer)
    queue(peer, "r")
    assert [send(peer, b"a", "1"), send(peer, b"a", "1"), send(peer, b"b", "2")] == [["Basic.Ack"]] * 3
    assert (bodies(peer), bodies(peer, "r")) == ([b"a", b"b"], [b"a", b"b"])
    assert send(peer, b"a", "1") == ["Basic.Ack"]
    assert bodies(peer) == []


def test_messages_without_a_key_pass(peer: Peer) -> None:
    once(peer)
    queue(peer)
    publish(peer, b"a", b"a")
    assert bodies(peer) == [b"a", b"a"]


def test_the_key_of_a_header_and_a_window(peer: Peer) -> None:
    once(peer, more={"x-deduplication-key": "n", "x-deduplication-window": 2})
    queue(peer)
    for n in (1, 2, 1, 3, 1):
        publish(peer, b"%d" % n, headers={"n": n})
    assert bodies(peer) == [b"1", b"2", b"3", b"1"]


def test_a_queue_that_is_bound_later_does_not_get_it_again(peer: Peer) -> None:
    once(peer)
    queue(peer)
    send(peer, b"a", "1")
    queue(peer, "late")
    send(peer, b"a", "1")
    assert bodies(peer, "late") == []


def test_a_message_that_no_queue_got_is_not_remembered(peer: Peer) -> None:
    once(peer)
    assert send(peer, b"a", "1") == ["Basic.Ack"]
    queue(peer)
    send(peer, b"a", "1")
    assert bodies(peer) == [b"a"]


def test_a_message_that_a_full_queue_refused_is_not_remembered(peer: Peer) -> None:
    """The publisher sends it again; the queue that took it gets it twice, none misses it."""
    once(peer)
    queue(peer, "full", arguments=FULL)
    send(peer, b"a", "1")
    queue(peer)
    assert send(peer, b"b", "2") == ["Basic.Nack"]
    bodies(peer, "full")
    assert send(peer, b"b", "2") == ["Basic.Ack"]
    assert (bodies(peer, "full"), bodies(peer)) == ([b"b"], [b"b", b"b"])


def test_a_queue_that_is_not_behind_it_gets_what_is_published_to_it(peer: Peer) -> None:
    once(peer)
    plain(peer, "y")
    link(peer, "y", "x")
    queue(peer, "behind", "x")
    queue(peer, "q", "y")
    send(peer, b"a", "1", to="y")
    send(peer, b"a", "1", to="y")
    assert (bodies(peer), bodies(peer, "behind")) == ([b"a", b"a"], [b"a"])


def test_one_behind_another(peer: Peer) -> None:
    once(peer)
    once(peer, "y")
    link(peer, "x", "y")
    queue(peer, "q", "y")
    send(peer, b"a", "1")
    send(peer, b"a", "1")
    send(peer, b"a", "1", to="y")
    send(peer, b"b", "2", to="y")
    send(peer, b"b", "2")
    assert bodies(peer) == [b"a", b"b"]


def test_a_transaction_is_remembered_when_it_is_committed(peer: Peer) -> None:
    once(peer)
    queue(peer)
    peer.send(2, commands.Channel.Open())
    done(peer)
    peer.call(2, Tx.Select())
    for end in (Tx.Rollback(), Tx.Commit(), Tx.Commit()):
        peer.publish(b"a", "k", "x", channel=2, message_id="1")
        peer.send(2, end)
        done(peer)
    assert bodies(peer) == [b"a"]


def test_it_keeps_no_messages_and_tells_of_none(peer: Peer) -> None:
    once(peer)
    queue(peer)
    for n in range(5):
        send(peer, b"m", str(n))
    shadow = peer.broker.vhost.exchanges["x"].shadow
    assert shadow is not None
    assert shadow.core.window is not None
    assert (shadow.core.ready, shadow.core.bytes, shadow.core.window.count) == (0, 0, 5)


def test_other_arguments_are_refused_at_a_redeclaration(peer: Peer) -> None:
    once(peer)
    peer.send(1, Exchange.Declare(exchange="x", exchange_type="fanout", arguments={**ONCE, "x-deduplication-key": "k"}))
    (answer,) = done(peer)
    assert (answer.reply_code, "x-deduplication-key" in answer.reply_text) == (406, True)


@pytest.mark.parametrize("arguments", [
    {"x-deduplication-window": 5}, {"x-message-deduplication": "yes"}, {**ONCE, "x-deduplication-window": 0},
])  # fmt: skip
def test_bad_arguments(peer: Peer, arguments: Any) -> None:
    peer.send(1, Exchange.Declare(exchange="x", exchange_type="fanout", arguments=arguments))
    (answer,) = done(peer)
    assert answer.reply_code == 406


def test_an_argument_that_is_off_is_none(peer: Peer) -> None:
    once(peer, more={"qpid.ive": 0})
    queue(peer)
    send(peer, b"a", "1")
    send(peer, b"a", "1")
    assert bodies(peer) == [b"a"]


# ---------------------------------------------------------------- other brokers


def test_a_new_primary_remembers() -> None:
    broker = Replicated()
    peer = site(broker)
    once(peer)
    queue(peer)
    send(peer, b"a", "1")
    peer = promoted(broker.backup())
    send(peer, b"a", "1")
    send(peer, b"b", "2")
    assert bodies(peer) == [b"a", b"b"]


def test_a_duplicate_is_confirmed_when_the_first_is_safe() -> None:
    broker = Replicated()
    peer = site(broker)
    once(peer)
    queue(peer)
    peer.call(1, Confirm.Select())
    for _ in range(2):
        peer.publish(b"a", "k", "x", message_id="1")
    assert peer.frames() == []
    broker.advance()
    acks = [frame for frame in peer.frames() if frame.name == "Basic.Ack"]
    assert acks[-1].delivery_tag == 2
