"""A confirm rests on what survives, never on what the primary alone has decided; a transaction is handed out when safe.

Each schedule: a primary is cut off from both backups, which clients do not notice; it decides something; nothing of it
may be confirmed.  Then it dies, or lives on as a primary that does not know that it is deposed, another one is
promoted, and everything that was confirmed is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pamqp.commands as commands
import pytest

from tests.acceptance.clients import assert_browse_backup
from tests.acceptance.cluster import Member
from tests.acceptance.cut import DivisibleCluster
from tests.acceptance.step_client import StepChannel, StepClient
from tests.interop.raw import RawClient, method
from tests.support.wait import wait_for

EXCHANGES = ("x", "y")
"""All that these tests declare."""
KILLED = pytest.mark.parametrize("kill", [True, False], ids=["killed", "deposed"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DivisibleCluster]:
    with DivisibleCluster(tmp_path_factory.mktemp("divisible")) as cluster:
        yield cluster


@pytest.fixture
def divisible(shared: DivisibleCluster) -> Iterator[DivisibleCluster]:
    """Whole, and empty: whatever the test before has done to it."""
    shared.heal()
    shared.ready()
    empty(shared.primary)
    yield shared
    for member in shared.members:  # shown when the test failed
        print(f"---- {member.name} ----\n{member.log[-4000:]}")


def empty(primary: Member) -> None:
    """No queue, and no exchange of ours."""
    with StepClient(primary.port) as client:
        for queue in primary.queues():
            client.channel().call("queue_delete", queue=queue)
        for exchange in EXCHANGES:
            client.channel().call("exchange_delete", exchange=exchange)


@pytest.fixture
def client(divisible: DivisibleCluster) -> Iterator[StepClient]:
    """At the primary."""
    with StepClient(divisible.primary.port) as client:
        yield client


def declare(client: StepClient, queue: str, **arguments: Any) -> None:
    """Safe on return."""
    client.channel().call("queue_declare", queue=queue, durable=True, arguments=arguments)


def publish(channel: StepChannel, queue: str, prefix: str, count: int, **options: Any) -> set[int]:
    """So many messages, named PREFIX0, PREFIX1 …; the publish tags."""
    return {channel.publish(queue, f"{prefix}{number}", **options) for number in range(count)}


def publish_safely(channel: StepChannel, queue: str, prefix: str, count: int) -> list[str]:
    """The bodies, all confirmed."""
    tags = publish(channel, queue, prefix, count)
    channel.client.until(lambda: tags <= channel.acked, "the confirms of what is safe")
    return [f"{prefix}{number}" for number in range(count)]


def depth(member: Member, queue: str) -> int:
    return len(member.peek(queue))


def assert_silent(cluster: DivisibleCluster, primary: Member, channel: StepChannel, tags: set[int]) -> None:
    """None of these publishes is confirmed, neither at once nor when the primary has noticed that it is alone."""
    channel.client.round_trip()
    assert not channel.acked & tags, "confirmed at once"
    cluster.await_stall(primary)
    channel.client.round_trip()
    assert not channel.acked & tags, "confirmed later"


def cut_off(cluster: DivisibleCluster) -> Member:
    """The primary."""
    primary = cluster.primary
    cluster.cut_off(primary)
    return primary


# ---- B1: what the primary removes by its own decision


@KILLED
def test_b1_overflow(divisible: DivisibleCluster, client: StepClient, kill: bool) -> None:
    """Displaced at a primary that is alone: those that were displaced, and those that displace."""
    declare(client, "q", **{"x-max-length": 10})
    channel = client.channel().confirm()
    bodies = publish_safely(channel, "q", "safe", 10)
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 200)
    assert_silent(divisible, primary, channel, tags)
    new = divisible.promote_other(primary, kill)
    assert new.peek("q") == bodies
    with StepClient(new.port) as other:
        bodies = bodies[1:] + publish_safely(other.channel().confirm(), "q", "new", 1)
    assert new.peek("q") == bodies
    if not kill:
        client.round_trip()
        assert not channel.acked & tags, "two brokers confirm"
        divisible.heal()
        primary.wait_status("ready")
        assert_browse_backup(primary, "q", bodies)


def test_b1_displaced(divisible: DivisibleCluster, client: StepClient) -> None:
    """All that was confirmed before the primary died is there: nothing that survived has displaced it."""
    declare(client, "q", **{"x-max-length": 5})
    channel = client.channel().confirm()
    publish_safely(channel, "q", "first", 5)
    wait_for(lambda: all(depth(member, "q") == 5 for member in divisible.members), what="five everywhere")
    primary = cut_off(divisible)
    publish(channel, "q", "second", 5)
    publish(channel, "q", "third", 5)
    divisible.await_stall(primary)
    client.round_trip()
    confirmed = sorted(channel.acked)
    new = divisible.promote_other(primary, kill=True)
    published = [f"{name}{number}" for name in ("first", "second", "third") for number in range(5)]
    assert [published[tag - 1] for tag in confirmed] == new.peek("q")


@KILLED
def test_b1_purge_unanswered(divisible: DivisibleCluster, client: StepClient, kill: bool) -> None:
    declare(client, "q")
    channel = client.channel().confirm()
    bodies = publish_safely(channel, "q", "safe", 3)
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 5)
    answer = client.channel().ask("queue_purge", queue="q")
    wait_for(lambda: depth(primary, "q") == 0, what="the purge at the primary")
    assert_silent(divisible, primary, channel, tags)
    assert not answer
    assert divisible.promote_other(primary, kill).peek("q") == bodies


@KILLED
def test_b1_unroutable_after_unanswered_unbind(divisible: DivisibleCluster, client: StepClient, kill: bool) -> None:
    declare(client, "q")
    setup = client.channel()
    setup.call("exchange_declare", exchange="x", exchange_type="direct", durable=True)
    setup.call("queue_bind", queue="q", exchange="x", routing_key="k")
    channel = client.channel().confirm()
    bodies = publish_safely(channel, "q", "safe", 1)
    primary = cut_off(divisible)
    answer = setup.ask("queue_unbind", queue="q", exchange="x", routing_key="k")
    client.round_trip()
    tags = {channel.publish("k", f"unroutable{n}", exchange="x", mandatory=n == 1) for n in range(2)}
    assert_silent(divisible, primary, channel, tags)
    assert not answer
    new = divisible.promote_other(primary, kill)
    with StepClient(new.port) as other:
        again = other.channel().confirm()
        tag = again.publish("k", "routed", exchange="x", mandatory=True)
        other.until(lambda: tag in again.acked, "a confirm")
        assert not again.returned
    assert new.peek("q") == [*bodies, "routed"]


@KILLED
def test_b1_unroutable_after_unanswered_queue_delete(
    divisible: DivisibleCluster, client: StepClient, kill: bool
) -> None:
    """With messages that were not safe in it: they are gone with the queue, and not confirmed."""
    declare(client, "q")
    channel = client.channel().confirm()
    bodies = publish_safely(channel, "q", "safe", 2)
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 2)
    answer = client.channel().ask("queue_delete", queue="q")
    wait_for(lambda: "q" not in primary.queues(), what="the deletion at the primary")
    assert_silent(divisible, primary, channel, tags)
    idle = client.channel().confirm()
    assert_silent(divisible, primary, idle, publish(idle, "q", "unroutable", 2))
    assert not answer
    assert divisible.promote_other(primary, kill).peek("q") == bodies


@KILLED
def test_b1_unroutable_on_deposed_primary(divisible: DivisibleCluster, client: StepClient, kill: bool) -> None:
    """The new primary has a binding that the old one does not know: "unroutable" is not the old one's to say."""
    setup = client.channel()
    setup.call("exchange_declare", exchange="x", exchange_type="fanout", durable=True)
    declare(client, "q")
    primary = cut_off(divisible)
    divisible.await_stall(primary)
    new = divisible.promote_other(primary, kill=False)
    with StepClient(new.port) as other:
        other.channel().call("queue_bind", queue="q", exchange="x")
    channel = client.channel().confirm()
    tags = {channel.publish("", f"unroutable{n}", exchange="x", mandatory=n == 1) for n in range(2)}
    tags |= publish(channel, "no such queue", "unroutable", 2)
    client.round_trip()
    assert primary.status == "active", "it does not know"
    assert not channel.acked & tags
    if kill:
        primary.kill()
    assert new.peek("q") == []


