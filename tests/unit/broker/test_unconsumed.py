"""What becomes of messages that no client consumes: dead-letter exchanges and alternate exchanges of queues.

On the primary, and on a backup that is promoted at any moment."""

import random
from collections import Counter
from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.broker.broker import Broker
from tests.unit.broker.peer import Peer, Replicated

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue


@pytest.fixture
def broker():
    broker = Replicated()
    broker.engine.now = 1000
    return broker


@pytest.fixture
def peer(broker):
    peer = Peer(broker)
    peer.open_channel()
    return peer


def do(broker, peer, *methods):
    """Each with its answer."""
    for method in methods:
        peer.send(1, method)
        broker.advance()
        broker.advance()
    return peer.frames()


def queue(name, **arguments):
    return Queue.Declare(queue=name, arguments={key.replace("_", "-"): value for key, value in arguments.items()})


def bodies(broker, name):
    return [message[5] for message in broker.vhost.queues[name].core.peek(1 << 20)]


def letters(broker, name):
    return [
        decode_properties(message[4]).get("headers", {}) for message in broker.vhost.queues[name].core.peek(1 << 20)
    ]


def expire(broker, milliseconds):
    broker.engine.now += milliseconds + 1
    broker.engine.tick()
    broker.advance()


def promoted(broker):
    """A backup that has the whole log, as the new primary."""
    backup = Replicated()
    broker.engine.flush()
    backup.passive = True
    for batch in broker.batches:
        backup.engine.apply(batch)
    promote(backup)
    return backup


def promote(backup):
    backup.engine.now = 1_000_000
    backup.engine.begin_epoch(backup.engine.epoch + 1)
    backup.passive = False
    backup.vhost.endings.on_promoted()
    backup.engine.end_turn()


# ---------------------------------------------------------------- dead-letter exchanges


def test_each_reason(broker, peer):
    dlx = {"x_dead_letter_exchange": "amq.fanout"}
    do(
        broker,
        peer,
        queue("dead"),
        Queue.Bind(queue="dead", exchange="amq.fanout", routing_key=""),
        queue("rejects", **dlx),
        queue("ttl", x_message_ttl=50, **dlx),
        queue("ring", x_max_length=1, **dlx),
        queue("full", x_max_length=1, x_overflow="reject-publish-dlx", **dlx),
    )
    for name in ("rejects", "ttl", "ring", "ring", "full", "full"):
        peer.publish(name.encode(), name)
    peer.publish(b"own", "rejects", expiration="20")
    do(broker, peer, Basic.Get(queue="rejects"), Basic.Reject(1, requeue=False))
    expire(broker, 60)
    found = [(death["queue"], death["reason"], death["routing-keys"]) for death in deaths(broker, "dead")]
    assert sorted(found) == [
        ("full", "maxlen", ["full"]),
        ("rejects", "expired", ["rejects"]),
        ("rejects", "rejected", ["rejects"]),
        ("ring", "maxlen", ["ring"]),
        ("ttl", "expired", ["ttl"]),
    ]
    assert (bodies(broker, "ring"), bodies(broker, "full")) == ([b"ring"], [b"full"])
    assert bodies(broker.backup(), "dead") == bodies(broker, "dead")


def deaths(broker, name):
    return [entry for headers in letters(broker, name) for entry in headers["x-death"]]


def test_with_a_routing_key_of_its_own(broker, peer):
    do(
        broker,
        peer,
        queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_max_length=0),
        queue("dead"),
    )
    peer.publish(b"m", "q")
    broker.advance()
    message = broker.vhost.queues["dead"].core.peek(1)[0]
    assert message[2:4] == (b"", b"dead")
    assert deaths(broker, "dead")[0]["routing-keys"] == ["q"]


def test_without_the_exchange_the_message_is_gone(broker, peer):
    do(broker, peer, queue("q", x_dead_letter_exchange="nowhere", x_max_length=0))
    peer.publish(b"m", "q")
    broker.advance()
    core = broker.vhost.queues["q"].core
    assert (core.ready, core.unacked) == (0, 0)
    assert broker.backup().vhost.queues["q"].core.ready == 0


def test_a_headers_exchange_sees_the_death(broker, peer):
    do(
        broker,
        peer,
        queue("q", x_dead_letter_exchange="amq.headers", x_message_ttl=1),
        queue("expired"),
        Queue.Bind(
            queue="expired",
            exchange="amq.headers",
            routing_key="",
            arguments={"x-match": "all-with-x", "x-first-death-reason": "expired"},
        ),
    )
    peer.publish(b"m", "q")
    broker.advance()
    expire(broker, 5)
    assert bodies(broker, "expired") == [b"m"]


