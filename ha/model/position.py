"""Positions in the log, as distinct types.

A position is `epoch << 48 | sequence` in an unsigned 64 bit integer, so positions compare as integers.  The epoch grows
with every promotion; the sequence is never reset.  The position of the operation that enqueued a message is
the message's replication id.
"""

from collections.abc import Mapping
from typing import Final, NewType

from qpidd_py.errors import InvariantError

Position = NewType("Position", int)
Epoch = NewType("Epoch", int)

SEQUENCE_BITS: Final = 48
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
LAST_EPOCH: Final = (1 << 16) - 1
START: Final = Position(0)
FARTHEST: Final = 1 << 12
"""So many promotions may have passed without a broker; a higher epoch is not believed.  There are 65,535 epochs for the
life of a cluster, and one message of a faulty broker must not use them up."""


def make(epoch: int, sequence: int) -> Position:
    """Compose a position.  Raises InvariantError for a part that does not fit."""
    if not 0 <= epoch <= LAST_EPOCH or not 0 <= sequence <= SEQUENCE_MASK:
        raise InvariantError(f"position out of range: epoch {epoch}, sequence {sequence}")
    return Position(epoch << SEQUENCE_BITS | sequence)


def epoch_of(position: int) -> Epoch:
    return Epoch(position >> SEQUENCE_BITS)


def far_ahead(named: int, known: int) -> str:
    """Why an epoch that another broker names is not believed; empty if it is.  Who knows none believes any."""
    if not known or named <= known + FARTHEST:
        return ""
    return f"epoch {named} is not believed: the highest known is {known}, expected at most {FARTHEST} more"


def epochs_in(answer: Mapping[str, object]) -> list[int]:
    """Those of the vote and the set of the broker that answers."""
    in_sync = answer.get("in_sync")
    found = [answer.get("epoch"), in_sync.get("epoch") if isinstance(in_sync, Mapping) else None]
    return [epoch for epoch in found if isinstance(epoch, int)]


def sequence_of(position: int) -> int:
    return position & SEQUENCE_MASK


def text(position: int) -> str:
    """The position as text: `epoch.sequence`."""
    return f"{epoch_of(position)}.{sequence_of(position)}"
