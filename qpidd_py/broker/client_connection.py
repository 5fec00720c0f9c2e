"""One client connection: the handshake, the connection class, channels, heartbeats, and how all of it ends.

    HANDSHAKE --open admitted--> OPENED --close sent--> CLOSING --close-ok or time--> FINISHED
        |            \\                                                                   ^
        |             +--HA takes it over--> LINK ------------------------------------------+
        +--wrong header, refused login without the capability, time-----------------------+

    HANDSHAKE --admission decides later--> PUT_OFF, from where it goes on as from HANDSHAKE

The core calls the methods under "from the core" (its protocol `Owner`); the shell calls `tick` and `close`, and
supplies the `transport`.  Errors: a handler raises `AmqpError`, the core notes the state and calls `failed`, which
informs the peer.  Messages held by a failed channel or connection go back to their queues at once, not when the peer's
close-ok arrives.

No clock: `tick(now)` passes the time, and `patience` says when it is wanted next.  Silence is counted in ticks of at
most a second or a quarter of the heartbeat, so that a broker that was stopped for a minute does not close its live
clients when it resumes.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from struct import Struct
from typing import Final

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.codec import decode_method, decode_properties, encode_method, ids, make
from qpidd_py.amqp.constants import PROTOCOL_HEADER
from qpidd_py.amqp.handshake import Handshake
from qpidd_py.amqp.sasl import EXTERNAL
from qpidd_py.broker.acl_rights import AclRights
from qpidd_py.broker.addressing import REPLY_TO, copies, with_reply_to
from qpidd_py.broker.channels import Channels
from qpidd_py.broker.client_channel import ClientChannel
from qpidd_py.broker.endings import EndingError
from qpidd_py.broker.events import TEXT
from qpidd_py.broker.judging import Judge, log_refusal
from qpidd_py.broker.limits import Client
from qpidd_py.broker.opening import Opening, misplaced, tells_refusals
from qpidd_py.broker.permissions import Permissions
from qpidd_py.broker.ports import Host, Later, LinkHandler, SocketPort
from qpidd_py.broker.silence import Clock
from qpidd_py.broker.texts import cut, reply_text
from qpidd_py.core.connection import Connection
from qpidd_py.core.routes import Route
from qpidd_py.errors import AmqpError, ConnectionException, InvariantError, ReplyCode
from qpidd_py.logrules import NOTICE
from qpidd_py.security.entries import MONITORING
from qpidd_py.security.refusals import shown

log = logging.getLogger(__name__)

HANDSHAKE_FRAME: Final = 16384  # octets of a frame until limits are agreed
LONGEST_TICK: Final = 1.0  # seconds; see the head of this module
LIMIT_TICK: Final = 0.5  # seconds between two looks at a time limit

_INDEX = Struct(">I")


class State(enum.Enum):
    """See the head of this module."""

    HANDSHAKE = "handshake"
    PUT_OFF = "put off"
    OPENED = "opened"
    LINK = "link"
    CLOSING = "closing"
    FINISHED = "finished"


LIMITS: Final = {
    State.HANDSHAKE: (10.0, "connection.open"),
    State.PUT_OFF: (10.0, "admission"),
    State.CLOSING: (5.0, "close-ok"),
}
"""For how many seconds it waits for what."""


class ClientConnection:
    """The owner of one core connection."""

    def __init__(self, broker: Host[ClientConnection], peer: str, transport: SocketPort) -> None:
        self.broker = broker
        self.peer = peer
        self.transport = transport
        self.state = State.HANDSHAKE
        self.handshake = Handshake(broker.server_properties, broker.heartbeat)
        self.handshake.anonymous = broker.anonymous
        self.handshake.scram = broker.scram()
        self.client = Client(self.handshake, broker.couriers)
        self.judge = Judge("", peer, broker.coming_and_going)
        self.acl: AclRights  # from connection.open on
        self.core = Connection(broker.engine, self)
        self.core.frame_max = HANDSHAKE_FRAME
        self.vhost = broker.vhosts.default
        """Its own from connection.open on."""
        self.opening = Opening()
        self._channels = Channels()
        self.channels: Mapping[int, ClientChannel] = self._channels.open
        self.link: LinkHandler | None = None
        self.was_opened = False
        self.scarce = False  # its descriptor is one of the reserve
        self.end_reason = ""
        self._leaving = False
        """The peer goes, and some of what it had sent waits for an answer; see `Connection.leave`."""
        self._told_blocked = False
        self._flow = ""  # why this client's publishers wait, and not all
        self._clock = Clock()
        self.number = broker.joins(self)

    def failing_late(self) -> AbstractContextManager[None]:
        return self._channels.failing_late(self)

    @property
    def user(self) -> str:
        return self.handshake.user

    @property
    def holds_messages(self) -> bool:
        """True if it holds or waits for something that would be lost when this broker stops being primary."""
        cores = [channel.core for channel in self.channels.values()]
        return any(core.consumers or core.unacked_count or core.confirming or core.transactional for core in cores)

    @property
    def opened(self) -> bool:
        return self.state is State.OPENED

    @property
    def negotiating(self) -> bool:
        return self.state is State.HANDSHAKE

    @property
    def put_off(self) -> bool:
        """Logged in, and admission decides later."""
        return self.state is State.PUT_OFF

    @property
    def finished(self) -> bool:
        return self.state is State.FINISHED

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.peer} {self.state.value}>"

    # ------------------------------------------------------------ from the core

    def protocol_header(self, header: bytes) -> None:
        start = self.handshake.protocol_header(header, self.broker.clocks()[0])
        if start is None:
            self.core.write(PROTOCOL_HEADER)  # specification 4.2.2: sends the supported version, then closes
            self._finish(f"protocol header {header!r}")
        else:
            self.send(0, start)

    def method(self, channel: int, payload: bytes) -> None:
        if self.state in (State.FINISHED, State.LINK):
            return
        try:
            if channel == 0:
                self._connection_method(payload)
            elif self.state is State.OPENED:
                self._channels.method(self, channel, payload)
            elif self.state is State.HANDSHAKE:
                text = f"channel {channel} before the connection is open"
                raise ConnectionException(ReplyCode.CHANNEL_ERROR, text)
        except EndingError:
            self.core.repeat()
        except (AmqpError, InvariantError, MemoryError):
            raise
        except Exception as error:
            log.exception("%r: method %r", self, payload[:4])
            raise ConnectionException(ReplyCode.INTERNAL_ERROR, "internal error, see the log") from error

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        route = self.vhost.routing.route(exchange, routing_key)
        if self.broker.blocked and route.handler is None:
            self._tell_blocked(self.broker.blocked)
        return route

    def publishes(self) -> None:
        """It brings messages otherwise than by a publish, and waits as publishers do."""
        self._tell_blocked(self.broker.blocked)
        if not self.core.publisher:
            self.core.publishes()

    def permit(self, exchange: bytes, routing_key: bytes) -> None:
        """Asked for a publish of a client that may not do everything, unless it repeats the last one.  Raises 403."""
        name = exchange.decode("utf-8", "replace")
        if name not in self.vhost.routing.internal_exchanges:
            self.judge.publish(name, routing_key.decode("utf-8", "surrogateescape"))

    def addressed(self, channel: int, exchange: bytes, routing_key: bytes, header: bytes) -> tuple[Route, bytes]:
        """The route of a message whose header has copies or asks for a direct reply, and the header to store.  Raises
        406, and 403 for a copy that the client may not publish."""
        if self.core.guarded:
            for key in copies(header)[0]:
                self.permit(exchange, key)
        if decode_properties(header).get("reply_to") == REPLY_TO:
            header = with_reply_to(header, self.channels[channel].reply_address())
        return self.vhost.routing.addressed(exchange, routing_key, header)

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        if self.state is State.LINK:
            self._finish(text)
        elif channel:
            self._channels.fail(self, channel, code, text, class_id, method_id)
        elif self.state is State.HANDSHAKE and code == ReplyCode.ACCESS_REFUSED and not tells_refusals(self.handshake):
            log.info("%r: %s", self, text)
            # specification 2.2.4: no reason after a failed login, unless the client has the capability
            self._finish(text)
        elif self.state in (State.HANDSHAKE, State.PUT_OFF, State.OPENED):
            self._send_close(code, text, class_id, method_id)

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        if self.link is not None:
            self.link.link_frame(kind, position, body)

    def link_batches(self, position: int) -> None:
        if self.link is not None:
            self.link.link_batches(position)

    def output_ready(self) -> None:
        self.transport.output_ready()

    def closed(self, reason: str) -> None:
        """The peer is gone.  What it had sent before is carried out first."""
        if not self.core.waits(answers=False):
            self._finish(reason)
        elif not self._leaving:
            self._leaving = True
            self.core.leave(lambda: self._finish(reason), deaf=False)

    # ------------------------------------------------------------ the connection class

    def _connection_method(self, payload: bytes) -> None:
        if self.state is State.CLOSING:
            self._while_closing(payload)
            return
        command = decode_method(payload)
        if isinstance(command, commands.Connection.Close):
            reason = f"closed by the client: {command.reply_code} {command.reply_text}"
            if self.core.waits(answers=True):
                self._leaving = True
                self.core.leave(lambda: self._closed_by_client(reason), deaf=True)
            else:
                self._closed_by_client(reason)
        elif self.state is State.HANDSHAKE:
            if self.opening.receive(self, command):
                self._open(command)
        elif isinstance(command, commands.Connection.UpdateSecret):
            self.opening.renew(self, command)
        else:
            raise misplaced(command)

    def _closed_by_client(self, reason: str) -> None:
        self.send(0, commands.Connection.CloseOk())
        self._finish(reason)

    def _while_closing(self, payload: bytes) -> None:
        """Only the closing handshake is handled; both sides may have begun it at the same time."""
        index = payload[:4]
        if index == _INDEX.pack(commands.Connection.Close.index):
            self.send(0, commands.Connection.CloseOk())
            self._finish("closed by both sides")
        elif index == _INDEX.pack(commands.Connection.CloseOk.index):
            self._finish("closed by the broker")

    def _open(self, command: Frame) -> None:
        hooks = self.broker.hooks
        self._identify(command)
        refusal = hooks.admit(self, self.client.properties) if hooks is not None else None
        if isinstance(refusal, Later):
            self.state = State.PUT_OFF
            self.core.wait()
            return
        if refusal is not None:
            raise ConnectionException(refusal.code, refusal.text, *ids(command))
        self._enter(command)
        self.broker.connection_count.check(self)
        self.send(0, make(commands.Connection.OpenOk, known_hosts=self.broker.known_hosts))
        self.state = State.OPENED
        self.was_opened = True
        self.broker.connection_count.opened(self)
        if not self.client.courier:
            self.core.user = self.user.encode()
        self.rights_changed()
        self._log_opened()
        if hooks is not None and hooks.opened(self):
            self.state = State.LINK

    def ask_again(self) -> None:
        """From admission, which has put this connection off: it may decide now."""
        if not self.put_off:
            return
        command = commands.Connection.Open(self.handshake.virtual_host)
        try:
            self._open(command)
        except ConnectionException as error:
            self.core.stop()
            self.failed(0, error.reply_code, error.reply_text, *ids(command))
        if self.state is not State.PUT_OFF:
            self.core.go_on()

    def _enter(self, command: Frame) -> None:
        """Its virtual host is that of its connection.open, or a tool's home.  Raises ConnectionException."""
        name = self.client.access.host
        vhost = self.broker.vhosts.get(name)
        if vhost is None or not (self.client.access.enters or self._only_looks()):
            text = f"access to vhost '{name}' refused for user '{self.user}'" if vhost else f"vhost {name} not found"
            raise ConnectionException(ReplyCode.NOT_ALLOWED, text, *ids(command))
        self.vhost, self.core.host = vhost, vhost.number
        self.judge = Judge(
            self.user,
            self.peer,
            self.broker.coming_and_going,
            (Permissions(self.client.access, vhost.exchanges), self.acl),
        )

    def _only_looks(self) -> bool:
        """A tool that has named no virtual host, of a user without permissions: the tag lets it see what there is."""
        return self.client.admin and not self.handshake.virtual_host and self.client.access.has(MONITORING)

    def _identify(self, command: Frame) -> None:
        """Its rights are those of its user.  Raises ConnectionException if it may not connect from where it is."""
        broker, lines = self.broker, self.broker.coming_and_going
        host, certified = self.handshake.virtual_host, self.handshake.mechanism == EXTERNAL
        if not host and self.client.admin:
            host = broker.rights.home(self.user, certified)
        self.client.access = broker.rights.access(self.user, host, certified)
        self.acl = AclRights(broker.acl, self.user, self.peer, host, lines)
        self.client.acl = self.acl.access
        refused = self.acl.enters(broker.connection_count.of_user(self.user) if self.client.limited else None)
        if refused is not None:
            log_refusal(lines, self.user, self.peer, refused, ReplyCode.NOT_ALLOWED)
            raise ConnectionException(ReplyCode.NOT_ALLOWED, refused.text, *ids(command))

    def rights_changed(self) -> None:
        self.judge.look()
        self.core.guarded = not self.judge.publishes

    def _log_opened(self) -> None:
        """Administrators and links at a lower level: managers ask every second, and HA reports links."""
        product = str(self.client.properties.get("product", "no product named"))
        if self.client.privileged:
            log.info("%r: user %s, %s", self, self.user, product)
        else:
            lines = self.broker.coming_and_going
            lines.write(NOTICE, "connection opened: %s, user %s, %s", self.peer, shown(self.user), shown(product))
            self.vhost.configuration.events.note(
                "clientConnect", peer=self.peer, user=self.user, product=product[:TEXT]
            )

    # ------------------------------------------------------------ from the broker and the shell

    def consumer_cancelled(self, channel: int, tag: str) -> None:
        """The consumer's queue is gone; clients that asked for it are told."""
        if self.opened and channel in self.channels and self.handshake.capability("consumer_cancel_notify"):
            self.send(channel, commands.Basic.Cancel(tag, True))

    def answer(self, channel: int, correlation_id: str, body: bytes) -> None:
        """The answer to a management request; dropped when its channel has closed."""
        if self.opened and channel in self.channels:
            self.channels[channel].answer(correlation_id, body)

    def block(self, reason: str) -> None:
        """Blocks a client that publishes.  Others are blocked when they begin to publish: a consumer could otherwise
        run into its time limit for blocked connections."""
        if self.core.publisher:
            self._tell_blocked(reason)

    def unblock(self) -> None:
        if self._flow:
            return
        if self._told_blocked and self.opened:
            self.send(0, commands.Connection.Unblocked())
        self._told_blocked = False

    def flow(self, reason: str) -> None:
        """From the core: a queue that the client publishes to is full enough (`reason`); none is any more."""
        self._flow = reason
        if reason:
            self._tell_blocked(reason)
        elif not self.broker.blocked:
            self.unblock()

    def _tell_blocked(self, reason: str) -> None:
        if reason and self.opened and not self._told_blocked and self.handshake.capability("connection.blocked"):
            self._told_blocked = True
            self.send(0, make(commands.Connection.Blocked, reason=cut(reason)))

    def close(self, code: int, text: str) -> None:
        """Closes the connection from our side, with the closing handshake if it was open."""
        if self._leaving:
            self._finish(text)
        elif self.state in (State.OPENED, State.PUT_OFF):
            self.core.stop()
            self._send_close(code, text, 0, 0)
        elif self.state in (State.HANDSHAKE, State.LINK):
            self._finish(text)

    def tick(self, now: float) -> None:
        """Heartbeats and time limits; `now` in seconds."""
        clock, heartbeat = self._clock, self.handshake.heartbeat
        elapsed = clock.advance(now, max(LONGEST_TICK, heartbeat / 4))
        if self.state in LIMITS:
            limit, what = LIMITS[self.state]
            if clock.in_state(self.state, elapsed) > limit:
                self._finish(f"no {what} within {limit:g} s")
        elif self.state is State.OPENED and heartbeat and not clock.heartbeat(self.core, heartbeat, elapsed):
            log.warning("%r: nothing received for two heartbeats of %d s", self, heartbeat)
            self._finish("missed heartbeats")

    @property
    def patience(self) -> float:
        """Seconds until it wants the next tick; 0 = it needs none before its state changes."""
        if self.state in LIMITS:
            return LIMIT_TICK
        return self.handshake.heartbeat / 8 if self.state is State.OPENED else 0.0

    # ------------------------------------------------------------ the end

    def send(self, channel: int, command: Frame) -> None:
        self.core.write(encode_method(channel, command))

    def _send_close(self, code: int, text: str, class_id: int, method_id: int) -> None:
        log.info("%r: %d %s", self, code, text)
        self.send(0, commands.Connection.Close(code, reply_text(code, text), class_id, method_id))
        self.state = State.CLOSING
        self.broker.watch(self)
        self._channels.drop_all(self)

    def _finish(self, reason: str) -> None:
        if self.state is State.FINISHED:
            return
        if self.was_opened and not self.client.privileged:
            lines = self.broker.coming_and_going
            lines.write(NOTICE, "connection closed: %s, user %s: %s", self.peer, shown(self.user), reason)
            self.vhost.configuration.events.note(
                "clientDisconnect", peer=self.peer, user=self.user, reason=reason[:TEXT]
            )
        else:
            log.info("%r ends: %s", self, reason)
        link, self.link = self.link, None
        self.state, self.end_reason = State.FINISHED, reason
        self._channels.forget_all(self)
        self.broker.leaves(self)
        queues = self.core.close()
        self.vhost.endings.consumers_gone(queues)
        self.vhost.endings.connection_gone(self)
        if link is not None:
            link.closed(reason)
        if self.was_opened:
            self.broker.connection_count.closed(self)
            if self.broker.hooks is not None:
                self.broker.hooks.connection_closed(self)
        self.transport.disconnect()