def test_b1_redeclared(divisible: DivisibleCluster, client: StepClient) -> None:
    """A second client declares what the first one's unanswered declaration has made: the same answer, as late."""
    setup = client.channel()
    setup.call("exchange_declare", exchange="y", exchange_type="fanout", durable=True)
    primary = cut_off(divisible)
    with StepClient(primary.port) as other:
        answers = [
            answer
            for each in (client, other)
            for answer in (
                each.channel().ask("queue_declare", queue="q", durable=True),
                each.channel().ask("exchange_declare", exchange="x", exchange_type="fanout", durable=True),
                each.channel().ask("queue_bind", queue="q", exchange="y"),
            )
        ]
        divisible.await_stall(primary)
        for each in (client, other):
            each.round_trip()
        assert answers == [[]] * 6
    new = divisible.promote_other(primary, kill=True)
    assert "q" not in new.queues()


def test_b1_removed_again(divisible: DivisibleCluster, client: StepClient) -> None:
    """A second client asks for what has been removed, and is not safe: "there is no such thing" waits as well."""
    for queue in ("q", "purged", "bound"):
        declare(client, queue)
    publish_safely(client.channel().confirm(), "purged", "safe", 1)
    for exchange in EXCHANGES:
        client.channel().call("exchange_declare", exchange=exchange, exchange_type="fanout", durable=True)
    client.channel().call("queue_bind", queue="bound", exchange="y")
    primary = cut_off(divisible)
    with StepClient(primary.port) as other:
        answers = [
            answer
            for each in (client, other)
            for answer in (
                each.channel().ask("queue_delete", queue="q"),
                each.channel().ask("queue_purge", queue="purged"),
                each.channel().ask("exchange_delete", exchange="x"),
                each.channel().ask("queue_unbind", queue="bound", exchange="y", routing_key=""),
            )
        ]
        divisible.await_stall(primary)
        for each in (client, other):
            each.round_trip()
        assert answers == [[]] * 8
    new = divisible.promote_other(primary, kill=True)
    assert set(new.queues()) == {"q", "purged", "bound"}
    assert new.peek("purged") == ["safe0"]


