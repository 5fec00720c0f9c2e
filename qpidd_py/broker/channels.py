"""The channels of one connection: opened, closed by either side, and their numbers in use until the peer knows.

    (none) --channel.open--> open --close, by the client--> (none)
                               \\--close, sent for an error--> closing --close-ok--> (none)

What a failed channel held goes back when its close is sent, not when the peer's close-ok arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.codec import decode_method, encode_method, ids, make
from qpidd_py.broker.client_channel import ClientChannel, Owner
from qpidd_py.broker.methods import handle
from qpidd_py.broker.texts import reply_text
from qpidd_py.errors import ConnectionException, ReplyCode

log = logging.getLogger(__name__)

_INDEX = Struct(">I")
_CLOSE = commands.Channel.Close.index
_CLOSE_OK = commands.Channel.CloseOk.index


class Channels:
    """`open`: those whose number is in use.  Its connection says each time who it is: Python's collector would have to
    find a circle."""

    def __init__(self) -> None:
        self.open: dict[int, ClientChannel] = {}
        self._late: list[int] | None = None

    def method(self, connection: Owner, number: int, payload: bytes) -> None:
        """Of the client.  Raises AmqpError."""
        channel = self.open.get(number)
        if channel is not None and channel.core.closing:
            self._while_closing(connection, number, payload)
            return
        command = decode_method(payload)
        if command.index >> 16 == commands.Connection.frame_id:
            raise ConnectionException(ReplyCode.COMMAND_INVALID, f"{command.name} on channel {number}")
        if channel is None:
            self._open(connection, number, command)
        elif isinstance(command, commands.Channel.Open):
            raise ConnectionException(ReplyCode.CHANNEL_ERROR, f"channel {number} is open already")
        elif isinstance(command, commands.Channel.Close):
            _send(connection, number, commands.Channel.CloseOk())
            self._drop(connection, number)
        else:
            handle(channel, command)

    def _open(self, connection: Owner, number: int, command: Frame) -> None:
        most = connection.handshake.channel_max
        if not isinstance(command, commands.Channel.Open):
            raise ConnectionException(ReplyCode.CHANNEL_ERROR, f"{command.name} on channel {number}, which is not open")
        if number > most:
            text = f"channel {number} is beyond the negotiated channel_max ({most})"
            raise ConnectionException(ReplyCode.NOT_ALLOWED, text, *ids(command))
        connection.broker.connection_count.channel_opens(connection)
        self.open[number] = ClientChannel(connection, connection.core.open_channel(number))
        _send(connection, number, make(commands.Channel.OpenOk, channel_id=""))

    # ------------------------------------------------------------ the end of one

    def fail(self, connection: Owner, number: int, code: int, text: str, class_id: int, method_id: int) -> None:
        """Closes a channel for an error."""
        log.info("%r: channel %d: %d %s", connection, number, code, text)
        _send(connection, number, commands.Channel.Close(code, reply_text(code, text), class_id, method_id))
        if self._late is not None:
            self._late.append(number)
        else:
            self._release(connection, number)

    def _release(self, connection: Owner, number: int) -> None:
        """Messages it held go back now; its number stays in use until the peer's close-ok."""
        core = connection.core
        connection.broker.timeouts.forget(self.open[number])
        queues = core.close_channel(number)
        channel = core.open_channel(number)
        channel.closing = True
        self.open[number] = ClientChannel(connection, channel)
        connection.vhost.endings.consumers_gone(queues)

    def _while_closing(self, connection: Owner, number: int, payload: bytes) -> None:
        (index,) = _INDEX.unpack_from(payload)
        if index == _CLOSE:
            _send(connection, number, commands.Channel.CloseOk())
        elif index == _CLOSE_OK:
            self._drop(connection, number)

    def _drop(self, connection: Owner, number: int) -> None:
        broker = connection.broker
        broker.timeouts.forget(self.open.pop(number))
        broker.connection_count.channels_closed(connection)
        connection.vhost.endings.consumers_gone(connection.core.close_channel(number))

    def drop_all(self, connection: Owner) -> None:
        """The connection is being closed.  In the middle of a commit they go when the socket does."""
        if self._late is None:
            for number in list(self.open):
                self._drop(connection, number)

    def forget_all(self, connection: Owner) -> None:
        """The connection has ended: its core closes them."""
        for channel in self.open.values():
            connection.broker.timeouts.forget(channel)
        connection.broker.connection_count.channels_closed(connection, len(self.open))
        self.open.clear()

    @contextmanager
    def failing_late(self, connection: Owner) -> Iterator[None]:
        """A commit walks over what a failed channel would give back: that channel is released after it."""
        late: list[int] = []
        self._late = late
        try:
            yield
        finally:
            self._late = None
            for number in late:
                self._release(connection, number)


def _send(connection: Owner, number: int, command: Frame) -> None:
    connection.core.write(encode_method(number, command))
