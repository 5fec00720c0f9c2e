"""One conversation with one broker, and what came back.

What a broker does of its own accord comes when it likes.  So after each step the client asks its channel, which has
handled the step when it answers; after one that may move messages each queue on another channel (how many messages and
consumers?), twice if one queue may send to another; and its channel again, which has then delivered what the queues
handed out.  What came between two steps is one entry of the transcript: methods in their order, then content in the
order of consumer tags.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import pamqp.body
import pamqp.header
from pamqp import commands

from qpidd_py.amqp.codec import encode_method, make
from tests.differential.steps import EXCHANGES, QUEUES, REPLY_TO, Step
from tests.support.memory import publish_octets
from tests.support.three_ways import Client

Basic, Channel, Confirm, Connection, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)
CAPABILITIES: Final = {"capabilities": {"consumer_cancel_notify": True, "basic.nack": True}}
OPTIONS: Final = {"frame_max": 131072, "channel_max": 2047, "properties": CAPABILITIES}
SYNC: Final = "differential"
"""A queue that is always there."""
BARRIER: Final = encode_method(1, Queue.Declare(queue=SYNC, passive=True))
LATER: Final = ("Basic.Cancel", "Basic.Ack", "Basic.Nack", "queues")
"""What a broker sends when it likes, next to answers."""
ADDRESS: Final = "address of a direct reply"
FIRST_STATE: Final = 10
"""The channel on which the first queue is asked."""
CLEANING: Final = 100
"""The channel on which the first queue is deleted."""
DELETED: Final = (Queue.DeleteOk, Exchange.DeleteOk, Channel.Close)
STILL: Final = {"exchange", "bind", "unbind", "exchange-bind", "exchange-unbind", "confirm", "declare-replies"}
"""Steps that move no message, if they are not refused."""
UNKNOWN: Final = 1000
"""A delivery tag that no conversation reaches."""

Seen = list[Any]
"""What a step brought."""


class Ended(Exception):
    """The broker has closed the connection; what came is in the transcript."""


class Line:
    """The connection to one broker, which one conversation after the other uses: to open one costs a broker as much as
    some steps."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.client = self._connected()
        self.client.declare(SYNC)

    def renew(self) -> None:
        self.client.close()
        self.client = self._connected()

    def _connected(self) -> Client:
        client = Client(self._port)
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.open(**OPTIONS)
        for first, count in ((FIRST_STATE, len(QUEUES)), (CLEANING, len(QUEUES) + len(EXCHANGES))):
            for channel in range(first, first + count):
                client.open_channel(channel)
        return client


