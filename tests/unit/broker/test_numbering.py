"""Exchanges that number their messages: what a consumer sees."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from qpidd_py.broker.broker import Broker
from tests.support.memory import publish_octets
from tests.unit.broker.numbered import HEADER, exchange, got, last, link, plain, publish, queue, site
from tests.unit.broker.peer import Replicated

Confirm, Exchange, Tx = commands.Confirm, commands.Exchange, commands.Tx


# ---------------------------------------------------------------- what a consumer sees


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-consistent-hash"])
def test_each_message_gets_the_next_number(kind: str) -> None:
    peer = site()
    exchange(peer, kind=kind)
    queue(peer, key="1" if kind == "x-consistent-hash" else "k")
    publish(peer, b"a", b"b", b"c")
    assert got(peer) == [(b"a", 1), (b"b", 2), (b"c", 3)]


def test_a_message_that_no_queue_takes_leaves_a_gap() -> None:
    peer = site()
    exchange(peer)
    queue(peer, key="mine.#")
    publish(peer, b"a", key="mine")
    publish(peer, b"b", b"c", key="other")
    publish(peer, b"d", key="mine.too")
    assert got(peer) == [(b"a", 1), (b"d", 4)]


def test_all_queues_get_one_number_and_other_exchanges_none() -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    queue(peer, "p")
    queue(peer, "p", "amq.topic", "#")
    publish(peer, b"a")
    publish(peer, b"b", to="amq.topic")
    publish(peer, b"c")
    assert got(peer) == [(b"a", 1), (b"c", 2)]
    assert got(peer, "p") == [(b"a", 1), (b"b", None), (b"c", 2)]


def test_off_is_off() -> None:
    peer = site()
    plain(peer, "x", arguments={HEADER: 0})
    queue(peer)
    publish(peer, b"a", headers={HEADER: 77})
    assert got(peer) == [(b"a", 77)]


def test_two_publishers_share_the_numbers() -> None:
    broker = Broker()
    peer, other = site(broker), site(broker)
    exchange(peer)
    queue(peer)
    for _ in range(50):
        publish(peer, b"a")
        publish(other, b"b")
    assert [number for _, number in got(peer)] == list(range(1, 101))


def test_a_hundred_thousand() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer, arguments={"x-max-length": 3})
    for _ in range(1000):
        peer.feed(publish_octets(b"m", "k", "x") * 100)
        broker.advance()
    assert got(peer) == [(b"m", 99_998), (b"m", 99_999), (b"m", 100_000)]
    assert len(broker.configurations.snapshot()) == 5  # numbers, exchange, queue, binding, the last number
    assert last(broker.backup()) == 100_000


# ---------------------------------------------------------------- several exchanges


def test_a_queue_gets_the_number_of_the_last_exchange_on_its_way() -> None:
    peer = site()
    exchange(peer, "a", "fanout")
    exchange(peer, "b", "fanout")
    plain(peer, "c")
    link(peer, "a", "b")
    link(peer, "b", "c")
    for name in "abc":
        queue(peer, f"q{name}", name)
    publish(peer, b"1", to="b")
    publish(peer, b"2", to="a")
    publish(peer, b"3", to="c")
    assert got(peer, "qa") == [(b"2", 1)]
    assert got(peer, "qb") == [(b"1", 1), (b"2", 2)]
    assert got(peer, "qc") == [(b"1", 1), (b"2", 2), (b"3", None)]


def test_a_circle_of_exchanges_counts_once() -> None:
    peer = site()
    exchange(peer, "a", "fanout")
    exchange(peer, "b", "fanout")
    link(peer, "a", "b")
    link(peer, "b", "a")
    queue(peer, "qa", "a")
    queue(peer, "qb", "b")
    publish(peer, b"1", b"2", to="a")
    assert got(peer, "qa") == got(peer, "qb") == [(b"1", 1), (b"2", 2)]


def test_routes_to_the_same_queues_by_other_exchanges_are_not_one() -> None:
    peer = site()
    exchange(peer, "a", "direct")
    exchange(peer, "b", "fanout")
    link(peer, "a", "b", "k")
    link(peer, "a", "b", "l")
    queue(peer, "q", "a", "k")
    queue(peer, "q", "b")
    publish(peer, b"0", to="b")
    publish(peer, b"1", to="a", key="k")
    publish(peer, b"2", to="a", key="l")
    assert got(peer) == [(b"0", 1), (b"1", 1), (b"2", 3)]


def test_copies_count_once() -> None:
    peer = site()
    exchange(peer, kind="direct")
    queue(peer, "q", key="k")
    queue(peer, "p", key="l")
    publish(peer, b"m", headers={"CC": ["l", "k", "none"]})
    publish(peer, b"n", headers={"BCC": ["l"]})
    assert got(peer) == got(peer, "p") == [(b"m", 1), (b"n", 2)]


def test_an_alternate_exchange_gets_what_is_counted() -> None:
    peer = site()
    exchange(peer, "alt", "fanout")
    exchange(peer, arguments={"alternate-exchange": "alt"})
    queue(peer, "left", "alt")
    publish(peer, b"m", b"n")
    assert got(peer, "left") == [(b"m", 1), (b"n", 2)]
    assert last(peer.broker) == 2


def test_dead_letters_get_numbers() -> None:
    peer = site()
    exchange(peer)
    exchange(peer, "dead", "fanout")
    queue(peer, arguments={"x-dead-letter-exchange": "dead", "x-max-length": 1})
    queue(peer, "d", "dead")
    publish(peer, b"direct", to="dead")
    publish(peer, b"1", b"2", b"3")
    assert got(peer) == [(b"3", 3)]
    assert got(peer, "d") == [(b"direct", 1), (b"1", 2), (b"2", 3)]


def test_dead_letters_by_another_exchange_keep_theirs() -> None:
    peer = site()
    exchange(peer)
    plain(peer, "dead")
    queue(peer, arguments={"x-dead-letter-exchange": "dead", "x-max-length": 1})
    queue(peer, "d", "dead")
    publish(peer, b"1", b"2")
    assert got(peer, "d") == [(b"1", 1)]


def test_dead_letters_of_no_queue_are_counted() -> None:
    peer = site()
    exchange(peer, "dead", "fanout")
    queue(peer, source="", arguments={"x-dead-letter-exchange": "dead", "x-max-length": 1})
    publish(peer, b"1", b"2", b"3", to="", key="q")
    assert last(peer.broker, "dead") == 2


def test_a_message_that_waits_is_counted_when_it_is_due() -> None:
    broker = Broker()
    peer = site(broker)
    broker.engine.now = 1_800_000_000_000
    exchange(peer, kind="x-delayed-message", arguments={"x-delayed-type": "topic"})
    queue(peer)
    publish(peer, b"later", headers={"x-delay": 50})
    publish(peer, b"now")
    assert last(broker) == 1
    broker.engine.now += 51
    broker.engine.expire_due()
    assert got(peer) == [(b"now", 1), (b"later", 2)]


def test_moved_messages_are_counted() -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    queue(peer, "from", "")
    publish(peer, b"1", b"2", to="", key="from")
    assert peer.broker.vhost.move_messages(None, "from", 9, "", "x") == 2
    assert got(peer) == [(b"1", 1), (b"2", 2)]


# ---------------------------------------------------------------- refused, sent again, transactions


def test_what_a_full_queue_refuses_is_counted() -> None:
    peer = site()
    exchange(peer)
    queue(peer, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    peer.call(1, Confirm.Select())
    publish(peer, b"1", b"2")
    assert got(peer) == [(b"1", 1)]
    publish(peer, b"3")
    assert got(peer) == [(b"3", 3)]


def test_a_duplicate_is_not_counted() -> None:
    peer = site()
    exchange(peer)
    queue(peer, arguments={"x-message-deduplication": True})
    publish(peer, b"1", message_id="1")
    publish(peer, b"1", message_id="1")
    publish(peer, b"2", message_id="2")
    assert got(peer) == [(b"1", 1), (b"2", 2)]


def test_a_duplicate_of_one_queue_is_new_to_another() -> None:
    peer = site()
    exchange(peer)
    queue(peer, arguments={"x-message-deduplication": True})
    queue(peer, "p")
    publish(peer, b"1", message_id="1")
    publish(peer, b"1", message_id="1")
    assert (got(peer), got(peer, "p")) == ([(b"1", 1)], [(b"1", 1), (b"1", 2)])


def test_a_transaction_is_counted_at_its_commit() -> None:
    peer = site()
    other = site(peer.broker)
    exchange(peer, "a", "fanout")
    exchange(peer, "b", "fanout")
    link(peer, "a", "b")
    queue(peer, "qa", "a")
    queue(peer, "qb", "b")
    peer.call(1, Tx.Select())
    for _ in range(300):
        peer.publish(b"x" * 1000, "k", "a")
    peer.send(1, Tx.Rollback())
    for body in (b"t", b"u"):
        peer.publish(body, "k", "a")
    peer.frames()
    publish(other, b"first", to="a")
    peer.send(1, Tx.Commit())
    peer.frames()
    assert got(peer, "qa") == got(peer, "qb") == [(b"first", 1), (b"t", 2), (b"u", 3)]


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(("first", "second", "same"), [(1, True, True), (True, 1, True), (1, 0, False), (0, 1, False)])
def test_a_redeclaration_compares(first: Any, second: Any, same: bool) -> None:
    peer = site()
    plain(peer, "x", arguments={HEADER: first})
    answer = peer.call(1, Exchange.Declare(exchange="x", exchange_type="fanout", arguments={HEADER: second}))
    assert answer.name == ("Exchange.DeclareOk" if same else "Channel.Close")
    if not same:
        assert "inequivalent arg 'qpid.msg_sequence'" in answer.reply_text


@pytest.mark.parametrize("value", ["1", 2, -1, [1], {"a": 1}])
def test_a_value_of_another_kind_is_refused(value: Any) -> None:
    peer = site()
    answer = peer.call(1, Exchange.Declare(exchange="x", exchange_type="fanout", arguments={HEADER: value}))
    assert (answer.reply_code, "neither 1 nor 0" in answer.reply_text) == (406, True)
