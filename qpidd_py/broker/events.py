"""What happens in a broker, for those who look on: the last events, numbered without gaps.                       Pure.

An event is noted where something has changed, on a primary and on a backup; never for a message.  That costs one to
three microseconds, whether anybody looks on or not.  What is older than the last KEPT is forgotten, which the numbers
show.  Names are those of Qpid's QMF events; HA adds its own (`ha.*`).

    clientConnect, clientDisconnect                 peer, user, product | reason   (not of tools and links)
    clientConnectFail                               peer, reason: one for each line of the log about a refused login
    queueDeclare, queueDelete                       queue, durable, exclusive, auto_delete, user
    exchangeDeclare, exchangeDelete                 exchange, type, durable, auto_delete
    bind, unbind                                    exchange, destination, key
    subscribe, unsubscribe                          peer, user, queue, tag
    queueThresholdExceeded                          queue, reason
    alarm, alarmEnd                                 alarm, reason

One of a queue, exchange or client in another virtual host than `/` has its name: vhost.

What follows from another event has none: bindings of what was deleted, subscriptions of a closed channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from qpidd_py.security.entries import HOST

KEPT: Final = 8192
NAMES: Final = (
    *("clientConnect", "clientDisconnect", "clientConnectFail", "queueDeclare", "queueDelete", "exchangeDeclare"),
    *("exchangeDelete", "bind", "unbind", "subscribe", "unsubscribe", "queueThresholdExceeded", "alarm", "alarmEnd"),
)
"""All but those of HA."""
TEXT: Final = 500
"""Characters of a reason that are kept."""


class Notes(Protocol):
    """Takes events."""

    def note(self, event: str, **fields: Any) -> None: ...


Event = tuple[int, str, dict[str, Any]]
"""µs since 1970, name, fields."""


class Events:
    """Of one broker."""

    def __init__(self) -> None:
        self.history = ""
        """Identifies the numbering; empty: nothing is noted yet."""
        self.last = 0
        """The number of the last event; the first one is 1."""
        self.clock: Callable[[], int] = lambda: 0
        self.on_news: Callable[[], None] | None = None
        """Called once with the next event."""
        self._kept: list[Event] = [(0, "", {})] * KEPT
        """Each at its number modulo KEPT."""

    def begin(self, history: str, clock: Callable[[], int]) -> None:
        """Notes what happens from now on: reading a journal does not count."""
        self.history, self.clock = history, clock

    def of(self, host: str) -> Notes:
        """For what happens in a virtual host, which is named unless it is `/`."""
        return self if host == HOST else _OfHost(self, host)

    def note(self, event: str, **fields: Any) -> None:
        if not self.history:
            return
        self.last += 1
        self._kept[self.last % KEPT] = self.clock(), event, fields
        if self.on_news is not None:
            news, self.on_news = self.on_news, None
            news()

    def after(self, number: int, most: int) -> tuple[int, list[tuple[int, Event]]]:
        """How many events behind this number are forgotten, and up to `most` of the others."""
        begin = max(number + 1, self.last - KEPT + 1)
        end = min(begin + most, self.last + 1)
        return begin - number - 1, [(each, self._kept[each % KEPT]) for each in range(begin, end)]


class _OfHost:
    """See `Events.of`."""

    def __init__(self, events: Events, host: str) -> None:
        self._events = events
        self._host = host

    def note(self, event: str, **fields: Any) -> None:
        self._events.note(event, vhost=self._host, **fields)
