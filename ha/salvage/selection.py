"""Selects the messages that this broker holds and the cluster may have lost.  Pure.

Theory.  A broker that joins a primary drops what the primary does not have.  Nearly always that was consumed, or was
never confirmed.  It can be the only copy of a confirmed message only after a promotion that was not proven to be safe
(`ha-safety=availability`, by force, or a manager that promotes over a living primary); then it is written to a file
before it is dropped.  A message is put aside if all of this holds:

    outside     the primary's log never held it (`difference.outside`); what the log held and lacks now was consumed
    gone        the primary does not hold it now (it is asked: after an unsafe promotion it may hold it nevertheless)
    possibly confirmed, by one of three grades:
      confirmed     its id is not above our `safe` as primary: we may have confirmed it to its publisher
      acknowledged  its id is not above the position up to which we told a primary that we hold everything: that
                    primary may have confirmed it
      received      neither, but this primary, or an earlier one, took over with holes: what any broker received before
                    that may have been confirmed by brokers that are gone.  Never for ids that we assigned: for those
                    we know what was confirmed.

A comparison of ids alone would not do: a broker that returns after a fail-over nearly always holds messages that were
consumed meanwhile, and each of them would look like a loss.  The base tells these apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ha.model.difference import Lineage, Outside, outside
from ha.model.salvaged import Grade


@dataclass(frozen=True)
class Promises:
    """Up to where this broker took part in confirming, as primary or as backup."""

    led: frozenset[int]
    """The epochs in which it was primary since its process started; earlier ones are not known."""
    safe: int
    """The highest position that it declared safe as primary."""
    acknowledged: int
    """The position up to which it told a primary that it holds everything."""

    def grade(self, id: int) -> Grade:
        """The grade of a suspect."""
        if id <= self.safe:
            return Grade.CONFIRMED
        return Grade.ACKNOWLEDGED if id <= self.acknowledged else Grade.RECEIVED


class Suspect(NamedTuple):
    """Ids to put aside if we hold them and the primary does not."""

    low: int
    high: int
    foreign: bool
    """The primary is not asked: under these ids it would hold other messages."""


def suspects(mine: Lineage, primary: Lineage, complete: int, promises: Promises) -> list[Suspect]:
    """The ids among which the cluster may have lost messages; empty after every promotion that lost nothing.
    `complete`: see `difference.outside`."""
    found = (_suspect(item, promises) for item in outside(mine, primary, complete))
    return [suspect for suspect in found if suspect.low <= suspect.high]


def _suspect(item: Outside, promises: Promises) -> Suspect:
    high = min(item.high, max(promises.safe, promises.acknowledged))
    if item.gamble and item.epoch not in promises.led:
        high = item.high
    return Suspect(item.low, high, item.foreign)
