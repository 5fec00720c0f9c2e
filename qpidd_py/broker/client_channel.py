"""One channel of a client: the methods that are not on the data path, one short handler each, called by `methods`.

`hold` delays the reply to a change of configuration until the change is safe.  Until then the core keeps the frames of
this channel aside: while a reply is outstanding only handlers run that declare or bind, and these reply with `hold`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.codec import encode_content, encode_method, make
from qpidd_py.amqp.handshake import Handshake
from qpidd_py.broker.access import check_consumable, check_free, refuse
from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.arguments import CONSUMER_PRIORITY, FENCING_TOKEN, check_consumer_arguments
from qpidd_py.broker.judging import Judge
from qpidd_py.broker.limits import ConnectionCount, Counted
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.routing import MANAGEMENT
from qpidd_py.broker.vhost import VHost
from qpidd_py.core.channel import Channel
from qpidd_py.core.connection import Connection
from qpidd_py.errors import ConnectionException, ReplyCode

Basic, Confirm, Tx = commands.Basic, commands.Confirm, commands.Tx


@dataclass
class Emptying:
    """A purge, or the deletion of a queue, that goes on in the next slice."""

    queue: DeclaredQueue
    last: int
    """The id of the newest message when it began: what comes later stays."""
    dropped: int = 0


class Timeouts(Protocol):
    """See `ConsumerTimeouts`."""

    def watch(self, channel: ClientChannel) -> None: ...

    def forget(self, channel: ClientChannel) -> None: ...


class Host(Protocol):
    """What a channel uses of the broker."""

    @property
    def timeouts(self) -> Timeouts: ...

    @property
    def connection_count(self) -> ConnectionCount: ...

    def token(self) -> str: ...


class Owner(Counted, Protocol):
    """The connection of a channel, which `ClientConnection` is."""

    core: Connection
    handshake: Handshake
    judge: Judge
    number: int
    vhost: VHost

    @property
    def broker(self) -> Host: ...

    @property
    def channels(self) -> Mapping[int, ClientChannel]: ...

    @property
    def opened(self) -> bool: ...

    def close(self, code: int, text: str) -> None: ...

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None: ...

    def failing_late(self) -> AbstractContextManager[None]: ...

    def publishes(self) -> None: ...


class ClientChannel:
    """The Python part of a channel; the rest is in `core`."""

    def __init__(self, connection: Owner, core: Channel) -> None:
        self.connection = connection
        self.vhost = connection.vhost
        self.core = core
        self.number = core.number
        self.last_queue = ""  # declared last; meant by an empty queue name
        self.prefetch = 0  # of consumers to come
        self.management_tags: dict[str, int] = {}  # tag -> deliveries so far
        self.flowing = True  # False once the client has answered that it has stopped publishing
        self.emptying: Emptying | None = None
        self._reply_queue = self._reply_tag = ""  # gets the direct replies; it ends with its consumer
        self._tags = 0

    # ------------------------------------------------------------ replies

    def reply(self, command: Frame) -> None:
        self.connection.core.write(encode_method(self.number, command))

    def reply_when_safe(self, position: int, command: Frame, nowait: bool | None = False) -> None:
        """With `nowait` nothing is written, but what follows waits all the same: nobody runs ahead of the backups."""
        self.core.hold(position, b"" if nowait else encode_method(self.number, command))

    def queue_name(self, name: str) -> str:
        """An empty name means the queue that this channel declared last."""
        if name:
            return name
        if not self.last_queue:
            raise refuse(ReplyCode.NOT_FOUND, "no previously declared queue")
        return self.last_queue

    def find_queue(self, name: str) -> DeclaredQueue:
        return self.vhost.find_queue(self.queue_name(name), self.connection)

    def emptied(self, queue: DeclaredQueue | None, reason: str) -> int | None:
        """Drops what is ready in a queue now: how many messages that were.  None when the slice is over: the method
        comes again.  A queue that is gone meanwhile (`queue` is another, or none) has nothing more to drop."""
        job = self.emptying
        if job is None and queue is not None:
            job = Emptying(queue, self.vhost.engine.sequence)
        self.emptying = None
        if job is None or job.queue is not queue:
            return job.dropped if job else 0
        dropped, done = self.vhost.engine.purge_some(job.queue.core, job.last, reason)
        job.dropped += dropped
        if done:
            return job.dropped
        self.emptying = job
        self.core.connection.repeat()
        return None

    # ------------------------------------------------------------ channel

    def flow(self, command: commands.Channel.Flow) -> None:
        self.core.active = bool(command.active)
        self.reply(commands.Channel.FlowOk(command.active))

    def ask_flow(self, active: bool) -> None:
        """Asks the client to stop or resume publishing on this channel; see `pause.py`."""
        self.flowing = True
        self.reply(commands.Channel.Flow(active))

    def flow_ok(self, command: commands.Channel.FlowOk) -> None:
        """A flow-ok without a request is harmless."""
        self.flowing = bool(command.active)

    # ------------------------------------------------------------ consumers

    def qos(self, command: commands.Basic.Qos) -> None:
        if command.prefetch_size:
            text = f"prefetch_size!=0 ({command.prefetch_size})"
            raise ConnectionException(ReplyCode.NOT_IMPLEMENTED, text)
        if command.global_:
            self.core.prefetch = command.prefetch_count
            self.core.active = self.core.active  # wakes the consumers: there may be room now
        else:
            self.prefetch = command.prefetch_count
        self.reply(Basic.QosOk())

    def consume(self, command: commands.Basic.Consume) -> None:
        name = self.queue_name(command.queue)
        tag = command.consumer_tag or self._new_tag()
        if name == REPLY_TO and tag == self._reply_tag and tag in self.core.consumers:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
        if tag in self.core.consumers or tag in self.management_tags:
            raise ConnectionException(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if name == MANAGEMENT:
            self._consume_management(tag, command)
        elif name == REPLY_TO:
            self._consume_replies(tag, command)
        else:
            self._consume(self.vhost.find_queue(name, self.connection), tag, command)

    def _new_tag(self) -> str:
        self._tags += 1
        return f"amq.ctag-{self.connection.number}.{self.number}.{self._tags}"

    def _consume(self, queue: DeclaredQueue, tag: str, command: commands.Basic.Consume) -> None:
        arguments: Mapping[str, Any] = command.arguments or {}
        check_consumer_arguments(arguments, f"consumer of queue '{queue.name}' in vhost '{queue.host}'")
        check_free(queue)
        check_consumable(queue)
        if queue.consumed_exclusively or (command.exclusive and (queue.core.consumer_count or queue.core.single)):
            text = f"queue '{queue.name}' in vhost '{queue.host}' in exclusive use"
            raise refuse(ReplyCode.ACCESS_REFUSED, text)
        if not command.nowait:  # before the first delivery, which leaves at the end of this turn
            self.reply(Basic.ConsumeOk(tag))
        self.core.consume(queue.core, tag, bool(command.no_ack), self.prefetch, arguments.get(CONSUMER_PRIORITY, 0))
        queue.consumed_exclusively = bool(command.exclusive)
        self.vhost.consumer_added(queue)
        self._note("subscribe", queue.name, tag)
        if not command.no_ack:
            self.connection.broker.timeouts.watch(self)

    def _consume_management(self, tag: str, command: commands.Basic.Consume) -> None:
        if not command.no_ack:
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"answers from '{MANAGEMENT}' cannot be acknowledged")
        self.management_tags[tag] = 0
        if not command.nowait:
            self.reply(Basic.ConsumeOk(tag))

    def _consume_replies(self, tag: str, command: commands.Basic.Consume) -> None:
        if not command.no_ack:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self._reply_queue in self.vhost.queues:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
        queue = self.vhost.reply_queue(f"{REPLY_TO}.{self.connection.broker.token()}")
        self._reply_queue, self._reply_tag = queue.name, tag
        self._consume(queue, tag, command)

    def reply_address(self) -> str:
        """What direct replies to this channel are published to.  Raises 406 if it has no consumer for them."""
        if self._reply_queue not in self.vhost.queues:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist")
        return self._reply_queue

    def cancel(self, command: commands.Basic.Cancel) -> None:
        """An unknown tag is no error: the queue may just have been deleted."""
        tag = command.consumer_tag or ""
        self.management_tags.pop(tag, None)
        queue = self.core.cancel(tag)
        if not command.nowait:
            self.reply(Basic.CancelOk(tag))
        if queue is not None:
            self._note("unsubscribe", queue.name, tag)
            self.vhost.endings.consumers_gone([queue])

    def _note(self, event: str, queue: str, tag: str) -> None:
        connection = self.connection
        self.vhost.configuration.events.note(event, peer=connection.peer, user=connection.user, queue=queue, tag=tag)

    def cancel_ok(self, command: commands.Basic.CancelOk) -> None:
        """The answer to our cancel notification, from clients that answer it."""

    def get(self, command: commands.Basic.Get) -> None:
        queue = self.find_queue(command.queue)
        check_free(queue)
        check_consumable(queue)
        if queue.core.fenced:
            text = f"queue '{queue.name}' in vhost '{queue.host}' has '{FENCING_TOKEN}': use basic.consume"
            raise refuse(ReplyCode.PRECONDITION_FAILED, text)
        self.vhost.endings.idle.used(queue)
        self._get(queue, bool(command.no_ack))

    def _get(self, queue: DeclaredQueue, no_ack: bool) -> bool:
        """False when the message has to be read first; the frames behind this one wait until it has come."""

        def again() -> None:
            alive = self.connection.opened and self.connection.channels.get(self.number) is self
            if alive and self._get(queue, no_ack):
                self.core.resume()

        got = None if queue.core.deleted else self.core.get(queue.core, no_ack, again)
        if got is None and not queue.core.deleted:
            self.core.pause()
            return False
        if not got:
            self.reply(Basic.GetEmpty())
        elif not no_ack:
            self.connection.broker.timeouts.watch(self)
        return True

    def recover(self, command: commands.Basic.Recover) -> None:
        self.reply(Basic.RecoverOk())
        self.core.recover(bool(command.requeue))

    def recover_async(self, command: commands.Basic.RecoverAsync) -> None:
        self.core.recover(bool(command.requeue))

    # ------------------------------------------------------------ confirms and transactions

    def confirm_select(self, command: commands.Confirm.Select) -> None:
        if self.core.transactional:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self.core.confirm_select()
        if not command.nowait:
            self.reply(Confirm.SelectOk())

    def tx_select(self, command: commands.Tx.Select) -> None:
        if self.core.confirming:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        self.core.tx_select()
        self.reply(Tx.SelectOk())

    def tx_commit(self, command: commands.Tx.Commit) -> None:
        self._check_transactional()
        with self.connection.failing_late():
            position = self.core.tx_commit()
        if not self.core.closing:
            self.reply_when_safe(position, Tx.CommitOk())

    def tx_rollback(self, command: commands.Tx.Rollback) -> None:
        self._check_transactional()
        self.core.tx_rollback()
        self.reply(Tx.RollbackOk())

    def _check_transactional(self) -> None:
        if not self.core.transactional:
            raise refuse(ReplyCode.PRECONDITION_FAILED, "channel is not transactional")

    # ------------------------------------------------------------ from the broker

    def answer(self, correlation_id: str, body: bytes) -> None:
        """Delivers the answer to a management request, to the consumer of the pseudo queue if there is one."""
        for tag in list(self.management_tags)[:1]:
            self.management_tags[tag] += 1
            deliver = make(
                Basic.Deliver,
                consumer_tag=tag,
                delivery_tag=self.management_tags[tag],
                redelivered=False,
                exchange=MANAGEMENT,
                routing_key="",
            )
            properties: dict[str, Any] = {"content_type": "application/json", "correlation_id": correlation_id}
            frame_max = self.connection.core.frame_max
            self.connection.core.write(encode_content(self.number, deliver, properties, body, frame_max))
