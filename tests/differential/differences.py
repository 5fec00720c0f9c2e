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
    only: tuple[str, ...] = ()
    """If not empty: the entries are equal but for these."""
    with_argument: str = ""
    """Only if a queue of the conversation has an argument that begins so."""

    def explains(self, steps: list[Step], step: str, theirs: Any, ours: Any) -> bool:
        named = (self.step, self.theirs, self.ours) == (step, _summary(theirs), _summary(ours))
        found = [[each for each in entry if each[0] not in self.only] for entry in (theirs, ours)]
        arguments = (name for _, values in steps for name in values.get("arguments", {}))
        has = not self.with_argument or any(name.startswith(self.with_argument) for name in arguments)
        return named and has and (not self.only or found[0] == found[1])


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
    Difference(
        "reply",
        "queues",
        "queues",
        "RabbitMQ delivers a direct reply that is mandatory, and returns it as not routed; we deliver it",
        only=("Basic.Return",),
    ),
    Difference(
        "commit",
        "Tx.CommitOk",
        "Tx.CommitOk",
        "no consumer gets a part of a transaction that a fail-over undoes: a limit counts it until it is safe",
        only=("Basic.Deliver", "queues"),
        with_argument="x-max-length",
    ),
)
"""Not in the conversations:

* a message whose time to live is 0 waits for a consumer until the millisecond is over; RabbitMQ drops it at once;
* a queue with priorities that is full drops what has the lowest priority; RabbitMQ drops the head, the highest one;
* a queue that is bound to an exchange that hashes with two weights, of which one goes: RabbitMQ's forgets both;
* quorum queues have two priorities, as RabbitMQ 4: 3.10 has none, so no conversation gives their messages one;
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
            return None if any(known.explains(steps, step[0], *found) for known in KNOWN) else place
    return None


def only_counts(theirs: list[Any], ours: list[Any], place: int) -> bool:
    """Nothing but what the queues count differs in the answer to this step."""
    theirs, ours = ([entry for entry in _at(each, place) if entry[0] != "queues"] for each in (theirs, ours))
    return theirs == ours


def report(steps: list[Step], theirs: list[Any], ours: list[Any], place: int) -> str:
    """The conversation as far as it went, and both answers to its last step."""
    lines = [f"{name} {values}" for name, values in steps[: place + 1]]
    return "\n".join((*lines, f"RabbitMQ: {_at(theirs, place)}", f"we:       {_at(ours, place)}"))


def _at(transcript: list[Any], place: int) -> Any:
    return transcript[place] if place < len(transcript) else []


def _summary(entry: Any) -> str:
    """Of the first method."""
    name, *values = entry[0] if entry else ("nothing",)
    return f"{name} {values[0]}" if name in ("Channel.Close", "connection.close") else str(name)
