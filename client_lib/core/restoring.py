"""Restoring a channel after a fail-over: what is sent, and for how long refusals are tolerated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from client_lib.core.declarations import Declaration
from client_lib.core.subscribing import Subscribing
from client_lib.core.subscription import Subscription
from client_lib.errors import ServerError, server_error

RESTORE_INTERVAL = 0.1  # seconds
LOCKED = (403, 405)
"""Reply codes for a queue or a consumer that is exclusive to another connection."""


class Restoring:
    """One per session.  All times in seconds, `now` of one monotonic clock."""

    def __init__(self, timeout: float, heartbeat: float) -> None:
        self.proven = False
        """True if something was confirmed on this connection."""
        self._timeout, self._heartbeat = timeout, heartbeat
        self._since = 0.0

    def begin(self, now: float) -> None:
        """There is a new connection."""
        self._since, self.proven = now, False

    def waited(self, now: float) -> float:
        return now - self._since

    def error(self, reply_code: int, reply_text: str, now: float) -> ServerError | None:
        """The broker has closed the channel: what ends the session; None: it is to be tried again.

        A broker that has not noticed the loss of our connection keeps its exclusive queues until its own heartbeat
        expires."""
        patience = max(self._timeout, 2.0 * self._heartbeat if reply_code in LOCKED else 0.0)
        if self.waited(now) < patience:
            return None
        return server_error(reply_code, f"{reply_text} (still so {patience} s after reconnecting)")

    def pause_after_nack(self, now: float) -> float | None:
        """Seconds until a new channel is opened after a nack before the first confirm; None: the nack counts.

        The broker has not located the queue's new leader yet; RabbitMQ does that once per channel."""
        waited = self.waited(now)
        return None if waited > self._timeout else max(RESTORE_INTERVAL, min(waited, 1.0))


def refused(reply_code: int, reply_text: str) -> ServerError:
    """The error of a connection.close that a request of the client caused."""
    return server_error(reply_code, f"{reply_text} (the broker closed the connection)")


def replay(
    channel: Any,
    topology: Sequence[Declaration],
    subscriptions: Sequence[Subscription],
    subscribing: Subscribing,
    ready: Callable[[Any], None],
) -> None:
    """Declares and subscribes again; only the last step asks for an answer, and `ready` takes it."""
    for index, declared in enumerate(topology):
        last = index == len(topology) - 1 and not subscriptions
        getattr(channel, declared.method)(**declared.arguments, callback=ready if last else None)
    for index, subscription in enumerate(subscriptions):
        subscribing.start(channel, subscription, ready if index == len(subscriptions) - 1 else None)
    if not topology and not subscriptions:
        ready(None)
