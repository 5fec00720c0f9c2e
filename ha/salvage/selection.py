"""What a broker holds that the cluster may have lost.  Pure.

Theory.  A broker that joins a primary gives up what the primary does not have.  Nearly always that was consumed, or was
never confirmed.  It can be the only copy of a confirmed message only after a promotion that was not proven to be safe
(`ha-safety=availability`, by force, or a manager who promotes over a primary that lives); then it goes to a file
before it is dropped.  A message is put aside if all of this holds:

    outside     the primary's log has never held it (`difference.outside`): what it did hold, the cluster has consumed
    gone        the primary does not hold it now (it is asked: a gambler may have had it all the same)
    possibly confirmed, by one of three grades:
      confirmed     its id is not above `safe` when we were primary: we may have told its publisher so
      acknowledged  its id is not above the position up to which we told a primary that we hold all: it may have
      received      neither, but the primary, or one before it, took over with holes: what any broker got before that
                    may have been confirmed by those that are gone.  Never for ids that we have given out ourselves:
                    of those we know.

Why a base and not a mere comparison of ids: a broker that comes back after a fail-over nearly always holds messages
that were consumed meanwhile.  Without the base each of them would look like a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ha.model.difference import Lineage, Outside, outside
from ha.model.salvaged import Grade


@dataclass(frozen=True)
class Promises:
    """What this broker has had a part in promising."""

    led: frozenset[int]
    """The epochs in which it was primary, since its process began; what it did before that it does not know."""
    safe: int
    """The highest position that it has called safe as primary."""
    acknowledged: int
    """Up to where it has told a primary that it holds everything."""

    def grade(self, id: int) -> Grade:
        """Of a message that is a suspect."""
        if id <= self.safe:
            return Grade.CONFIRMED
        return Grade.ACKNOWLEDGED if id <= self.acknowledged else Grade.RECEIVED


class Suspect(NamedTuple):
    """Ids that, where we hold them and the primary does not, have to be put aside."""

    low: int
    high: int
    foreign: bool
    """The primary need not be asked: under these ids it would hold other messages."""


def suspects(mine: Lineage, primary: Lineage, complete: int, promises: Promises) -> list[Suspect]:
    """Where to look for messages that the cluster may have lost; empty after every promotion that lost nothing.
    `complete`: see `difference.outside`."""
    found = (_suspect(item, promises) for item in outside(mine, primary, complete))
    return [suspect for suspect in found if suspect.low <= suspect.high]


def _suspect(item: Outside, promises: Promises) -> Suspect:
    high = min(item.high, max(promises.safe, promises.acknowledged))
    if item.gamble and item.epoch not in promises.led:
        high = item.high
    return Suspect(item.low, high, item.foreign)
