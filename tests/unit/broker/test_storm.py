"""Random clients that know the methods but not the manners: whatever they do, it costs them at most their connection.

After each storm nothing may be left over: no delivery outstanding, no exclusive queue, no auto-delete queue that lost
its last consumer, no message counted wrongly (`Queue.check`); and a backup that followed the log holds the same.
"""

import random

import pamqp.commands as commands
import pytest

from tests.unit.broker.peer import Peer, Replicated

Basic, Channel, Confirm, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)
QUEUES = ("a", "b", "c")
EXCHANGES = ("amq.direct", "amq.topic", "amq.headers", "amq.fanout", "e")
KINDS = ("direct", "topic", "fanout", "headers")
ARGUMENTS = (
    None,
    {"qpid.replicate": "none"},
    {"x-expires": 1000},
    {"a": 1},
    {"x-max-length": 2, "x-dead-letter-exchange": "amq.direct"},
    {"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.fanout"},
    {"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b", "x-max-priority": 2},
    {"alternate-exchange": "amq.fanout", "qpid.auto_delete_timeout": 1},
)
STEPS = 120


def random_method(rng):
    queue, exchange, key = rng.choice(QUEUES), rng.choice(EXCHANGES), rng.choice(("a", "b", "a.*", "#"))
    yes = rng.random() < 0.3
    arguments = rng.choice(ARGUMENTS)
    make = rng.choice(
        (
            lambda: Queue.Declare(queue=queue, exclusive=yes, auto_delete=rng.random() < 0.4, arguments=arguments),
            *[lambda: Queue.Declare(queue=queue)] * 3,
            *[lambda: Basic.Consume(queue=queue, no_ack=yes)] * 3,
            lambda: Queue.Declare(queue=queue, passive=True, nowait=yes),
            lambda: Queue.Bind(queue=queue, exchange=exchange, routing_key=key, nowait=yes, arguments=arguments),
            lambda: Queue.Unbind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments),
            lambda: Queue.Purge(queue=queue, nowait=yes),
            lambda: Queue.Delete(queue=queue, if_unused=yes, nowait=rng.random() < 0.3),
            lambda: Exchange.Declare(exchange=exchange, exchange_type=rng.choice(KINDS), auto_delete=yes),
            lambda: Exchange.Delete(exchange=exchange, if_unused=yes),
            lambda: Exchange.Bind(destination=rng.choice(EXCHANGES), source=exchange, routing_key=key),
            lambda: Exchange.Unbind(destination=rng.choice(EXCHANGES), source=exchange, routing_key=key),
            lambda: Basic.Consume(queue=queue, consumer_tag=rng.choice(("", "s", "t")), no_ack=yes),
            lambda: Basic.Consume(queue=queue, exclusive=yes),
            lambda: Basic.Cancel(consumer_tag=rng.choice(("s", "t"))),
            lambda: Basic.Get(queue=queue, no_ack=yes),
            lambda: Basic.Recover(yes),
            lambda: Basic.Qos(0, rng.randrange(3), yes),
            lambda: Channel.Flow(not yes),
            lambda: Confirm.Select(),
            lambda: Tx.Select(),
            *[lambda: Basic.Get(queue=queue)] * 2,
            lambda: Channel.Close(200, "", 0, 0),
        )
    )
    return make()


class Client:
    """Mostly polite: it declares what it uses, settles what it was given, and comes back when it is thrown out."""

    def __init__(self, broker, rng):
        self.broker = broker
        self.rng = rng
        self.connect()

    def connect(self):
        self.peer = Peer(self.broker, capabilities={"consumer_cancel_notify": True})
        self.tags = {}  # channel -> delivery tags to settle

    def core(self, number):
        return self.peer.connection.core.channel(number)

    def step(self):
        number = self.rng.randrange(1, 4)
        core = self.core(number)
        if self.rng.random() < 0.01:
            self.peer.connection.closed("lost")
            self.connect()
        elif core is None:
            self.peer.send(number, Channel.Open(), Queue.Declare(queue=self.rng.choice("abc"), nowait=True))
            self.tags[number] = []
        elif core.closing:
            self.peer.send(number, Channel.CloseOk())
        elif self.rng.random() < 0.35:
            exchange = self.rng.choice(("", "", "amq.direct", "amq.headers", "amq.topic"))
            self.peer.publish(b"x", self.rng.choice("abc"), exchange, number, headers={"a": self.rng.randrange(2)})
        elif self.tags[number] and self.rng.random() < 0.5:
            self.settle(number)
        elif core.transactional and self.rng.random() < 0.4:
            self.peer.send(number, self.rng.choice((Tx.Commit, Tx.Commit, Tx.Rollback))())
        else:
            self.peer.send(number, random_method(self.rng))
        self.read()

    def settle(self, number):
        tag = self.tags[number].pop(self.rng.randrange(len(self.tags[number])))
        yes, multiple = self.rng.random() < 0.5, self.rng.random() < 0.3
        kinds = (Basic.Ack(tag, multiple), Basic.Nack(tag, multiple, yes), Basic.Reject(tag, yes))
        self.peer.send(number, self.rng.choice(kinds))
        if multiple:
            self.tags[number] = [other for other in self.tags[number] if other > tag]

    def read(self):
        for number, frame in self.peer.channel_frames():
            if isinstance(frame, (Channel.Close, commands.Connection.Close)):
                assert frame.reply_code != 541, frame.reply_text
            if isinstance(frame, (Basic.Deliver, Basic.GetOk)) and self.core(number) is not None:
                self.tags[number].append(frame.delivery_tag)
            if isinstance(frame, commands.Connection.Close):
                self.peer.send(0, commands.Connection.CloseOk())
                self.connect()
                return


@pytest.mark.parametrize("seed", range(60))
def test_storm(seed):
    rng = random.Random(seed)
    broker = Replicated(rng.choice(("none", "configuration", "all")), rng=rng)
    clients = [Client(broker, rng) for _ in range(3)]
    for step in range(STEPS):
        rng.choice(clients).step()
        if rng.random() < 0.5:
            broker.advance()
        broker.tick(step / 10)
        broker.engine.now += 5
        broker.engine.tick()
        for queue in broker.vhost.queues.values():
            queue.core.check()
    for client in clients:
        client.peer.connection.closed("end")
    broker.advance()
    assert not broker.connections
    for queue in broker.vhost.queues.values():
        queue.core.check()
        assert not queue.exclusive and queue.core.unacked == 0 and queue.core.consumer_count == 0
        assert not (queue.auto_delete and queue.used_position) or queue.delay
    backup = broker.backup()
    names = {queue.name for queue in broker.vhost.queues.values() if queue.position}
    assert set(backup.vhost.queues) == names
    for name in names:
        primary, copy = broker.vhost.queues[name].core, backup.vhost.queues[name].core
        assert (copy.ready, copy.held()) == ((primary.ready, primary.held()) if primary.replicated else (0, b""))
