"""How a session opens a channel: what it hears from it, then transactions or publisher confirms (I/O thread).

`generation` is that of the channel: what an older one says does not count.
"""

from __future__ import annotations

from typing import Any, Protocol

from client_lib.connecting.transport import Transport
from client_lib.core.transaction import Transaction
from client_lib.errors import MessagingError, server_error


class Hearer(Protocol):
    """The part of a session that hears what a broker says on its channel."""

    generation: int
    transaction: Transaction | None

    def channel_opened(self, channel: Any) -> None: ...

    def channel_selected(self, generation: int) -> None:
        """Transactions or publisher confirms are on."""

    def channel_ending(self, generation: int) -> None:
        """The broker has closed it: nothing may follow our answer."""

    def channel_closed(self, generation: int, reason: Exception) -> None: ...

    def confirmed(self, generation: int, delivery_tag: int, multiple: bool, taken: bool) -> None: ...

    def returned(self, method: Any, properties: Any) -> None: ...

    def cancelled(self, consumer_tag: str) -> None: ...

    def flow(self, generation: int, active: bool) -> None: ...

    def fail(self, error: MessagingError) -> Any: ...


def open_channel(transport: Transport, session: Hearer) -> Any:
    """Returns the channel, which is not open yet."""
    generation = session.generation

    def opened(channel: Any) -> None:
        if generation != session.generation:
            return
        channel.add_on_return_callback(lambda _c, method, properties, _body: session.returned(method, properties))
        channel.add_on_cancel_callback(lambda frame: session.cancelled(frame.method.consumer_tag))
        channel.add_on_flow_callback(lambda frame: session.flow(generation, frame.method.active))
        channel.ending = lambda: session.channel_ending(generation)
        session.channel_opened(channel)
        _select(channel, generation, session)

    channel = transport.channel(on_open_callback=opened)
    channel.add_on_close_callback(lambda _channel, reason: session.channel_closed(generation, reason))
    return channel


def _select(channel: Any, generation: int, session: Hearer) -> None:
    if session.transaction is not None:
        channel.tx_select(callback=lambda _ok: session.channel_selected(generation))
        return
    try:
        channel.select_confirms(
            lambda tag, multiple, taken: session.confirmed(generation, tag, multiple, taken),
            lambda _ok: session.channel_selected(generation),
        )
    except Exception as error:  # the broker knows no publisher confirms
        session.fail(server_error(540, str(error)))
