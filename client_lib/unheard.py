"""What was refused or is in doubt, and no call has raised yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from client_lib.errors import MessagingError, SendError
from client_lib.message import Message

Unheard = list[tuple[Message, MessagingError]]


def doubtful(unheard: Unheard) -> int:
    """How many are in doubt."""
    return sum(not isinstance(error, SendError) for _, error in unheard)


def raise_first(unheard: Unheard) -> None:
    """Raises the first refusal, else why the first message is in doubt; nothing if there is neither."""
    errors = [error for _, error in unheard]
    refusals = (error for error in errors if isinstance(error, SendError))
    if errors:
        raise next(refusals, errors[0])


@contextmanager
def giving_way(error: BaseException | None) -> Iterator[None]:
    """At the end of a `with` block: what closing raises gives way to an error that is on its way."""
    try:
        yield
    except MessagingError:
        if error is None:
            raise
