"""Changes of the configuration are carried out while answers to earlier ones wait; the answers keep their order."""

from __future__ import annotations

import pamqp.commands as commands
import pytest
from pamqp.base import Frame

from tests.support.memory import publish_octets
from tests.unit.broker.peer import Peer, Replicated

Basic, Channel, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)
QOS_OK = b"\x00\x00\x00\x04\x00\x3c\x00\x0b\xce"


def opened(broker: Replicated) -> Peer:
    peer = Peer(broker)
    peer.open_channel()
    return peer


def names(peer: Peer) -> list[str]:
    return [frame.name for frame in peer.frames()]


def test_many_declarations_take_one_round() -> None:
    broker = Replicated()
    peer = opened(broker)
    wanted = [f"q{number}" for number in range(60)]
    peer.send(1, *(Queue.Declare(queue=name) for name in wanted))
    assert peer.frames() == [] and set(wanted) <= set(broker.vhost.queues)
    broker.advance()
    assert [frame.queue for frame in peer.frames()] == wanted


def test_how_many_may_wait_is_bounded() -> None:
    broker = Replicated()
    peer = opened(broker)
    wanted = [f"q{number}" for number in range(250)]
    peer.send(1, *(Queue.Declare(queue=name) for name in wanted))
    assert len(broker.vhost.queues) == 100
    found, rounds = [], 0
    while len(found) < 250:
        broker.advance()
        found += [frame.queue for frame in peer.frames()]
        rounds += 1
    assert found == wanted and rounds == 3


def test_nobody_runs_ahead_of_the_backups_by_asking_for_no_answer() -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, *(Queue.Declare(queue=f"q{number}", nowait=True) for number in range(250)), Queue.Declare(queue="q"))
    assert len(broker.vhost.queues) == 100
    for count in (200, 251):
        broker.advance()
        assert len(broker.vhost.queues) == count
    assert peer.frames() == []
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk"]


def changes() -> list[Frame]:
    return [
        Exchange.Declare(exchange="e", exchange_type="fanout", nowait=True),
        Exchange.Declare(exchange="f", exchange_type="fanout", nowait=True),
        Exchange.Bind(destination="f", source="e", nowait=True),
        Exchange.Unbind(destination="f", source="e", nowait=True),
        Exchange.Delete(exchange="f", nowait=True),
        Queue.Declare(queue="q", nowait=True),
        Queue.Bind(queue="q", exchange="e", nowait=True),
        Queue.Purge(queue="q", nowait=True),
        Queue.Delete(queue="q", nowait=True),
    ]


@pytest.mark.parametrize("number", range(len(changes())))
def test_a_commit_behind_a_change_without_an_answer_waits_for_it(number: int) -> None:
    broker = Replicated()
    peer = opened(broker)
    for change in changes()[:number]:
        peer.send(1, change)
        broker.advance()
    peer.send(1, changes()[number], Tx.Select())
    assert peer.frames() == []
    broker.advance()
    assert names(peer) == ["Tx.SelectOk"]


def test_what_waits_behind_an_answer_is_carried_out_in_slices() -> None:
    """The loop calls for turns: the second slice does not wait until the answers of the first are safe."""
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Tx.Select())
    peer.frames()
    peer.send(1, Queue.Declare(queue="q"))
    peer.connection.core.feed(publish_octets(b"body", "q"))
    wanted = [f"q{number}" for number in range(60)]
    peer.send(1, *(Queue.Declare(queue=name) for name in wanted))
    broker.engine.schedule = lambda: None
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk"] and 0 < len(broker.vhost.queues) < 60
    for _ in range(3):
        broker.engine.end_turn()
    assert set(wanted) <= set(broker.vhost.queues)
    broker.advance()
    assert [frame.queue for frame in peer.frames()] == wanted


