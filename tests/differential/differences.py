"""Where we answer otherwise than RabbitMQ, on purpose.  A conversation is compared up to the first of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.differential.steps import Step


@dataclass(frozen=True)
class Difference:
    """In the answer to one step."""

    step: str
    theirs: str
    """What RabbitMQ's entry begins with: the name of a method, with the code of a refusal."""
    ours: str
    reason: str


KNOWN: Final = (
    Difference(
        "exchange",
        "connection.close 541",
        "Channel.Close 406",
        "RabbitMQ's plug-in fails on a `hash-header` that is no text",
    ),
    Difference(
        "exchange-delete",
        "Exchange.DeleteOk",
        "Channel.Close 406",
        "Qpid's rule: an exchange that is an alternate is in use; without `if-unused` it is deleted",
    ),
    Difference(
        "consume",
        "Basic.ConsumeOk",
        "connection.close 530",
        "the consumer of direct replies has a tag of the channel like any other, which is not given twice",
    ),
)
"""Not in the conversations:

* a message whose time to live is 0 waits for a consumer until the millisecond is over; RabbitMQ drops it at once;
* a queue with priorities that is full drops what has the lowest priority; RabbitMQ drops the head, the highest one;
* a queue that is bound to an exchange that hashes with two weights, of which one goes: RabbitMQ's forgets both;
* `x-delivery-limit` as a text: RabbitMQ takes it, here it is refused;
* `x-consumer-timeout` of queues, which RabbitMQ 3.10 does not know: a redeclaration with another value is refused here;
* a dead letter that keeps its routing key goes to the keys of CC again; RabbitMQ remembers those of BCC, too.
"""


def first_difference(steps: list[Step], theirs: list[Any], ours: list[Any]) -> int | None:
    """The place of the first step with another answer; None if there is none, or a known one."""
    for place, step in enumerate(steps):
        if place >= len(theirs) and place >= len(ours):
            return None  # the connection is closed
        found = _at(theirs, place), _at(ours, place)
        if found[0] != found[1]:
            return None if (step[0], _summary(found[0]), _summary(found[1])) in _known() else place
    return None


def only_counts(theirs: list[Any], ours: list[Any], place: int) -> bool:
    """Nothing but what the queues count differs in the answer to this step."""
    theirs, ours = ([entry for entry in _at(each, place) if entry[0] != "queues"] for each in (theirs, ours))
    return theirs == ours


def report(steps: list[Step], theirs: list[Any], ours: list[Any], place: int) -> str:
    """The conversation as far as it went, and both answers to its last step."""
    lines = [f"{name} {values}" for name, values in steps[: place + 1]]
    return "\n".join((*lines, f"RabbitMQ: {_at(theirs, place)}", f"we:       {_at(ours, place)}"))


def _known() -> set[tuple[str, str, str]]:
    return {(known.step, known.theirs, known.ours) for known in KNOWN}


def _at(transcript: list[Any], place: int) -> Any:
    return transcript[place] if place < len(transcript) else []


def _summary(entry: Any) -> str:
    """Of the first method."""
    name, *values = entry[0] if entry else ("nothing",)
    return f"{name} {values[0]}" if name in ("Channel.Close", "connection.close") else str(name)
