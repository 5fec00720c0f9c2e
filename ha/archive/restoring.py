"""`ha.restore`: configuration and messages of an archive into an empty cluster.

    {"action": "begin"}                     {"id", "again": what an interrupted restore had left was deleted}
    {"action": "lines", "id", "text"}       {"objects", "messages"} so far; `text` goes on where the last one ended
    {"action": "end", "id", objects, messages}    {"objects", "messages"}
    {"action": "abandon"}                   {"again": something was deleted}

Theory.  All or nothing, as clients see it: while the queue MARKER is there no client is admitted.  It is made first and
deleted last, in the log, so every later primary knows of it, too.  A restore that was interrupted leaves it: the next
`begin` deletes what had come, which no client has ever seen, and begins anew; `abandon` deletes it and opens the empty
cluster.  Everything is answered when it is safe (on all brokers in sync).

Messages keep their order in each queue, their content header and body, and the exchange and routing key that they were
published with.  Their ids are new.  Times to live and delays begin anew.  What had been handed out says `redelivered`.
                                                                                                                 Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ha.model.environment import Json, Reply
from ha.model.protocol import need
from qpidd_py.amqp.codec import decode_properties
from qpidd_py.broker.arguments import REPLICATE
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.host_settings import host_of
from qpidd_py.broker.operation_rules import check_operation
from qpidd_py.broker.operations import octets, setting_key
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.settings import Key
from qpidd_py.broker.shadow import own_queue
from qpidd_py.broker.vhost import VHost
from qpidd_py.core import Queue, Route
from qpidd_py.core.letters import hand_out
from qpidd_py.core.queue import NO_LIMIT
from qpidd_py.errors import AmqpError, LinkError, ReplyCode
from qpidd_py.store.archive import (
    DECLARE_EXCHANGE,
    DECLARE_QUEUE,
    PUT_SETTING,
    ArchiveError,
    Message,
    decode_line,
    decode_message,
    decode_object,
)

_SIZE: Final = slice(4, 12)
"""Where a content header has the size of the body."""
_SHORT: Final = 255
MARKER: Final = "amq.qpid.restore"
"""No client can declare it: it would close the cluster for all."""
CLOSED: Final = "CONNECTION_FORCED - an archive is being restored here, or its restore was interrupted"


class Restoring:
    """One restore, on one primary."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._partial: list[str] = []
        """A line that has not come as a whole."""
        self._handed_out: dict[Queue, int] = {}
        """Queue -> id of its last message that had been handed out."""
        self._limits: dict[Queue, tuple[int, int]] = {}
        """Queue -> the most messages and octets in it."""
        self.objects = self.messages = 0

    def take(self, text: str) -> None:
        """Lines of an archive, in pieces.  Raises ArchiveError and AmqpError."""
        self._partial.append(text)
        if "\n" not in text:
            return
        *lines, rest = "".join(self._partial).split("\n")
        self._partial = [rest] if rest else []
        for line in lines:
            value = decode_line(line.encode())
            if "object" in value:
                self._restore(decode_object(value))
            else:
                self._message(decode_message(value))

    def finish(self, objects: int, messages: int) -> None:
        """Raises ArchiveError unless everything has come."""
        if self._partial or (objects, messages) != (self.objects, self.messages):
            found = f"{self.messages} messages and {self.objects} objects"
            raise ArchiveError(f"{found} have come, expected {messages} and {objects}")
        for core, limits in self._limits.items():
            core.max_count, core.max_bytes = limits
        for core, id in self._handed_out.items():
            hand_out(self._engine, core, id)

    @property
    def counts(self) -> Json:
        return {"objects": self.objects, "messages": self.messages}

    def _restore(self, operation: dict[str, Any]) -> None:
        try:
            self._object(operation)
        except KeyError as error:
            raise ArchiveError(f"an object of the archive ({operation['op']}) lacks {error}") from error

    def _object(self, operation: dict[str, Any]) -> None:
        vhost, arguments, kind = self._vhost(host_of(operation)), operation.get("arguments", {}), operation["op"]
        if kind == PUT_SETTING:
            self._setting(operation)
        elif kind == DECLARE_QUEUE:
            name, durable, auto_delete = (operation[key] for key in ("name", "durable", "auto_delete"))
            if name == MARKER and vhost is self._broker.vhost:
                raise ArchiveError(f"a queue {name!r}: the archive is of a cluster into which one was being restored")
            queue, _ = vhost.declare_queue(None, name, durable, False, auto_delete, arguments)
            self._limits[queue.core] = queue.core.max_count, queue.core.max_bytes
            # What had been handed out counts again: the queue may be over its limit, and nothing of it is dropped.
            queue.core.max_count = queue.core.max_bytes = NO_LIMIT
        elif kind == DECLARE_EXCHANGE:
            flags = [operation[key] for key in ("durable", "auto_delete", "internal")]
            vhost.declare_exchange(operation["name"], operation["type"], flags[0], flags[1], flags[2], arguments)
        else:
            ends = vhost.exchanges if operation["exchange"] else vhost.queues
            destination: DeclaredQueue | Exchange | None = ends.get(operation["destination"])
            if destination is None:
                raise ArchiveError(f"a binding to {operation['destination']!r}, which is not in the archive")
            vhost.bindings.bind(operation["source"], destination, octets(operation["key"]), arguments)
        self.objects += 1

    def _setting(self, operation: dict[str, Any]) -> None:
        """Backups would not follow one that is none."""
        try:
            check_operation(operation)
        except LinkError as error:
            raise ArchiveError(str(error)) from error
        self._broker.settings.put(Key(*setting_key(operation)), operation["value"])

    def _vhost(self, name: str) -> VHost:
        found = self._broker.vhosts.present(name)
        if found is None:
            raise ArchiveError(f"virtual host {name!r:.80} is not in the archive")
        return found

    def _message(self, message: Message) -> None:
        vhost = self._vhost(message.host)
        queue = vhost.queues.get(message.queue) or own_queue(vhost.exchanges, message.queue)
        if queue is None:
            raise ArchiveError(f"a message in queue {message.queue!r}, which is not in the archive")
        check_content(message)
        route = Route([queue.core])
        id = self._engine.publish(route, message.exchange, message.routing_key, message.header, message.body)
        if not id:
            raise ArchiveError(f"queue {message.queue!r} has refused a message: it is full")
        if message.redelivered:
            self._handed_out[queue.core] = id
        self.messages += 1


