"""`exactly_once`: what a sender asks of its queue or exchange, and of each message (pure).

Theory.  A message that was not confirmed when the connection was lost is sent again; the first copy may have arrived.
A queue with `x-message-deduplication` leaves the second one out: it remembers the key of each message that has entered.
So does an exchange, for all queues behind it.  The sender's part is that this can work:

* The queue, or the exchange, is asked when the sender is opened, and again after each fail-over before anything is sent
  again.  A passive declaration with this argument compares it; a broker that compares nothing is found out by the wrong
  value.
* Each message has the key: its id, or the header that it looks at.
* It goes this way only: no CC.

The oldest keys are forgotten (`x-deduplication-window`, `-time`); what is sent again later than that enters again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from client_lib.addresses.operations import PRECONDITION_FAILED, Operation, Resolution, error_of
from client_lib.errors import AssertionFailed

ARGUMENT, KEY = "x-message-deduplication", "x-deduplication-key"
COPIES = ("CC", "BCC")
"""Headers that name other queues."""


@dataclass(frozen=True)
class Once:
    """`header`: the one with the key; None: the message's id is the key."""

    header: str | None = None

    def check(self, message_id: str | None, headers: Mapping[str, Any], transactional: bool) -> None:
        """Raises ValueError for a message that could enter twice.  What a transaction has to do again the application
        sends again, so it has to say which message is the same."""
        if self.header is not None and headers.get(self.header) is None:
            raise ValueError(f"exactly_once: the message has no header {self.header!r}, which is its key")
        if self.header is None and transactional and not message_id:
            raise ValueError("exactly_once in a transaction: the message needs an id, the same one if it is sent again")
        for name in COPIES:
            if name in headers:
                raise ValueError(f"exactly_once: the header {name} would send copies to queues that may take one twice")


def once_of(exactly_once: bool | str) -> Once | None:
    """The argument of a sender: True, or the name of the header that has the key.  Raises TypeError, ValueError."""
    if isinstance(exactly_once, bool):
        return Once() if exactly_once else None
    if not isinstance(exactly_once, str):
        raise TypeError(f"exactly_once is {exactly_once!r}, expected True, False or the name of a header")
    if not exactly_once:
        raise ValueError("exactly_once is '', expected True, False or the name of a header")
    return Once(exactly_once)


def demand_once(name: str, once: Once, is_queue: bool = True) -> Resolution[Operation]:
    """Returns what has to be asked again after a fail-over.  Raises AssertionFailed, NotFound."""
    kind = "queue" if is_queue else "exchange"
    wanted = {ARGUMENT: True, **({} if once.header is None else {KEY: once.header})}
    check = _passive(kind, name, wanted)
    answer = yield check
    if answer.reply_code == PRECONDITION_FAILED:
        raise AssertionFailed(f"exactly_once: {kind} {name!r} is not declared with {wanted}: {answer.reply_text}")
    if answer.reply_code:
        raise error_of(f"exactly_once: {kind} {name!r}", answer)
    answer = yield _passive(kind, name, {ARGUMENT: False})
    if answer.reply_code != PRECONDITION_FAILED:
        raise AssertionFailed(f"exactly_once: this broker does not tell whether {kind} {name!r} has {ARGUMENT}")
    return check


def _passive(kind: str, name: str, arguments: Mapping[str, Any]) -> Operation:
    return Operation(f"{kind}_declare", {kind: name, "passive": True, "arguments": dict(arguments)})
