"""The interface for following the life of a session."""

from __future__ import annotations

from typing import Protocol

from client_lib.core.subscription import Subscription
from client_lib.errors import MessagingError


class Watcher(Protocol):
    """Called in the I/O thread without the session's lock; methods must be quick."""

    def lost(self) -> None:
        """The connection is gone."""

    def ready(self) -> None:
        """The channel is open and everything is restored."""

    def ended(self, error: MessagingError) -> None:
        """The session cannot be used any more."""

    def cancelled(self, subscription: Subscription) -> None:
        """The broker ended a subscription."""


class NoWatcher:
    """The watcher of most sessions."""

    def lost(self) -> None: ...

    def ready(self) -> None: ...

    def ended(self, error: MessagingError) -> None: ...

    def cancelled(self, subscription: Subscription) -> None: ...