def test_a_circle_without_a_rejection_ends(broker, peer):
    do(
        broker,
        peer,
        queue("a", x_dead_letter_exchange="", x_dead_letter_routing_key="b", x_message_ttl=10),
        queue("b", x_dead_letter_exchange="", x_dead_letter_routing_key="a", x_message_ttl=10),
    )
    peer.publish(b"m", "a")
    broker.advance()
    expire(broker, 10)
    assert (bodies(broker, "a"), bodies(broker, "b")) == ([], [b"m"])
    expire(broker, 10)
    assert (bodies(broker, "a"), bodies(broker, "b")) == ([], [])


def test_retries_by_rejection_and_delay_go_round(broker, peer):
    """The usual retry: reject, wait in a queue with a time to live, come back."""
    do(
        broker,
        peer,
        queue("work", x_dead_letter_exchange="", x_dead_letter_routing_key="wait"),
        queue("wait", x_dead_letter_exchange="", x_dead_letter_routing_key="work", x_message_ttl=10),
    )
    peer.publish(b"m", "work")
    for attempt in range(1, 4):
        do(broker, peer, Basic.Get(queue="work"), Basic.Nack(attempt, requeue=False))
        assert bodies(broker, "wait") == [b"m"]
        expire(broker, 10)
        assert bodies(broker, "work") == [b"m"]
        counts = {entry["reason"]: entry["count"] for entry in deaths(broker, "work")}
        assert counts == {"rejected": attempt, "expired": attempt}


def test_to_several_queues_with_limits_of_their_own(broker, peer):
    do(
        broker,
        peer,
        queue("q", x_dead_letter_exchange="amq.fanout", x_max_length=1),
        queue("ring", x_max_length=2, x_dead_letter_exchange="", x_dead_letter_routing_key="over"),
        queue("refuses", x_max_length=2, x_overflow="reject-publish"),
        queue("over"),
        *[Queue.Bind(queue=name, exchange="amq.fanout", routing_key="") for name in ("ring", "refuses")],
    )
    for i in range(6):
        peer.publish(b"%d" % i, "q")
    broker.advance()
    assert bodies(broker, "q") == [b"5"]
    assert (bodies(broker, "ring"), bodies(broker, "refuses")) == ([b"3", b"4"], [b"0", b"1"])
    assert bodies(broker, "over") == [b"0", b"1", b"2"]


def test_a_backup_decides_nothing_and_knows_after_promotion(broker, peer):
    do(broker, peer, queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_message_ttl=10))
    do(broker, peer, queue("dead"))
    peer.publish(b"m", "q")
    broker.advance()
    backup = broker.backup()
    backup.engine.now = 10_000
    backup.engine.tick()
    backup.engine.end_turn()
    assert (bodies(backup, "q"), bodies(backup, "dead")) == ([b"m"], [])
    promote(backup)
    backup.engine.tick()
    backup.engine.end_turn()
    assert (bodies(backup, "q"), bodies(backup, "dead")) == ([], [b"m"])