def check_content(message: Message) -> None:
    """Raises ArchiveError for what no client could have published: it would break the connections of consumers."""
    try:
        decode_properties(message.header)
    except AmqpError as error:
        raise ArchiveError(f"message {message.id:x}: {error.reply_text}") from error
    if int.from_bytes(message.header[_SIZE], "big") != len(message.body):
        raise ArchiveError(f"message {message.id:x}: its header does not fit a body of {len(message.body)} octets")
    if max(len(message.exchange), len(message.routing_key)) > _SHORT:
        raise ArchiveError(f"message {message.id:x}: its exchange or routing key has more than {_SHORT} octets")


class RestoreDoor:
    """Answers `ha.restore`; one per broker."""

    def __init__(self, broker: Broker, refusal: Callable[[], str], log: Callable[[str, str], None]) -> None:
        """`refusal`: why nothing can be restored here now; `log`: level and text."""
        self._broker = broker
        self._refusal = refusal
        self._log = log
        self._id = 0
        self._restoring: Restoring | None = None
        self._actions: dict[str, Callable[[Json], Json]] = {
            "begin": self._begin,
            "lines": self._lines,
            "end": self._end,
            "abandon": self._abandon,
        }

    @property
    def closed(self) -> str:
        """Why no client is admitted; empty if they are."""
        return CLOSED if MARKER in self._broker.vhost.queues else ""

    def request(self, arguments: Json, user: str, reply: Reply) -> None:
        """Raises LinkError with the reason of a refusal."""
        action = self._actions.get(str(arguments.get("action")))
        if action is None:
            raise LinkError(f"action {arguments.get('action')!r}, expected {', '.join(self._actions)}")
        if why := self._refusal() or self._broker.blocked:
            raise LinkError(why)
        try:
            result = action(arguments)
        except (ArchiveError, AmqpError) as error:
            self._restoring = None
            raise LinkError(str(error) if isinstance(error, ArchiveError) else error.reply_text) from error

        def answer(safe: bool) -> None:
            doubt = "this broker has been deposed meanwhile"
            reply({"ok": True, "result": result} if safe else {"ok": False, "error": doubt})

        self._broker.engine.when_safe(self._broker.vhost.operation_log.sealed(), answer)

    def _begin(self, arguments: Json) -> Json:
        again = bool(self.closed)
        if again:
            self._clear()
        elif found := self._found():
            raise LinkError(f"the cluster is not empty: it has {found}")
        self._broker.vhost.declare_queue(None, MARKER, True, False, False, {REPLICATE: "all"})
        for connection in list(self._broker.connections):
            if connection.link is None and not connection.client.admin:
                connection.close(ReplyCode.CONNECTION_FORCED, CLOSED)
        self._id += 1
        self._restoring = Restoring(self._broker)
        self._log("notice", "a restore has begun: no client is admitted until it has ended")
        return {"id": self._id, "again": again}

    def _lines(self, arguments: Json) -> Json:
        restoring = self._current(arguments)
        restoring.take(need(arguments, "text", str))
        return restoring.counts

    def _end(self, arguments: Json) -> Json:
        restoring = self._current(arguments)
        restoring.finish(need(arguments, "objects", int), need(arguments, "messages", int))
        self._broker.vhost.delete_queue(None, MARKER, False, False)
        self._restoring = None
        counts = restoring.counts
        self._log(
            "notice", f"restored: {counts['messages']} messages, {counts['objects']} objects; clients are admitted"
        )
        return counts

    def _abandon(self, arguments: Json) -> Json:
        again = bool(self.closed)
        if again:
            self._clear()
            self._broker.vhost.delete_queue(None, MARKER, False, False)
            self._log("notice", "an interrupted restore was abandoned: what it had restored is deleted")
        self._restoring = None
        return {"again": again}

    def _current(self, arguments: Json) -> Restoring:
        id = need(arguments, "id", int)
        if self._restoring is None or id != self._id or not self.closed:
            raise LinkError(f"no restore {id} is under way here: begin again")
        return self._restoring

    def _found(self) -> str:
        """What the cluster has that was not always there."""
        vhosts = list(self._broker.vhosts)
        queues = [queue for vhost in vhosts for queue in vhost.queues.values() if not queue.exclusive]
        exchanges = [item for vhost in vhosts for item in vhost.exchanges.values() if not item.predeclared]
        found = [f"queue {queue.name!r}" for queue in queues] + [f"exchange {item.name!r}" for item in exchanges]
        found += [f"{key.kind} {key.name or key.host!r}" for key in self._broker.settings]
        return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    def _clear(self) -> None:
        """Delete what an interrupted restore has left."""
        for vhost in self._broker.vhosts:
            self._clear_host(vhost)
        for key in self._broker.settings:
            self._broker.settings.delete(key)

    def _clear_host(self, vhost: VHost) -> None:
        for queue in [queue for queue in vhost.queues.values() if not self._is_marker(queue)]:
            if vhost.queues.get(queue.name) is queue:
                self._broker.engine.purge(queue.core)  # nothing of it goes to an alternate exchange
                vhost.endings.remove_queue(queue)
        for exchange in [item for item in vhost.exchanges.values() if not item.predeclared]:
            if vhost.exchanges.get(exchange.name) is exchange:
                vhost.delete_exchange(exchange.name, False)

    def _is_marker(self, queue: DeclaredQueue) -> bool:
        return queue is self._broker.vhost.queues.get(MARKER)
