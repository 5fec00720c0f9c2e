"""A connection without sockets: methods go in, decoded frames come out."""

import pamqp.commands as commands
import pamqp.frame

from qpidd_py.amqp.codec import encode_method, make
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from tests.support.memory import publish_octets

HEADER = b"AMQP\x00\x00\x09\x01"


class Peer:
    """One client of `broker`."""

    waiting = 0
    user = "guest"
    vhost = "/"

    def __init__(self, broker, opened=True, heartbeat=0, user="guest", vhost="/", **properties):
        self.broker = broker
        self.vhost = vhost
        self.user = user
        self.disconnected = 0
        self.outputs = 0
        self.connection = ClientConnection(broker, "memory", self)
        if opened:
            self.handshake(heartbeat, properties)

    def disconnect(self):
        self.disconnected += 1

    def output_ready(self):
        self.outputs += 1

    def handshake(self, heartbeat=0, properties=None):
        self.feed(HEADER)
        start_ok = make(
            commands.Connection.StartOk,
            client_properties=properties or {},
            mechanism="PLAIN",
            response=b"\0%s\0guest" % self.user.encode(),
            locale="en_US",
        )
        self.send(0, start_ok, commands.Connection.TuneOk(0, 0, heartbeat), commands.Connection.Open(self.vhost))
        return self.frames()

    def open_channel(self, number=1):
        return self.call(number, commands.Channel.Open())

    def feed(self, octets):
        self.connection.core.feed(octets)

    def send(self, channel, *methods):
        for method in methods:
            self.feed(encode_method(channel, method))

    def frames(self):
        """What came out until now, decoded."""
        return [frame for _, frame in self.channel_frames()]

    def channel_frames(self):
        """The same, each with its channel."""
        self.broker.engine.end_turn()
        octets = self.connection.core.take_output()
        found = []
        while octets:
            used, channel, frame = pamqp.frame.unmarshal(octets)
            octets = octets[used:]
            found.append((channel, frame))
        return found

    def call(self, channel, method):
        """The one answer."""
        self.send(channel, method)
        (answer,) = self.frames()
        return answer

    def publish(self, body, routing_key, exchange="", channel=1, **properties):
        self.feed(publish_octets(body, routing_key, exchange, channel, **properties))


class Replicated(Broker):
    """A broker whose log is watched: nothing is safe before `advance`."""

    def __init__(self, level="all", **settings):
        super().__init__(**settings)
        self.vhosts.rules.default_replicate = level
        self.batches: list[bytes] = []
        self.engine.on_batch = lambda batch: self.batches.append(bytes(batch))

    def advance(self):
        self.engine.flush()
        self.engine.advance_safe(self.engine.position)
        self.engine.end_turn()

    def backup(self):
        """A backup that has applied the whole log."""
        self.engine.flush()
        backup = Broker()
        backup.passive = True
        for batch in self.batches:
            backup.engine.apply(batch)
        return backup
