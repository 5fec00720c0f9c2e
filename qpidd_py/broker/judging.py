"""The one place where it is decided whether a client may do what it asks for.                                  Pure.

There are two systems of rights, RabbitMQ's permissions (`permissions`) and the rules of Qpid's ACL file (`acl_rights`).
Each says what it refuses, in its own terms; both have to allow.  Management requests are judged in
`management.rights`, by the same two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pamqp.base import Frame

from qpidd_py.broker.access import refuse
from qpidd_py.broker.vhost import VHost
from qpidd_py.errors import ReplyCode
from qpidd_py.logrules import Floods
from qpidd_py.security.refusals import shown

TOPIC: Final = "topic"
DEFAULT: Final = "amq.default"
"""The name of the default exchange in patterns and rules."""
GENERATED: Final = f"amq.gen-{'0' * 32}"
"""Stands for a name that the broker chooses."""


class Channel(Protocol):
    """What is asked of the channel."""

    last_queue: str
    vhost: VHost


def named_queue(channel: Channel, command: Any) -> str:
    """An empty name means the queue that the channel has declared last."""
    return str(command.queue or channel.last_queue)


class Refused(NamedTuple):
    text: str
    """For the client, as RabbitMQ says it."""
    what: str
    """For the log: what it may not do, with names from peers quoted."""
    why: str
    """For the log: which pattern, or rule."""


class System(Protocol):
    """A system of rights, for one client."""

    @property
    def silent(self) -> bool:
        """Whether it has nothing to say about this client: it need not be asked."""

    @property
    def publishes(self) -> bool:
        """The same for publishes."""

    def method(self, channel: Channel, command: Frame) -> Refused | None: ...

    def publish(self, exchange: str, key: str) -> Refused | None: ...


def log_refusal(lines: Floods, user: str, peer: str, refused: Refused, code: int) -> None:
    lines.write(
        logging.WARNING, "refused: %s from %s may not %s (%s): %d", shown(user), peer, refused.what, refused.why, code
    )


class Judge:
    """Of one client."""

    def __init__(self, user: str, peer: str, lines: Floods, systems: Sequence[System] = ()) -> None:
        self._user, self._peer, self._lines = user, peer, lines
        self._systems = systems
        self.look()

    def look(self) -> None:
        """To be called when rights have changed."""
        self.silent = all(system.silent for system in self._systems)
        """No method need be judged."""
        self.publishes = all(system.publishes for system in self._systems)
        """No publish need be."""

    def method(self, channel: Channel, command: Frame) -> None:
        """Raises 403 for what the client may not do, which is logged."""
        self._ask(lambda system: system.method(channel, command))

    def publish(self, exchange: str, key: str) -> None:
        self._ask(lambda system: system.publish(exchange, key))

    def _ask(self, question: Callable[[System], Refused | None]) -> None:
        for system in self._systems:
            refused = question(system)
            if refused is not None:
                log_refusal(self._lines, self._user, self._peer, refused, ReplyCode.ACCESS_REFUSED)
                raise refuse(ReplyCode.ACCESS_REFUSED, refused.text)