def test_a_rejected_message_of_a_queue_that_is_deleted_in_the_same_turn(broker, peer):
    do(broker, peer, queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead"), queue("dead"))
    peer.publish(b"m", "q")
    do(broker, peer, Basic.Get(queue="q"))
    peer.send(1, Basic.Reject(1, requeue=False), Queue.Delete(queue="q"))
    broker.advance()
    assert bodies(broker, "dead") == [b"m"] == bodies(broker.backup(), "dead")


def test_local_letters_of_a_backup_do_not_enter_what_is_replicated(broker, peer):
    do(broker, peer, queue("shared"))
    backup = broker.backup()
    admin = Peer(backup)
    admin.open_channel()
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shared", "x-max-length": 0}
    admin.call(1, Queue.Declare(queue="mine", exclusive=True, auto_delete=True, arguments=arguments))
    admin.publish(b"m", "mine")
    assert admin.frames() == []
    assert bodies(backup, "shared") == bodies(backup, "mine") == []


# ---------------------------------------------------------------- alternate exchanges of queues


def alternates(broker, peer):
    do(
        broker,
        peer,
        Exchange.Declare(exchange="alt", exchange_type="fanout"),
        queue("left"),
        Queue.Bind(queue="left", exchange="alt", routing_key=""),
    )


@pytest.mark.parametrize("handed_out", [0, 2])
def test_what_is_left_in_a_deleted_queue(broker, peer, handed_out):
    alternates(broker, peer)
    do(broker, peer, queue("q", alternate_exchange="alt"))
    do(broker, peer, Queue.Bind(queue="q", exchange="alt", routing_key=""))  # not back to itself
    for i in range(4):
        peer.publish(b"%d" % i, "q", headers={"n": i})
    broker.advance()
    do(broker, peer, *[Basic.Get(queue="q")] * handed_out)
    (answer,) = do(broker, peer, Queue.Delete(queue="q"))
    assert answer.message_count == 4 - handed_out
    backup = broker.backup()
    for each in (broker, backup):
        assert "q" not in each.vhost.queues
        assert bodies(each, "left") == [b"0", b"1", b"2", b"3"]
        assert letters(each, "left")[3] == {"n": 3}


def test_rejects_go_to_the_alternate_unless_there_is_a_dead_letter_exchange(broker, peer):
    alternates(broker, peer)
    do(
        broker,
        peer,
        queue("a", alternate_exchange="alt", x_max_length=1),
        queue("b", alternate_exchange="alt", x_dead_letter_exchange="", x_dead_letter_routing_key="dead"),
        queue("dead"),
    )
    for name in ("a", "a", "b"):
        peer.publish(name.encode(), name)
    broker.advance()
    assert bodies(broker, "left") == [], "what a limit pushes out is dropped, as Qpid does"
    do(broker, peer, Basic.Get(queue="a"), Basic.Reject(1, False), Basic.Get(queue="b"), Basic.Reject(2, False))
    assert (bodies(broker, "left"), bodies(broker, "dead")) == ([b"a"], [b"b"])
    assert letters(broker, "left") == [{}]


@pytest.mark.parametrize("end", ["cancel", "close channel", "close connection"])
def test_auto_delete_sends_its_leftovers_once(broker, peer, end):
    alternates(broker, peer)
    other = Peer(broker)
    other.open_channel()
    arguments: dict[str, Any] = {"alternate-exchange": "alt"}
    do(broker, other, Queue.Declare(queue="q", auto_delete=True, arguments=arguments), Basic.Qos(0, 2))
    do(broker, other, Basic.Consume(queue="q", consumer_tag="c"))
    for i in range(5):
        peer.publish(b"%d" % i, "q")
    broker.advance()
    do(broker, other, Basic.Ack(1))
    if end == "cancel":
        do(broker, other, Basic.Cancel("c"), Basic.Ack(0, multiple=True))
    elif end == "close channel":
        do(broker, other, commands.Channel.Close(200, "", 0, 0))
    else:
        other.connection.closed("gone")
    broker.advance()
    backup = broker.backup()
    for each in (broker, backup):
        assert "q" not in each.vhost.queues
        assert bodies(each, "left") == [b"1", b"2", b"3", b"4"]


def test_promotion_sends_the_leftovers_once(broker, peer):
    """Row 30 of the original's tests: used ones go and leave their messages, never-used ones stay."""
    alternates(broker, peer)
    arguments: dict[str, Any] = {"alternate-exchange": "alt"}
    for name in ("used", "never"):
        do(broker, peer, Queue.Declare(queue=name, auto_delete=True, arguments=arguments))
    do(broker, peer, Queue.Declare(queue="mine", exclusive=True, arguments={**arguments, "qpid.replicate": "all"}))
    do(broker, peer, Queue.Declare(queue="timed", auto_delete=True, arguments={**arguments, "x-expires": 60_000}))
    do(broker, peer, Basic.Qos(0, 1), Basic.Consume(queue="used"), Basic.Consume(queue="timed"))
    for name in ("used", "used", "never", "mine", "timed"):
        peer.publish(name.encode(), name)
    broker.advance()
    heir = promoted(broker)
    assert set(heir.vhost.queues) == {"left", "never", "mine", "timed"}
    assert Counter(bodies(heir, "left")) == {b"used": 2}
    second = promoted_again(broker, heir)
    assert set(second.vhost.queues) == {"left", "never", "mine", "timed"}
    assert Counter(bodies(second, "left")) == {b"used": 2}
    second.tick(0.0)
    second.tick(59.0)
    assert {"mine", "timed"} <= second.vhost.queues.keys()
    second.tick(61.0)
    second.advance()
    assert not {"mine", "timed"} & second.vhost.queues.keys()
    assert Counter(bodies(second, "left")) == {b"used": 2, b"mine": 1, b"timed": 1}
    user = Peer(second)
    user.open_channel()
    do(second, user, Basic.Consume(queue="never", consumer_tag="c"), Basic.Cancel("c"))
    assert "never" not in second.vhost.queues
    assert Counter(bodies(second, "left")) == {b"used": 2, b"mine": 1, b"timed": 1, b"never": 1}


def promoted_again(first, heir):
    """A third broker, that followed both."""
    backup = Replicated()
    backup.passive = True
    for batch in (*first.batches, *heir.batches):
        backup.engine.apply(batch)
    promote(backup)
    return backup


def test_an_expired_queue_leaves_its_messages(broker, peer):
    alternates(broker, peer)
    do(broker, peer, queue("q", alternate_exchange="alt", x_expires=1000))
    peer.publish(b"m", "q")
    broker.tick(0.0)
    broker.tick(1.0)
    broker.advance()
    assert "q" not in broker.vhost.queues and bodies(broker, "left") == [b"m"]


@pytest.mark.parametrize("level", ["all", "none"])
def test_an_auto_delete_queue_waits_for_its_user(broker, peer, level):
    """qpid.auto_delete_timeout: seconds after its last consumer, once it has had one."""
    arguments = {"qpid.auto_delete_timeout": 2, "qpid.replicate": level}
    for name in ("used", "never"):
        do(broker, peer, Queue.Declare(queue=name, auto_delete=True, arguments=arguments))
    for moment in (0.0, 100.0):
        broker.tick(moment)
    consume = Basic.Consume(queue="used", consumer_tag="c")
    do(broker, peer, consume, Basic.Cancel("c"))
    broker.tick(101.0)
    broker.tick(102.9)
    do(broker, peer, consume)
    for moment in (103.0, 110.0):
        broker.tick(moment)
    assert "used" in broker.vhost.queues
    do(broker, peer, Basic.Cancel("c"))
    broker.tick(111.0)
    broker.tick(112.9)
    assert "used" in broker.vhost.queues
    broker.tick(113.0)
    assert set(broker.vhost.queues) == {"never"}


@pytest.mark.parametrize("arguments", [{"qpid.auto_delete_timeout": 2}, {"x-expires": 2000}])
@pytest.mark.parametrize("new", [False, True])
def test_a_queue_stays_while_its_declaration_waits_for_the_backups(broker, peer, arguments, new):
    """Its time begins when the declaration is answered."""
    timed = Queue.Declare(queue="q", auto_delete=True, arguments=arguments)
    if not new:
        do(broker, peer, timed, Basic.Consume(queue="q", consumer_tag="c"), Basic.Cancel("c"))
        broker.tick(0.0)
    peer.send(1, timed)  # nothing is safe before `advance`
    for moment in (1.0, 2.0, 3.0, 50.0):
        broker.tick(moment)
        broker.engine.end_turn()
    assert peer.frames() == [] and "q" in broker.vhost.queues
    broker.advance()
    (answer,) = peer.frames()
    assert isinstance(answer, Queue.DeclareOk)
    if new and "x-expires" not in arguments:
        do(broker, peer, Basic.Consume(queue="q", consumer_tag="c"), Basic.Cancel("c"))
    broker.tick(51.0)
    broker.tick(52.9)
    assert "q" in broker.vhost.queues
    broker.tick(53.0)
    assert "q" not in broker.vhost.queues


def test_an_expiring_queue_expires_used_or_not(broker, peer):
    for name in ("used", "never"):
        do(broker, peer, queue(name, x_expires=2000))
    do(broker, peer, Basic.Consume(queue="used", consumer_tag="c"))
    broker.advance()
    heir = promoted(broker)
    for moment in (0.0, 1.9):
        heir.tick(moment)
    assert set(heir.vhost.queues) == {"used", "never"}
    heir.tick(2.0)
    assert set(heir.vhost.queues) == set()


def test_an_alternate_is_in_use(broker, peer):
    alternates(broker, peer)
    do(broker, peer, Exchange.Declare(exchange="second"), queue("q", alternate_exchange="second"))
    (answer,) = do(broker, peer, Exchange.Delete(exchange="second", if_unused=True))
    assert answer.reply_code == 406
    heir = promoted(broker)
    user = Peer(heir)
    user.open_channel()
    (answer,) = do(heir, user, Exchange.Delete(exchange="second", if_unused=True))
    assert answer.reply_code == 406 and "second" in heir.vhost.exchanges
    user.send(1, commands.Channel.CloseOk())
    user.open_channel()
    do(heir, user, Queue.Delete(queue="q"))
    (answer,) = do(heir, user, Exchange.Delete(exchange="second", if_unused=True))
    assert answer.name == "Exchange.DeleteOk" and "second" not in heir.vhost.exchanges


# ---------------------------------------------------------------- every prefix of the log


class Witness:
    """A backup that is compared after each batch: every message is in exactly one queue until a client has acknowledged
    it.  (What is acknowledged after its queue was deleted has gone to the alternate exchange, and stays.)"""

    def __init__(self, broker):
        self.broker = broker
        self.backup = Broker()
        self.backup.passive = True
        self.seen = set()
        self.consumed = set()
        self.batches = 0
        broker.engine.on_batch = self.batch

    def batch(self, batch):
        octets = bytes(batch)
        self.broker.batches.append(octets)
        self.backup.engine.apply(octets)
        self.batches += 1
        found = Counter(body for name in self.backup.vhost.queues for body in bodies(self.backup, name))
        assert set(found.values()) <= {1}, "doubled"
        assert self.seen - self.consumed <= found.keys(), "lost"
        self.seen |= found.keys()


NAMES = ("a", "b", "c", "d")


def declare(rng, name):
    """Whatever leaves a queue unconsumed comes to `park` in the end, without a circle."""
    target = rng.choice(["park", *NAMES[NAMES.index(name) + 1 :]])
    arguments = {"x-dead-letter-exchange": "chain", "x-dead-letter-routing-key": target, "alternate-exchange": "alt"}
    if rng.random() < 0.5:
        arguments["x-max-length"] = rng.randrange(1, 4)
    if rng.random() < 0.5:
        arguments["x-message-ttl"] = rng.choice((20, 200))
    if rng.random() < 0.3:
        arguments["x-overflow"] = "reject-publish-dlx"
    if rng.random() < 0.3:
        arguments["x-max-priority"] = 3
    return (
        Queue.Declare(queue=name, auto_delete=rng.random() < 0.3, arguments=arguments),
        Queue.Bind(queue=name, exchange="chain", routing_key=name),
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_storm_of_deaths(seed):
    rng = random.Random(seed)
    broker = Replicated(rng=rng)
    broker.engine.now = 1000
    witness = Witness(broker)
    setup = Peer(broker)
    setup.open_channel()
    alternates(broker, setup)
    do(broker, setup, queue("park"), Queue.Bind(queue="park", exchange="alt", routing_key=""))
    do(broker, setup, Queue.Delete(queue="left"))
    do(broker, setup, Exchange.Declare(exchange="chain", arguments={"alternate-exchange": "alt"}))
    peer, tags, sent = None, {}, 0
    for _ in range(150):
        if peer is None:
            peer, tags = Peer(broker), {}
            peer.open_channel()
        name, step = rng.choice(NAMES), rng.random()
        if name not in broker.vhost.queues:
            do(broker, peer, *declare(rng, name))
        elif step < 0.45:
            sent += 1
            peer.publish(b"%d:" % sent + b"x" * rng.choice((10, 5000)), name, priority=rng.randrange(5))
        elif step < 0.6:
            peer.send(1, Basic.Get(queue=name))
        elif step < 0.65:
            peer.send(1, Basic.Consume(queue=name, consumer_tag="c"), Basic.Cancel("c"))
        elif step < 0.8 and tags:
            settle(peer, rng, tags, witness)
        elif step < 0.85:
            peer.send(1, Queue.Delete(queue=name))
        elif step < 0.9:
            expire(broker, rng.choice((5, 50)))
        elif step < 0.93:
            peer.connection.closed("gone")
            peer = None
        if peer is not None:
            peer = read(broker, peer, tags, rng)
    broker.advance()
    for name in broker.vhost.queues:
        broker.vhost.queues[name].core.check()
        assert bodies(witness.backup, name) == bodies(broker, name)
    held = {body for name in broker.vhost.queues for body in bodies(broker, name)}
    assert held >= witness.seen - witness.consumed and witness.batches > 20
    promote(witness.backup)
    after = Counter(body for name in witness.backup.vhost.queues for body in bodies(witness.backup, name))
    assert after == Counter(held)


def settle(peer, rng, tags, witness):
    tag = rng.choice(sorted(tags))
    body = tags.pop(tag)
    how = rng.choice(("ack", "reject", "requeue"))
    if how == "ack":
        witness.consumed.add(body)
        peer.send(1, Basic.Ack(tag))
    else:
        peer.send(1, Basic.Nack(tag, requeue=how == "requeue"))


def read(broker, peer, tags, rng):
    """Notes deliveries; the peer, or None when it has been closed."""
    if rng.random() < 0.7:
        broker.advance()
        tag = None
        for frame in peer.frames():
            if isinstance(frame, (Basic.GetOk, Basic.Deliver)):
                tag = frame.delivery_tag
            elif tag is not None and frame.name == "ContentBody":
                tags[tag], tag = frame.value, None
            elif isinstance(frame, commands.Channel.Close):
                peer.connection.closed("was refused something")
                return None
    return peer
