"""Exchanges that number their messages: what a consumer sees, and what another broker has of it."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands
from pamqp.header import ContentHeader

from qpidd_py.amqp.codec import encode_method
from qpidd_py.amqp.fields import encode_table
from qpidd_py.amqp.frames import content_frames
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.numbering import MOST, NUMBER, Numbers
from qpidd_py.broker.snapshot import Records
from qpidd_py.errors import LinkError
from tests.unit.broker.peer import Peer, Replicated

Basic, Confirm, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Confirm,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)
NUMBERED = {"qpid.msg_sequence": 1}
HEADER = "qpid.msg_sequence"


def site(broker: Any = None) -> Peer:
    peer = Peer(Broker() if broker is None else broker)
    peer.open_channel()
    return peer


def exchange(peer: Peer, name: str = "x", kind: str = "topic", **arguments: Any) -> None:
    peer.send(1, Exchange.Declare(exchange=name, exchange_type=kind, arguments={**NUMBERED, **arguments}))
    done(peer)


def plain(peer: Peer, name: str, kind: str = "fanout", **arguments: Any) -> None:
    peer.send(1, Exchange.Declare(exchange=name, exchange_type=kind, arguments=arguments))
    done(peer)


def queue(peer: Peer, name: str = "q", source: str = "x", key: str = "#", **arguments: Any) -> None:
    peer.send(1, Queue.Declare(queue=name, arguments=arguments))
    if source:
        peer.send(1, Queue.Bind(queue=name, exchange=source, routing_key=key))
    done(peer)


def link(peer: Peer, source: str, destination: str, key: str = "#") -> None:
    peer.send(1, Exchange.Bind(source=source, destination=destination, routing_key=key))
    done(peer)


def done(peer: Peer) -> list[Any]:
    if isinstance(peer.broker, Replicated):
        for _ in range(4):
            peer.broker.advance()
    return list(peer.frames())


def publish(peer: Peer, *bodies: bytes, to: str = "x", key: str = "k", **properties: Any) -> None:
    for body in bodies:
        peer.publish(body, key, to, **properties)
    done(peer)


def got(peer: Peer, name: str = "q") -> list[tuple[bytes, Any]]:
    """(body, number) of all that is ready."""
    found: list[tuple[bytes, Any]] = []
    while True:
        peer.send(1, Basic.Get(queue=name, no_ack=True))
        answer = peer.frames()
        if isinstance(answer[0], Basic.GetEmpty):
            return found
        found.append((answer[2].value, (answer[1].properties.headers or {}).get(HEADER)))


def last(broker: Broker, name: str = "x") -> int:
    numbers = broker.vhost.exchanges[name].numbers
    assert numbers is not None
    return numbers.last


def promoted(backup: Broker) -> Peer:
    backup.engine.passive = False
    backup.engine.begin_epoch(backup.engine.epoch + 1)
    backup.vhost.on_promoted()
    return site(backup)


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
    plain(peer, "x", **{HEADER: 0})
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
    queue(peer, **{"x-max-length": 3})
    for _ in range(1000):
        peer.feed(b"".join([octets(b"m", encode_table({}))] * 100))
        broker.advance()
    assert got(peer) == [(b"m", 99_998), (b"m", 99_999), (b"m", 100_000)]
    assert len(broker.vhost.configuration.snapshot()) == 5  # numbers, exchange, queue, binding, the last number
    assert last(broker.backup()) == 100_000


# ---------------------------------------------------------------- the header


def octets(body: bytes, table: bytes, flags: int = 0x2000, before: bytes = b"", after: bytes = b"") -> bytes:
    """A publish with these octets as the table of its headers."""
    method = encode_method(1, Basic.Publish(exchange="x", routing_key="k"))
    header = struct.pack(">HHQH", 60, 0, len(body), flags) + before + table + after
    return method + content_frames(1, header, body, 131072)


def table(*fields: bytes) -> bytes:
    inside = b"".join(fields)
    return struct.pack(">I", len(inside)) + inside


def properties(peer: Peer) -> Any:
    peer.send(1, Basic.Get(queue="q", no_ack=True))
    _, header, _ = peer.frames()
    assert isinstance(header, ContentHeader)
    return header.properties


FORGED = b"\x11qpid.msg_sequencel" + b"\0" * 7 + b"\x63"


@pytest.mark.parametrize(
    "forged",
    [
        table(FORGED),
        table(b"\x11qpid.msg_sequenceS\0\0\0\x0299", b"\x01aI\0\0\0\x05"),
        table(b"\x01aI\0\0\0\x05", FORGED, FORGED, b"\x11qpid.msg_sequenceV"),
        table(*[FORGED] * 4000),
    ],
)
def test_a_client_cannot_give_a_number(forged: bytes) -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    peer.feed(octets(b"m", forged))
    peer.frames()
    (message,) = peer.broker.vhost.queues["q"].core.peek(1)
    assert bytes(message[4]).count(b"qpid.msg_sequence") == 1
    found = properties(peer).headers
    assert found.pop(HEADER) == 1 and found in ({}, {"a": 5})


def test_other_properties_stay() -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    peer.publish(
        b"m",
        "k",
        "x",
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": [1, {"b": "c"}], "qpid.msg_sequences": 5},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        expiration="60000",
        message_id="i",
        user_id="guest",
        app_id="p",
    )
    found = properties(peer)
    assert found.headers == {"a": [1, {"b": "c"}], "qpid.msg_sequences": 5, HEADER: 1}
    assert (found.content_type, found.content_encoding, found.delivery_mode) == ("text/plain", "utf-8", 2)
    assert (found.priority, found.correlation_id, found.expiration) == (3, "c", "60000")
    assert (found.message_id, found.user_id, found.app_id) == ("i", "guest", "p")


@pytest.mark.parametrize("flags", [0, 0x8000, 0xC000, 0x4000, 0x1000])
def test_a_message_without_headers_gets_them(flags: int) -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    before = b"\x01t" * (bool(flags & 0x8000) + bool(flags & 0x4000))
    peer.feed(octets(b"m", b"", flags, before, b"\x02" if flags & 0x1000 else b""))
    assert properties(peer).headers == {HEADER: 1}


@pytest.mark.parametrize("left", [26, 27, 28])
def test_a_header_that_would_not_fit_a_frame_goes_without(left: int) -> None:
    """The number is used up: the gap is seen.  What the client says is taken out anyhow."""
    peer = site()
    exchange(peer)
    queue(peer)
    most = 131072 - 8 - 14 - 4
    text = most - 8 - left
    peer.feed(octets(b"m", table(b"\x02ttS" + struct.pack(">I", text) + b"t" * text)))
    peer.feed(octets(b"n", table(b"\x02ttS" + struct.pack(">I", most - 8 - 28) + b"t" * (most - 36), FORGED)))
    peer.publish(b"o", "k", "x")
    assert got(peer) == [(b"m", 1 if left >= 27 else None), (b"n", 2), (b"o", 3)]


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
    exchange(peer, **{"alternate-exchange": "alt"})
    queue(peer, "left", "alt")
    publish(peer, b"m", b"n")
    assert got(peer, "left") == [(b"m", 1), (b"n", 2)]
    assert last(peer.broker) == 2


def test_dead_letters_get_numbers() -> None:
    peer = site()
    exchange(peer)
    exchange(peer, "dead", "fanout")
    queue(peer, **{"x-dead-letter-exchange": "dead", "x-max-length": 1})
    queue(peer, "d", "dead")
    publish(peer, b"direct", to="dead")
    publish(peer, b"1", b"2", b"3")
    assert got(peer) == [(b"3", 3)]
    assert got(peer, "d") == [(b"direct", 1), (b"1", 2), (b"2", 3)]


def test_dead_letters_by_another_exchange_keep_theirs() -> None:
    peer = site()
    exchange(peer)
    plain(peer, "dead")
    queue(peer, **{"x-dead-letter-exchange": "dead", "x-max-length": 1})
    queue(peer, "d", "dead")
    publish(peer, b"1", b"2")
    assert got(peer, "d") == [(b"1", 1)]


def test_dead_letters_of_no_queue_are_counted() -> None:
    peer = site()
    exchange(peer, "dead", "fanout")
    queue(peer, source="", **{"x-dead-letter-exchange": "dead", "x-max-length": 1})
    publish(peer, b"1", b"2", b"3", to="", key="q")
    assert last(peer.broker, "dead") == 2


def test_a_message_that_waits_is_counted_when_it_is_due() -> None:
    broker = Broker()
    peer = site(broker)
    broker.engine.now = 1_800_000_000_000
    exchange(peer, kind="x-delayed-message", **{"x-delayed-type": "topic"})
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
    queue(peer, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    peer.call(1, Confirm.Select())
    publish(peer, b"1", b"2")
    assert got(peer) == [(b"1", 1)]
    publish(peer, b"3")
    assert got(peer) == [(b"3", 3)]


def test_a_duplicate_is_not_counted() -> None:
    peer = site()
    exchange(peer)
    queue(peer, **{"x-message-deduplication": True})
    publish(peer, b"1", message_id="1")
    publish(peer, b"1", message_id="1")
    publish(peer, b"2", message_id="2")
    assert got(peer) == [(b"1", 1), (b"2", 2)]


def test_a_duplicate_of_one_queue_is_new_to_another() -> None:
    peer = site()
    exchange(peer)
    queue(peer, **{"x-message-deduplication": True})
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


# ---------------------------------------------------------------- other brokers


def test_a_confirm_waits_for_the_number_though_a_consumer_has_the_message() -> None:
    """The consumer has number 1.  If the new primary has neither message nor number, it gives number 1 again: the
    publisher must not have been told that its message is safe."""
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer)
    peer.call(1, Confirm.Select())
    peer.send(1, Basic.Consume(queue="q", consumer_tag="c"))
    done(peer)
    peer.publish(b"m", "k", "x")
    assert isinstance(peer.frames()[0], Basic.Deliver)
    peer.send(1, Basic.Ack(delivery_tag=1))
    broker.engine.flush()
    broker.engine.tick()
    broker.engine.tick()
    assert peer.frames() == []
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Basic.Ack"]


@pytest.mark.parametrize("key", ["k", "other"])
def test_a_message_for_no_queue_is_confirmed_with_its_number(key: str) -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer, key="k", **{"qpid.replicate": "none"})
    peer.call(1, Confirm.Select())
    peer.publish(b"m", key, "x")
    assert peer.frames() == []
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Basic.Ack"]
    assert last(broker.backup()) == 1


def test_a_new_primary_goes_on() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer)
    publish(peer, b"a", b"b")
    publish(peer, b"none", to="x", key="k", headers={})
    peer = promoted(broker.backup())
    publish(peer, b"c")
    assert got(peer) == [(b"a", 1), (b"b", 2), (b"none", 3), (b"c", 4)]


def test_each_prefix_of_the_log_that_has_a_message_has_its_number() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer, "a", "fanout")
    exchange(peer, "b", "fanout")
    link(peer, "a", "b")
    queue(peer, "qa", "a")
    queue(peer, "qb", "b")
    for size in (10, 70_000, 200_000, 10, 1_000_000, 300_000, 10):
        peer.publish(b"x" * size, "k", "a")
    broker.engine.flush()
    backup = Broker()
    backup.passive = True
    for batch in broker.batches:
        backup.engine.apply(batch)
        counts = []
        for name in "ab":
            if f"q{name}" in backup.vhost.queues:
                counts.append(backup.vhost.queues[f"q{name}"].core.ready)
                assert last(backup, name) == counts[-1]
        assert len(set(counts)) <= 1
    assert last(backup, "a") == 7


def test_a_snapshot_has_the_last_number() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, *[b"m"] * 5)
    fresh = Broker()
    fresh.vhost.configuration.adopt(broker.vhost.configuration.snapshot())
    assert last(fresh) == 5
    publish(peer, b"m")
    fresh.vhost.configuration.adopt(broker.vhost.configuration.snapshot())
    assert last(fresh) == 6
    assert fresh.vhost.configuration.snapshot() == broker.vhost.configuration.snapshot()


def test_a_deposed_primary_takes_the_numbers_of_the_new_one() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, b"m")
    new = broker.backup()
    publish(peer, *[b"alone"] * 5)
    peer = promoted(new)
    publish(peer, b"m")
    broker.vhost.configuration.adopt(new.vhost.configuration.snapshot())
    assert last(broker) == 2


def test_one_that_has_given_none_resets_a_deposed_primary() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    new = broker.backup()
    publish(peer, b"alone")
    broker.vhost.configuration.adopt(new.vhost.configuration.snapshot())
    assert last(broker) == 0


def test_an_exchange_that_is_made_again_begins_again() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer)
    publish(peer, b"a", b"b")
    peer.send(1, Exchange.Delete(exchange="x"))
    done(peer)
    exchange(peer)
    queue(peer)
    publish(peer, b"c")
    assert got(peer) == [(b"a", 1), (b"b", 2), (b"c", 1)]
    assert last(broker.backup()) == 1
    assert len(broker.vhost.configuration.snapshot()) == 5


def test_an_exchange_that_is_gone_leaves_no_record() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, b"a")
    peer.send(1, Exchange.Delete(exchange="x"))
    done(peer)
    assert len(broker.vhost.configuration.snapshot()) == 1


def test_an_exchange_of_one_broker_only_counts_by_itself() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer, **{"qpid.replicate": "none"})
    queue(peer, **{"qpid.replicate": "none"})
    before = broker.engine.position
    publish(peer, b"a", b"b")
    assert got(peer) == [(b"a", 1), (b"b", 2)] and broker.engine.position == before


def test_a_backup_gives_no_numbers_of_its_primary() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, b"a")
    backup = broker.backup()
    peer = Peer(backup)
    peer.open_channel()
    exchange(peer, "own", "fanout", **{"qpid.replicate": "none"})
    queue(peer, source="own", **{"qpid.replicate": "none"})
    publish(peer, b"b", headers={HEADER: 9}, to="own")
    publish(peer, b"c")
    assert got(peer) == [(b"b", 1)]
    assert (last(backup), last(backup, "own")) == (1, 1)


@pytest.mark.parametrize("value", [0, -1, MOST + 1, True, "5", None])
def test_what_is_no_number_in_the_log(value: Any) -> None:
    backup = Broker()
    payload = encode_table({"op": NUMBER, "name": "x", "last": value}) if value != MOST + 1 else b"\0\0\0\0"
    with pytest.raises(LinkError):
        backup.vhost.configuration.apply(5, payload)


def test_the_operation_is_a_table() -> None:
    numbers = Numbers("x", Records(), True)
    numbers.note(7, 1, b"")
    backup = Broker()
    backup.vhost.configuration.apply(5, numbers.operation())  # of an exchange that is gone: nothing
    assert backup.vhost.configuration.snapshot()[1:] == []


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(("first", "second", "same"), [(1, True, True), (True, 1, True), (1, 0, False), (0, 1, False)])
def test_a_redeclaration_compares(first: Any, second: Any, same: bool) -> None:
    peer = site()
    plain(peer, "x", **{HEADER: first})
    answer = peer.call(1, Exchange.Declare(exchange="x", exchange_type="fanout", arguments={HEADER: second}))
    assert answer.name == ("Exchange.DeclareOk" if same else "Channel.Close")
    if not same:
        assert "inequivalent arg 'qpid.msg_sequence'" in answer.reply_text


@pytest.mark.parametrize("value", ["1", 2, -1, [1], {"a": 1}])
def test_a_value_of_another_kind_is_refused(value: Any) -> None:
    peer = site()
    answer = peer.call(1, Exchange.Declare(exchange="x", exchange_type="fanout", arguments={HEADER: value}))
    assert (answer.reply_code, "neither 1 nor 0" in answer.reply_text) == (406, True)