def test_b1_answers_come_when_they_are_safe(divisible: DivisibleCluster, client: StepClient) -> None:
    """The same changes, and the confirms, when the cut heals and no broker was promoted: nothing is held for ever."""
    declare(client, "q", **{"x-max-length": 10})
    client.channel().call("exchange_declare", exchange="x", exchange_type="fanout", durable=True)
    channel = client.channel().confirm()
    primary = cut_off(divisible)
    answers = [client.channel().ask("queue_declare", queue="new", durable=True) for _ in range(2)]
    answers.append(client.channel().ask("queue_purge", queue="q"))
    tags = publish(channel, "q", "displaced", 30) | {channel.publish("", "unroutable", exchange="x")}
    assert_silent(divisible, primary, channel, tags)
    divisible.heal()
    client.until(lambda: tags <= channel.acked, "all confirms")
    client.until(lambda: all(answers), "all answers")
    divisible.settle()
    for member in divisible.members:
        assert_browse_backup(member, "q", [f"displaced{number}" for number in range(20, 30)])


# ---- B1: messages that end otherwise than by a client's acknowledgement


@KILLED
@pytest.mark.parametrize("of", ["message", "queue"])
def test_b1_expiry(divisible: DivisibleCluster, client: StepClient, kill: bool, of: str) -> None:
    declare(client, "q", **({"x-message-ttl": 1} if of == "queue" else {}))
    channel = client.channel().confirm()
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 5, **({"expiration": "1"} if of == "message" else {}))
    client.round_trip()
    wait_for(lambda: depth(primary, "q") == 0, what="the expiry")
    assert_silent(divisible, primary, channel, tags)
    assert divisible.promote_other(primary, kill).peek("q") == []