@pytest.mark.parametrize("clients", [1, 20])
def test_what_waits_on_many_channels_takes_no_longer_turn_than_on_one(clients: int) -> None:
    broker = Replicated()
    peers = [opened(broker) for _ in range(clients)]
    numbers = range(1, 400 // clients + 1)
    for peer in peers:
        for number in numbers[1:]:
            peer.send(number, Channel.Open())
        for number in numbers:
            peer.send(number, Queue.Declare(queue=f"q{number}"), *[Basic.Qos()] * 20)
        peer.frames()
    broker.engine.schedule, broker.engine.slice.most = lambda: None, 2

    def answers() -> int:
        return sum(peer.connection.core.take_output().count(QOS_OK) for peer in peers)

    broker.advance()
    answered = [answers()]
    while answered[-1]:
        broker.engine.end_turn()
        answered.append(answers())
    assert sum(answered) == 8000 and max(answered) < 1000


def test_answers_that_become_safe_together_leave_in_slices_and_in_order() -> None:
    broker = Replicated()
    peer = opened(broker)
    numbers = range(1, 2001)
    for number in numbers[1:]:
        peer.send(number, Channel.Open())
    for number in numbers:
        peer.send(number, Queue.Declare(queue=f"q{number}"))
    peer.frames()
    broker.engine.schedule, broker.engine.slice.most = lambda: None, 2
    broker.advance()
    turns = [[frame.queue for frame in peer.frames()]]
    while turns[-1]:
        turns.append([frame.queue for frame in peer.frames()])
    assert max(map(len, turns)) < 200 and [name for turn in turns for name in turn] == [f"q{each}" for each in numbers]


def test_no_answer_leaves_before_its_own_change_is_safe() -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Queue.Declare(queue="q"), Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"))
    first = broker.vhost.queues["q"].position
    broker.engine.advance_safe(first)
    broker.engine.end_turn()
    assert names(peer) == ["Queue.DeclareOk"]
    broker.advance()
    assert names(peer) == ["Queue.BindOk"]


@pytest.mark.parametrize(
    "behind",
    [
        Queue.Declare(queue="here", arguments={"qpid.replicate": "none"}),
        Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True),
        Exchange.Declare(exchange="amq.direct", passive=True),
        Queue.Declare(queue="q", passive=True),
        Queue.Declare(queue="old", passive=True),
    ],
)
def test_what_needs_no_backup_is_answered_behind_what_waits(behind: Frame) -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Queue.Declare(queue="old"))
    broker.advance()
    peer.frames()
    peer.send(1, Queue.Declare(queue="q"), behind)
    assert peer.frames() == []
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk", f"{behind.name}Ok"]


@pytest.mark.parametrize(
    ("wrong", "close"),
    [
        (Queue.Bind(queue="q", exchange="missing", routing_key="k"), "Channel.Close"),
        (Queue.Declare(queue="missing", passive=True), "Channel.Close"),
        (Exchange.Declare(exchange="amq.direct", exchange_type="fanout"), "Channel.Close"),
        (Exchange.Declare(exchange="e", exchange_type="nonsense"), "Connection.Close"),
    ],
)
def test_a_refusal_comes_behind_the_answers_and_ends_what_follows(wrong: Frame, close: str) -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Queue.Declare(queue="q"), Queue.Declare(queue="p"), wrong, Queue.Declare(queue="never"))
    assert peer.frames() == []
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk", "Queue.DeclareOk", close]
    assert "never" not in broker.vhost.queues


def test_what_may_not_go_ahead_waits_and_all_behind_it() -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Queue.Declare(queue="q"))
    peer.connection.core.feed(publish_octets(b"body", "q"))
    peer.send(1, Queue.Delete(queue="q"), Queue.Declare(queue="p"))
    assert broker.vhost.queues["q"].core.ready == 0 and "p" not in broker.vhost.queues
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk"] and "q" not in broker.vhost.queues
    broker.advance()
    found = peer.frames()
    assert [frame.name for frame in found] == ["Queue.DeleteOk", "Queue.DeclareOk"]
    assert found[0].message_count == 1


def test_declarations_behind_a_commit() -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Tx.Select())
    peer.frames()
    peer.send(1, Queue.Declare(queue="q"))
    broker.advance()
    peer.frames()
    peer.connection.core.feed(publish_octets(b"body", "q"))
    peer.send(1, Tx.Commit(), Queue.Declare(queue="p"), Tx.Commit())
    assert peer.frames() == []
    broker.advance()
    assert names(peer)[:2] == ["Tx.CommitOk", "Queue.DeclareOk"]


def test_a_channel_and_a_connection_that_end_meanwhile() -> None:
    broker = Replicated()
    peer, other = opened(broker), opened(broker)
    for each in (peer, other):
        each.send(1, Queue.Declare(queue="q"), Queue.Declare(queue="p"))
    peer.send(1, Channel.Close(200, "", 0, 0))
    other.send(0, commands.Connection.Close(200, "", 0, 0))
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk", "Queue.DeclareOk", "Channel.CloseOk"]
    assert names(other) == ["Queue.DeclareOk", "Queue.DeclareOk", "Connection.CloseOk"]
    peer.open_channel()
    peer.send(1, Queue.Declare(queue="r"))
    broker.advance()
    assert names(peer) == ["Queue.DeclareOk"]


def test_a_primary_that_is_deposed_answers_nothing() -> None:
    broker = Replicated()
    peer = opened(broker)
    peer.send(1, Queue.Declare(queue="q"), Queue.Declare(queue="p"))
    broker.engine.demote()
    broker.engine.end_turn()
    assert peer.frames() == []