class Conversation:
    """Uses channel 1 of a line, and leaves it as new."""

    def __init__(self, line: Line, prefix: str) -> None:
        """`prefix` is put before each name that is not predeclared; the same for all brokers."""
        self._line = line
        self._prefix = prefix
        self._seen: Seen = []
        self._content: list[list[Any]] = []
        self._held: list[int] = []  # delivery tags that are not settled
        self._published = self._confirmed = 0
        self._numbered = 0
        self._asked = ""  # the address of the direct reply that was asked for last
        self._without_ack: set[str] = set()
        self._answers: dict[int, Any] = {}
        self._refused: dict[int, Any] = {}
        self._confirming = self._passed = self._reopened = False
        self._alone = (
            False  # nothing may follow before the answer: RabbitMQ refuses what comes behind tx.commit with 504
        )
        self._open = True

    @property
    def _client(self) -> Client:
        return self._line.client

    def hold(self, steps: list[Step]) -> list[Seen]:
        """The transcript: an entry for each step, the first for none."""
        found: list[Seen] = []
        sends_on = any("x-dead-letter-exchange" in values.get("arguments", {}) for _, values in steps)
        try:
            for step in steps:
                self._send(*step)
                self._collect(step[0] not in STILL, sends_on)
                found.append(self._entry())
        except Ended:
            found.append(self._entry())
            self._line.renew()
        self._clean()
        return found

    def _clean(self) -> None:
        """The next conversation meets no consumer, and no queue that is bound to a predeclared exchange."""
        self._close_channel()
        self._until(1, Channel.CloseOk)
        self._client.send(encode_method(1, Channel.Open()))
        self._until(1, Channel.OpenOk)
        for channel, name in enumerate((*QUEUES, *EXCHANGES), CLEANING):
            kind = Queue.Delete(queue=self._prefix + name) if name in QUEUES else None
            self._client.send(encode_method(channel, kind or Exchange.Delete(exchange=self._prefix + name)))
            if isinstance(self._until(channel, DELETED), Channel.Close):
                self._client.send(encode_method(channel, Channel.CloseOk()), encode_method(channel, Channel.Open()))
                self._until(channel, Channel.OpenOk)

    def _until(self, channel: int, kind: Any) -> Any:
        """The next method of that kind on that channel."""
        while not isinstance((got := self._client.read())[1], kind) or got[0] != channel:
            pass
        return got[1]

    # ------------------------------------------------------------ what is sent

    def _name(self, name: str) -> str:
        return name if not name or name.startswith("amq.") else self._prefix + name

    def _named(self, values: Any) -> Any:
        """With our prefix, wherever there is the name of a queue or exchange of ours."""
        if isinstance(values, dict):
            return {name: self._named(value) for name, value in values.items()}
        if isinstance(values, list):
            return [self._named(value) for value in values]
        return self._prefix + values if values in (*QUEUES, "x0", "x1") else values

    def _send(self, name: str, values: dict[str, Any]) -> None:
        getattr(self, "_" + name.replace("-", "_"))(**self._named(values))

    def _method(self, command: Any, **fields: Any) -> None:
        self._client.send(encode_method(1, make(command, **fields)))

    def _declare(self, **fields: Any) -> None:
        self._method(Queue.Declare, ticket=0, passive=False, nowait=False, **fields)

    def _exchange(self, **fields: Any) -> None:
        self._method(Exchange.Declare, ticket=0, passive=False, nowait=False, **fields)

    def _bind(self, **fields: Any) -> None:
        self._method(Queue.Bind, ticket=0, nowait=False, **fields)

    def _unbind(self, **fields: Any) -> None:
        self._method(Queue.Unbind, ticket=0, **fields)

    def _exchange_bind(self, **fields: Any) -> None:
        self._method(Exchange.Bind, ticket=0, nowait=False, arguments={}, **fields)

    def _exchange_unbind(self, **fields: Any) -> None:
        self._method(Exchange.Unbind, ticket=0, nowait=False, arguments={}, **fields)

    def _publish(self, **fields: Any) -> None:
        self._numbered += 1
        self._published += self._confirming
        self._client.send(publish_octets(b"%03d" % self._numbered, **fields))

    def _reply(self, mandatory: bool) -> None:
        """To whoever has asked for a direct reply last."""
        self._publish(exchange="", routing_key=self._asked or "nobody", mandatory=mandatory)

    def _declare_replies(self, passive: bool, answered: bool) -> None:
        flags = {"durable": False, "exclusive": False, "auto_delete": False, "nowait": False, "arguments": {}}
        queue = self._asked if answered and self._asked else REPLY_TO
        self._method(Queue.Declare, ticket=0, queue=queue, passive=passive, **flags)

    def _get(self, queue: str, no_ack: bool) -> None:
        self._without_ack -= {""}
        self._without_ack |= {""} if no_ack else set()
        self._method(Basic.Get, ticket=0, queue=queue, no_ack=no_ack)

    def _consume(self, queue: str, tag: str, no_ack: bool, exclusive: bool, priority: int | None) -> None:
        self._without_ack -= {tag}
        self._without_ack |= {tag} if no_ack else set()
        arguments = {} if priority is None else {"x-priority": priority}
        flags = {"no_local": False, "no_ack": no_ack, "exclusive": exclusive, "nowait": False}
        self._method(Basic.Consume, ticket=0, queue=queue, consumer_tag=tag, arguments=arguments, **flags)

    def _cancel(self, tag: str) -> None:
        self._method(Basic.Cancel, consumer_tag=tag, nowait=False)

    def _qos(self, count: int, everywhere: bool) -> None:
        self._method(Basic.Qos, prefetch_size=0, prefetch_count=count, global_=everywhere)

    def _recover(self, requeue: bool) -> None:
        self._held.clear()
        self._method(Basic.Recover, requeue=requeue)

    def _settle(self, place: int, how: str, requeue: bool, multiple: bool) -> None:
        """One of the deliveries that the client holds; nothing if it holds so few."""
        if place >= len(self._held):
            return
        tag = self._held[place]
        several = multiple and how != "reject"
        self._held = [held for held in self._held if held != tag and not (several and held < tag)]
        self._settled(tag, how, requeue, multiple)

    def _settle_unknown(self) -> None:
        self._settled(UNKNOWN, "ack", False, False)

    def _settled(self, tag: int, how: str, requeue: bool, multiple: bool) -> None:
        if how == "ack":
            self._method(Basic.Ack, delivery_tag=tag, multiple=multiple)
        elif how == "nack":
            self._method(Basic.Nack, delivery_tag=tag, multiple=multiple, requeue=requeue)
        else:
            self._method(Basic.Reject, delivery_tag=tag, requeue=requeue)

    def _purge(self, queue: str) -> None:
        self._method(Queue.Purge, ticket=0, queue=queue, nowait=False)

    def _delete(self, **fields: Any) -> None:
        self._method(Queue.Delete, ticket=0, nowait=False, **fields)

    def _exchange_delete(self, **fields: Any) -> None:
        self._method(Exchange.Delete, ticket=0, nowait=False, **fields)

    def _confirm(self) -> None:
        self._method(Confirm.Select, nowait=False)

    def _tx(self) -> None:
        self._method(Tx.Select)

    def _commit(self) -> None:
        self._method(Tx.Commit)
        self._alone = True

    def _rollback(self) -> None:
        self._method(Tx.Rollback)

    def _close_channel(self) -> None:
        self._method(Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        self._alone = True

    # ------------------------------------------------------------ what comes

    def _collect(self, moves: bool, sends_on: bool) -> None:
        """`moves`: the step may take messages from one place to another (a channel that it closes does), `sends_on`: a
        queue may send them to the next."""
        self._reopened = False
        self._barrier()
        if moves or self._reopened:
            states = self._states()
            if sends_on and (again := self._states()) != states:
                again = self._states()
            self._barrier()
            self._seen.append(("queues", *(again if sends_on else states)))
        while self._confirming and self._confirmed < self._published and self._open:
            self._read()  # what goes to a disk is confirmed later

    def _barrier(self) -> None:
        """Until the channel has handled all that came before."""
        self._passed = sent = False
        while not self._passed:
            if not self._open:
                self._reopen()
                sent = False
            if not self._alone and not sent:
                self._client.send(BARRIER)
                sent = True
            self._read()

    def _reopen(self) -> None:
        self._reopened = True
        self._held.clear()
        self._published = self._confirmed = 0
        self._confirming = self._alone = False
        self._client.send(encode_method(1, Channel.Open()))
        while not self._open:
            self._read()

    def _states(self) -> list[Any]:
        """Of each queue: how many messages and consumers, or the code of the refusal."""
        self._answers.clear()
        for place, queue in enumerate(QUEUES):
            command = Queue.Declare(queue=self._prefix + queue, passive=True)
            self._client.send(encode_method(FIRST_STATE + place, command))
        while len(self._answers) < len(QUEUES):
            self._read()
        return [self._answers[place] for place in sorted(self._answers)]

    def _read(self) -> None:
        """One frame."""
        got = self._client.read()
        if got is None or isinstance(got[1], Connection.Close):
            self._seen.append(("connection.close", got and got[1].reply_code))
            raise Ended
        channel, frame = got
        if channel < FIRST_STATE:
            self._note(frame)
        elif isinstance(frame, Queue.DeclareOk):
            self._answers[channel] = (frame.message_count, frame.consumer_count)
        elif isinstance(frame, Channel.Close):
            self._client.send(encode_method(channel, Channel.CloseOk()), encode_method(channel, Channel.Open()))
            self._refused[channel] = frame.reply_code
        else:
            assert isinstance(frame, Channel.OpenOk), frame
            self._answers[channel] = self._refused.pop(channel)

    def _note(self, frame: Any) -> None:
        """Of the conversation's own channel."""
        if isinstance(frame, pamqp.header.ContentHeader):
            properties = _readable(frame.properties)
            if properties.get("reply_to", "").startswith(REPLY_TO + "."):
                self._asked, properties["reply_to"] = properties["reply_to"], ADDRESS
            self._content[-1].append(properties)
        elif isinstance(frame, pamqp.body.ContentBody):
            self._content[-1].append(frame.value)
        elif isinstance(frame, (Basic.Deliver, Basic.GetOk, Basic.Return)):
            self._content.append([frame])
        elif isinstance(frame, Queue.DeclareOk) and frame.queue == SYNC:
            self._passed = True
        elif isinstance(frame, (Basic.Ack, Basic.Nack)):
            self._confirm_came(frame)
        elif isinstance(frame, Channel.OpenOk):
            self._open = True
        else:
            self._method_came(frame)

    def _method_came(self, frame: Any) -> None:
        self._alone = False
        if isinstance(frame, Channel.Close):
            self._client.send(encode_method(1, Channel.CloseOk()))
            self._seen.append((frame.name, frame.reply_code, frame.class_id, frame.method_id))
        else:
            values = (value for name, value in frame if name != "delivery_tag")
            self._seen.append((frame.name, *(ADDRESS if value == self._asked else value for value in values)))
        self._open = self._open and not isinstance(frame, (Channel.Close, Channel.CloseOk))
        self._confirming = self._confirming or isinstance(frame, Confirm.SelectOk)

    def _confirm_came(self, frame: Any) -> None:
        first = self._confirmed + 1 if frame.multiple else frame.delivery_tag
        for tag in range(first, frame.delivery_tag + 1):
            self._seen.append((frame.name, tag))
        self._confirmed = frame.delivery_tag

    def _entry(self) -> Seen:
        """What came, and what of it the client holds now."""
        self._seen.sort(key=lambda item: (LATER.index(item[0]), item) if item[0] in LATER else (-1,))
        content = sorted(self._content, key=lambda item: getattr(item[0], "consumer_tag", "") or "")
        for frame, *rest in content:
            fields = {name: value for name, value in frame if name not in ("delivery_tag", "cluster_id")}
            tag = fields.get("consumer_tag", "")
            if fields["routing_key"] == self._asked:
                fields["routing_key"] = ADDRESS
            self._seen.append((frame.name, fields, *rest))
            if not isinstance(frame, Basic.Return) and tag not in self._without_ack:
                self._held.append(frame.delivery_tag)
        seen, self._seen = self._seen, []
        self._content.clear()
        return seen


def _readable(properties: Any) -> dict[str, Any]:
    """Those that are there, without the time of deaths, and without what RabbitMQ 3.10 does not count."""
    found = {name: value for name, value in properties if value not in (None, "")}
    (found.get("headers") or {}).pop("x-acquired-count", None)
    for death in (found.get("headers") or {}).get("x-death", ()):
        death.pop("time")
    return found