@KILLED
@pytest.mark.parametrize("cause", [{"x-message-ttl": 1}, {"x-max-length": 0}], ids=["expired", "maxlen"])
def test_b1_dead_letter(divisible: DivisibleCluster, client: StepClient, kill: bool, cause: dict[str, int]) -> None:
    """The letter is no safer than the message."""
    declare(client, "letters")
    declare(client, "q", **cause, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"})
    channel = client.channel().confirm()
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 5)
    client.round_trip()
    wait_for(lambda: depth(primary, "letters") == 5, what="the letters")
    assert_silent(divisible, primary, channel, tags)
    new = divisible.promote_other(primary, kill)
    assert new.peek("q") == new.peek("letters") == []


@KILLED
@pytest.mark.parametrize("letters", [False, True], ids=["dropped", "dead-lettered"])
def test_b1_reject(divisible: DivisibleCluster, client: StepClient, kill: bool, letters: bool) -> None:
    """A consumer that rejects has not accepted: where the message goes is the primary's decision."""
    declare(client, "letters")
    declare(client, "q", **({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"} if letters else {}))
    channel, consumer = client.channel().confirm(), client.channel()
    consumer.consume("q")
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 5)
    for tag in consumer.await_deliveries(5):
        consumer.reject(tag)
    client.round_trip()
    wait_for(lambda: depth(primary, "q") == 0 and depth(primary, "letters") == 5 * letters, what="the rejections")
    assert_silent(divisible, primary, channel, tags)
    divisible.promote_other(primary, kill)


def test_b1_acknowledged_by_a_client(divisible: DivisibleCluster, client: StepClient) -> None:
    """What a client has and says so needs no backup: the only thing that settles a publish at once."""
    declare(client, "q")
    channel, consumer = client.channel().confirm(), client.channel()
    consumer.consume("q")
    primary = cut_off(divisible)
    tags = publish(channel, "q", "unsafe", 6)
    first = consumer.await_deliveries(6)[:3]
    for tag in first:
        consumer.ack(tag)
    client.until(lambda: len(channel.acked) >= 3, "the confirms of what a client has acknowledged")
    divisible.await_stall(primary)
    client.round_trip()
    assert channel.acked == set(sorted(tags)[:3])


# ---- B1: automatic acknowledgement

BODY = 4096
"""Octets."""
MANY = 3000
"""Messages: more than the buffers of two sockets and of a connection in the broker hold."""


def raw_consumer(port: int, queue: str) -> RawClient:
    """With automatic acknowledgement, and the smallest buffer that the kernel gives; it does not read on."""
    raw: RawClient = RawClient.with_buffer(port, 2048)
    raw.open()
    raw.send(method(1, commands.Basic.Consume(queue=queue, no_ack=True)))
    raw.expect(commands.Basic.ConsumeOk)
    return raw


def bodies_of(octets: bytes) -> list[str]:
    """Of the whole deliveries in a stream of frames; the message's number stands at the beginning of its body."""
    found, at = [], 0
    while at + 8 <= len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        if octets[at] == 3 and at + 8 + size <= len(octets):
            found.append(octets[at + 7 : at + 7 + size].split(b".")[0].decode())
        at += 8 + size
    return found


def test_b1_auto_ack_reader_stalls(divisible: DivisibleCluster, client: StepClient) -> None:
    """Handed out, confirmed, and still in the primary's memory: the new primary has it.  (Octets that have left the
    process are the kernel's: they arrive after the death of the process, or count as had.)"""
    primary = divisible.primary
    declare(client, "q")
    channel = client.channel().confirm()
    with contextlib.closing(raw_consumer(primary.port, "q")) as raw:
        tags = {channel.publish("q", f"{number}".ljust(BODY, ".")) for number in range(MANY)}
        client.until(lambda: tags <= channel.acked, "all confirms")
        new = divisible.promote_other(primary, kill=True)
        had = set(bodies_of(raw.read_to_end()))
    left = {body.split(".")[0] for body in every_body(new, "q")}
    assert len(had) < MANY, "the consumer did read"
    assert {str(number) for number in range(MANY)} - had - left == set()


def every_body(member: Member, queue: str) -> list[str]:
    """All that are there, however many."""
    with StepClient(member.port) as client:
        consumer = client.channel()
        count = member.queues()[queue]["messages"]
        consumer.consume(queue)
        consumer.await_deliveries(count)
        return [body.decode() for _, body, _ in consumer.got]


# ---- B1: transactions


@KILLED
def test_b1_transaction_unroutable(divisible: DivisibleCluster, client: StepClient, kill: bool) -> None:
    """commit-ok is a confirm: not for messages that are unroutable by an unanswered unbind."""
    declare(client, "q")
    setup = client.channel()
    setup.call("exchange_declare", exchange="x", exchange_type="direct", durable=True)
    setup.call("queue_bind", queue="q", exchange="x", routing_key="k")
    channel = client.channel()
    channel.call("tx_select")
    primary = cut_off(divisible)
    unbound = setup.ask("queue_unbind", queue="q", exchange="x", routing_key="k")
    client.round_trip()
    channel.publish("k", "unroutable", exchange="x")
    committed = channel.ask("tx_commit")
    divisible.await_stall(primary)
    client.round_trip()
    assert not committed and not unbound
    divisible.promote_other(primary, kill)


def test_b1_transaction_refused(divisible: DivisibleCluster, client: StepClient) -> None:
    """A full queue that refuses a message of a transaction: no commit-ok, and nothing else of it is there."""
    declare(client, "full", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    declare(client, "other")
    publish_safely(client.channel().confirm(), "full", "safe", 1)
    channel = client.channel()
    channel.call("tx_select")
    channel.publish("other", "one")
    channel.publish("full", "refused")
    committed = channel.ask("tx_commit")
    client.until(lambda: committed or channel.closed, "an answer to the commit")
    assert not committed
    assert channel.closed
    for member in divisible.members:
        assert_browse_backup(member, "full", ["safe0"])
        assert_browse_backup(member, "other", [])


# ---- B4


QUEUES = ("t1", "t2", "t3")


@pytest.mark.parametrize("end", ["healed", "killed", "deposed"])
def test_b4_outputs_of_an_unsafe_transaction_are_not_handed_out(
    divisible: DivisibleCluster, client: StepClient, end: str
) -> None:
    """No client gets anything of a transaction before all of it is safe; then every client gets all of it."""
    for queue in QUEUES:
        declare(client, queue)
    channel, primary = client.channel(), divisible.primary
    channel.call("tx_select")
    with StepClient(primary.port) as other:
        consumer = other.channel()
        for queue in QUEUES[:2]:
            consumer.consume(queue)
        divisible.cut_off(primary)
        for number in range(2):
            for queue in QUEUES:
                channel.publish(queue, f"{queue}.{number}")
        committed = channel.ask("tx_commit")
        client.round_trip()
        getter = other.channel()
        late = other.channel()
        late.consume(QUEUES[2])
        divisible.await_stall(primary)
        for each in (client, other):
            each.round_trip()
        assert not committed
        assert consumer.got == late.got == []
        assert getter.get(QUEUES[2]) is None
        if end == "healed":
            divisible.heal()
            client.until(lambda: committed, "commit-ok")
            consumer.await_deliveries(4)
            late.await_deliveries(2)
            assert sorted(body.decode() for _, body, _ in consumer.got + late.got) == all_of(QUEUES)
            return
    new = divisible.promote_other(primary, kill=end == "killed")
    found = sorted(body for queue in QUEUES for body in new.peek(queue))
    assert found in ([], all_of(QUEUES))


def all_of(queues: tuple[str, ...]) -> list[str]:
    return sorted(f"{queue}.{number}" for queue in queues for number in range(2))
