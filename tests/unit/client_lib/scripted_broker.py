"""A broker for tests of the client: just enough AMQP, over real sockets, and it misbehaves on command.

Several brokers may share one `Store`, like the members of a cluster that replicates perfectly: what one confirmed the
next one has.  One thread a connection; `store.lock` guards everything.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands, frame, header
from pamqp.body import ContentBody
from pamqp.heartbeat import Heartbeat

Stored = tuple[str, commands.Basic.Properties, bytes, bool]  # routing key, properties, body, redelivered

UNANSWERED = (0, "")


@dataclass
class Store:
    """Queues by name, and what the clients did."""

    queues: dict[str, deque[Stored]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)  # broker, method
    lock: threading.RLock = field(default_factory=threading.RLock)
    brokers: list[ScriptedBroker] = field(default_factory=list)

    def methods(self, broker: str) -> list[str]:
        with self.lock:
            return [method for name, method in self.calls if name == broker]


class ScriptedBroker:
    """`mode`: normal, hang (never answers), stall (answers all but connection.open), refuse (close 320 with `refusal`),
    deny (close 403).

    `confirm`: ack, nack or hold (keeps the message and says nothing).
    `commit`: ok, hold (does nothing and says nothing), drop (the connection, before) or drop_after."""

    def __init__(self, store: Store | None = None, name: str = "b", mode: str = "normal") -> None:
        self.store = store or Store()
        self.store.brokers.append(self)
        self.name, self.mode = name, mode
        self.refusal = f"CONNECTION_FORCED - {name} is a backup (ready); the primary is not known"
        self.properties: dict[str, Any] = {}
        """Added to the server-properties of connection.start."""
        self.heartbeat_offered = 60
        self.frame_max = 131072
        self.beats = True
        self.confirm = "ack"
        self.commit = "ok"
        self.unroutable = False
        self.close_at: Callable[[bytes], tuple[int, str] | None] = lambda body: None
        """The connection is closed with this for a message with such a body."""
        self.close_for: Callable[[Any], tuple[int, str] | None] = lambda method: None
        """The connection is closed with this for such a method; or it is UNANSWERED."""
        self.refuse_declare: Callable[[str], tuple[int, str] | None] = lambda queue: None
        self.accepted = 0
        self.heartbeats = 0
        self.peers: list[Peer] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.accepted += 1
                peer = Peer(self, sock)
                self.peers.append(peer)
                threading.Thread(target=peer.run, daemon=True).start()

    def drop(self) -> None:
        """Resets all connections, as a kill -9 does."""
        for peer in list(self.peers):
            peer.reset()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def shut(self, text: str) -> None:
        """Closes all connections with 320, as a primary that steps down does."""
        for peer in list(self.peers):
            peer.send(0, commands.Connection.Close(320, text, 0, 0))

    def close_channels(self, code: int, text: str) -> None:
        """As for a request that the broker refuses."""
        for peer in list(self.peers):
            for channel in list(peer.confirming):
                peer.send(channel, commands.Channel.Close(code, text, 60, 40))

    def refuse_held(self, how: str) -> None:
        """`how`: nack or return."""
        with self.store.lock:
            for peer in self.peers:
                for channel, tag, key, properties, body in peer.held:
                    if how == "nack":
                        peer.send(channel, commands.Basic.Nack(tag, False, False))
                        continue
                    content = (header.ContentHeader(0, len(body), properties), ContentBody(body))
                    peer.send(channel, commands.Basic.Return(312, "NO_ROUTE", "", key), *content)
                    peer.send(channel, commands.Basic.Ack(tag, False))
                peer.held.clear()

    def stop_answering(self) -> None:
        """As SIGSTOP: the sockets stay open."""
        self.mode = "hang"
        for peer in list(self.peers):
            peer.deaf = True


class Peer:
    """One connection."""

    def __init__(self, broker: ScriptedBroker, sock: socket.socket) -> None:
        self.broker, self.sock = broker, sock
        self.deaf = broker.mode == "hang"
        self.gone = False
        self.publishes = 0
        self.deliveries = 0
        self.consumers: dict[str, tuple[int, str, int]] = {}  # tag -> channel, queue, prefetch
        self.unacked: dict[int, tuple[str, str, Stored]] = {}  # delivery tag -> consumer tag, queue, message
        self.channel_of: dict[int, int] = {}  # by delivery tag
        self.confirming: dict[int, int] = {}  # publishes by channel
        self.transactions: dict[int, list[Callable[[], object]]] = {}  # by channel: what the commit will do
        self.prefetch = 0
        self.held: list[tuple[int, int, str, Any, bytes]] = []  # channel, tag, key, properties, body
        self._publish: Any = None
        self._properties: Any = None
        self._wanted = 0
        self._body = b""
        self._stop_beating = threading.Event()

    def send(self, channel: int, *frames: Any) -> None:
        if self.deaf:
            return
        with contextlib.suppress(OSError):
            self.sock.sendall(b"".join(frame.marshal(f, channel) for f in frames))

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.shutdown(socket.SHUT_RDWR)
        self._end()

    def _end(self) -> None:
        """Everything unsettled goes back."""
        with self.broker.store.lock:
            if self.gone:
                return
            self.gone = True
            self._stop_beating.set()
            self.sock.close()
            self.consumers.clear()
            for _, queue, (key, properties, body, _redelivered) in reversed(self.unacked.values()):
                self.broker.store.queues[queue].appendleft((key, properties, body, True))
            self.unacked.clear()
        pump_all(self.broker)

    def run(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            while len(data) < 8:
                data += self._receive()
            data = data[8:]
            self.send(0, self._start())
            while True:
                while len(data) >= 7 and len(data) >= 8 + struct.unpack(">I", data[3:7])[0]:
                    count, channel, value = frame.unmarshal(data)
                    data = data[count:]
                    if not self.deaf:
                        with self.broker.store.lock:
                            self._handle(channel, value)
                data += self._receive()
        self._end()

    def _start(self) -> Any:
        properties = {"capabilities": CAPABILITIES, **self.broker.properties}
        return commands.Connection.Start(0, 9, properties, "PLAIN", "en_US")

    def _receive(self) -> bytes:
        data = self.sock.recv(65536)
        if not data:
            raise OSError("end of file")
        return data

    def _beat(self, interval: float) -> None:
        while not self._stop_beating.wait(interval):
            self.send(0, Heartbeat())

    def _handle(self, channel: int, value: Any) -> None:
        if isinstance(value, header.ContentHeader):
            self._properties, self._wanted, self._body = value.properties, value.body_size, b""
        elif isinstance(value, ContentBody):
            self._body += value.value
        elif isinstance(value, Heartbeat):
            self.broker.heartbeats += 1
            return
        else:
            self.broker.store.calls.append((self.broker.name, value.name))
            refused = self.broker.close_for(value)
            if refused is None:
                self._method(channel, value)
            elif refused is not UNANSWERED:
                self._close(refused)
            return
        if len(self._body) >= self._wanted:
            self._published(channel)

    def _close(self, refused: tuple[int, str]) -> None:
        self.send(0, commands.Connection.Close(*refused, 60, 40))
        self.deaf = True

    def _published(self, channel: int) -> None:
        key = self._publish.routing_key
        self.publishes += 1
        broker = self.broker
        refused = broker.close_at(self._body)
        if refused is not None:
            self._close(refused)
            return
        if broker.unroutable:
            self.send(
                channel,
                commands.Basic.Return(312, "NO_ROUTE", "", key),
                header.ContentHeader(0, len(self._body), self._properties),
                ContentBody(self._body),
            )
        elif broker.confirm != "nack":
            stored = (key, self._properties, self._body, False)
            self._do(channel, lambda: broker.store.queues.setdefault(key, deque()).append(stored))
        if channel in self.transactions:
            return
        self.confirming[channel] = tag = self.confirming.get(channel, 0) + 1
        if broker.confirm == "ack":
            self.send(channel, commands.Basic.Ack(tag, False))
        elif broker.confirm == "nack":
            self.send(channel, commands.Basic.Nack(tag, False, False))
        else:
            self.held.append((channel, tag, key, self._properties, self._body))
        pump_all(broker)

    def _method(self, channel: int, method: Any) -> None:
        handler = getattr(self, "_on_" + method.name.replace(".", "_").lower(), None)
        if handler is not None:
            handler(channel, method)

    def _on_connection_startok(self, channel: int, method: Any) -> None:
        if self.broker.mode == "deny":
            self.send(0, commands.Connection.Close(403, "ACCESS_REFUSED", 0, 0))
        else:
            self.send(0, commands.Connection.Tune(0, self.broker.frame_max, self.broker.heartbeat_offered))

    def _on_connection_tuneok(self, channel: int, method: Any) -> None:
        if method.heartbeat and self.broker.beats:
            threading.Thread(target=self._beat, args=(method.heartbeat / 2,), daemon=True).start()

    def _on_connection_open(self, channel: int, method: Any) -> None:
        if self.broker.mode == "refuse":
            self.send(0, commands.Connection.Close(320, self.broker.refusal, 10, 40))
        elif self.broker.mode != "stall":
            self.send(0, commands.Connection.OpenOk())

    def _on_connection_close(self, channel: int, method: Any) -> None:
        self.send(0, commands.Connection.CloseOk())

    def _on_channel_open(self, channel: int, method: Any) -> None:
        self.send(channel, commands.Channel.OpenOk())

    def _on_channel_close(self, channel: int, method: Any) -> None:
        self.consumers = {tag: found for tag, found in self.consumers.items() if found[0] != channel}
        self._give_back(channel)
        self.transactions.pop(channel, None)
        self.send(channel, commands.Channel.CloseOk())

    def _on_confirm_select(self, channel: int, method: Any) -> None:
        self.confirming[channel] = 0
        self.send(channel, commands.Confirm.SelectOk())

    def _do(self, channel: int, action: Callable[[], object]) -> None:
        """Now, or with the transaction."""
        if channel in self.transactions:
            self.transactions[channel].append(action)
        else:
            action()

    def _on_tx_select(self, channel: int, method: Any) -> None:
        self.transactions[channel] = []
        self.send(channel, commands.Tx.SelectOk())

    def _on_tx_commit(self, channel: int, method: Any) -> None:
        if self.broker.commit == "drop":
            self.reset()
        elif self.broker.commit != "hold":
            actions, self.transactions[channel] = self.transactions[channel], []
            for action in actions:
                action()
            if self.broker.commit == "drop_after":
                self.reset()
            self.send(channel, commands.Tx.CommitOk())
            pump_all(self.broker)

    def _on_tx_rollback(self, channel: int, method: Any) -> None:
        self.transactions[channel] = []
        self.send(channel, commands.Tx.RollbackOk())

    def _on_basic_recover(self, channel: int, method: Any) -> None:
        self.send(channel, commands.Basic.RecoverOk())
        self._give_back(channel)
        pump_all(self.broker)

    def _give_back(self, channel: int) -> None:
        for tag in [tag for tag in reversed(self.unacked) if self.channel_of[tag] == channel]:
            _, queue, (key, properties, body, _redelivered) = self.unacked.pop(tag)
            self.broker.store.queues[queue].appendleft((key, properties, body, True))

    def _on_basic_get(self, channel: int, method: Any) -> None:
        queue = self.broker.store.queues.get(method.queue)
        if not queue:
            self.send(channel, commands.Basic.GetEmpty())
            return
        message = queue.popleft()
        key, properties, body, redelivered = message
        self.deliveries += 1
        self.channel_of[self.deliveries] = channel
        if not method.no_ack:
            self.unacked[self.deliveries] = ("", method.queue, message)
        frames: list[Any] = [commands.Basic.GetOk(self.deliveries, redelivered, "", key, len(queue))]
        frames.append(header.ContentHeader(0, len(body), properties))
        self.send(channel, *frames, *([ContentBody(body)] if body else []))

    def _on_queue_declare(self, channel: int, method: Any) -> None:
        refused = self.broker.refuse_declare(method.queue)
        if refused is not None:
            self.send(channel, commands.Channel.Close(*refused, 50, 10))
            return
        queue = self.broker.store.queues.setdefault(method.queue, deque())
        if not method.nowait:
            self.send(channel, commands.Queue.DeclareOk(method.queue, len(queue), 0))

    def _on_queue_bind(self, channel: int, method: Any) -> None:
        if not method.nowait:
            self.send(channel, commands.Queue.BindOk())

    def _on_exchange_declare(self, channel: int, method: Any) -> None:
        if not method.nowait:
            self.send(channel, commands.Exchange.DeclareOk())

    def _on_basic_qos(self, channel: int, method: Any) -> None:
        self.prefetch = method.prefetch_count
        self.send(channel, commands.Basic.QosOk())

    def _on_basic_consume(self, channel: int, method: Any) -> None:
        self.consumers[method.consumer_tag] = (channel, method.queue, self.prefetch)
        if not method.nowait:
            self.send(channel, commands.Basic.ConsumeOk(method.consumer_tag))
        pump_all(self.broker)

    def _on_basic_cancel(self, channel: int, method: Any) -> None:
        self.consumers.pop(method.consumer_tag, None)
        self.send(channel, commands.Basic.CancelOk(method.consumer_tag))

    def _on_basic_publish(self, channel: int, method: Any) -> None:
        self._publish = method

    def _on_basic_ack(self, channel: int, method: Any) -> None:
        last = method.delivery_tag
        mine = [tag for tag in self.unacked if self.channel_of[tag] == channel]
        tags = [tag for tag in mine if tag == last or (method.multiple and tag < last)]
        self._do(channel, lambda: [self.unacked.pop(tag, None) for tag in tags] and None)
        pump_all(self.broker)

    def _on_basic_reject(self, channel: int, method: Any) -> None:
        self._do(channel, lambda: self._rejected(method))

    def _rejected(self, method: Any) -> None:
        _, queue, (key, properties, body, _redelivered) = self.unacked.pop(method.delivery_tag)
        if method.requeue:
            self.broker.store.queues[queue].appendleft((key, properties, body, True))
        pump_all(self.broker)

    def pump(self) -> None:
        queues = self.broker.store.queues
        for tag, (channel, queue, prefetch) in self.consumers.items():
            open_here = sum(1 for consumer, _, _ in self.unacked.values() if consumer == tag)
            while queues.get(queue) and open_here < (prefetch or 1 << 30):
                message = queues[queue].popleft()
                self.deliveries += 1
                self.channel_of[self.deliveries] = channel
                open_here += 1
                self.unacked[self.deliveries] = (tag, queue, message)
                key, properties, body, redelivered = message
                frames: list[Any] = [commands.Basic.Deliver(tag, self.deliveries, redelivered, "", key)]
                frames.append(header.ContentHeader(0, len(body), properties))
                self.send(channel, *frames, *([ContentBody(body)] if body else []))


CAPABILITIES: Any = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True}


def pump_all(broker: ScriptedBroker) -> None:
    """What a peer gives back goes to those of all brokers: a client may be at the next one already."""
    with broker.store.lock:
        for peer in [peer for other in broker.store.brokers for peer in other.peers]:
            if not peer.gone and not peer.deaf:
                peer.pump()
