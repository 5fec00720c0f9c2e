"""Mistakes about the connections on which brokers ask each other."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ha.shell.asker import _Conversation
from tests.simulator.mistakes_safety import patched


def hang_up_early() -> AbstractContextManager[None]:
    """A request that expires ends a connection whose handshake goes on: on a slow path none is ever made.  (It was so
    once.)"""
    return patched(_Conversation, expired=lambda self, request: False)
