"""What has to be true, stated from the promises of `ha/README.md` section 1 and not from the code.

P1, P2   every message that was confirmed under one ballot is held by the primary of every higher ballot, from the
         moment in which that one stands: looked at when a confirm is given, and when a ballot stands.  It holds while
         one in-sync broker lives: when the last one has died, what was published before is excused.
back     neither the vote nor the set on a disk goes back
one      a ballot stands once, and its primary has voted for it
"""

from __future__ import annotations

from ha.model.position import epoch_of
from tests.model.state import EMPTY, Broker, Seen, World


def judge(old: World, new: World) -> tuple[Seen, str]:
    """The history after this step, and what is broken; the empty text: nothing."""
    seen, broken = new.seen, ""
    for i, after in enumerate(new.brokers):
        before = old.brokers[i]
        if after is not before:
            seen, fault = _look(seen, new, chr(97 + i), before, after)
            broken = broken or fault
    return seen, broken or _lost(seen)


def _look(seen: Seen, new: World, id: str, before: Broker, after: Broker) -> tuple[Seen, str]:
    if _back(before, after):
        return seen, f"back: the disk of {id} goes from {before.disk} to {after.disk}"
    if before.up and not after.up and id in seen.survivors:
        seen = seen._replace(survivors=seen.survivors.replace(id, ""))
        if not seen.survivors:
            seen = seen._replace(excused=(1 << len(seen.published)) - 1)
    if after.whole and not before.whole and id in seen.in_force[3] and id not in seen.survivors:
        seen = seen._replace(survivors="".join(sorted(seen.survivors + id)))
    if after.lead is None:
        return seen, ""
    ballot = epoch_of(after.position), id
    if after.saved[:2] != ballot:
        return seen, f"one: {id} is primary of {ballot} and has voted for {after.saved[:2]}"
    if before.lead is None:
        if any(stood[:2] == ballot for stood in seen.stood):
            return seen, f"one: ballot {ballot} stands for the second time"
        seen = seen._replace(stood=tuple(sorted((*seen.stood, (*ballot, after.holds)))))
    return _led(seen, new, id, ballot, after), ""


def _led(seen: Seen, new: World, id: str, ballot: tuple[int, str], after: Broker) -> Seen:
    lead, in_force = after.lead, after.saved[2]
    assert lead is not None
    if lead.begun and in_force[:3] > seen.in_force[:3]:
        seen = seen._replace(in_force=in_force, survivors=_survivors(seen, new, in_force))
    for number, (position, leader) in enumerate(seen.published):
        if leader == id and epoch_of(position) == ballot[0] and position <= lead.safe:
            seen = seen._replace(confirmed=seen.confirmed | 1 << number)
    return seen


def _survivors(seen: Seen, new: World, in_force: tuple[int, str, int, str, str]) -> str:
    """Members of the new set that have run since they were members.  A new one is in sync when it holds all that is
    confirmed by now, else when it has applied the operation that lists it: that stands behind all this in the log."""
    _, leader, _, members, _ = in_force

    def whole(id: str) -> bool:
        broker = new.brokers[ord(id) - 97]
        return broker.up and broker.whole and not seen.confirmed & ~broker.holds

    return "".join(id for id in members if id in seen.survivors or id == leader or whole(id))


def _back(before: Broker, after: Broker) -> bool:
    """A disk that is lost goes with its process."""
    lost = not after.up and after.disk == EMPTY
    return not lost and (after.disk[:2] < before.disk[:2] or after.disk[2][:3] < before.disk[2][:3])


def _lost(seen: Seen) -> str:
    for number, (position, leader) in enumerate(seen.published):
        if seen.confirmed & ~seen.excused & 1 << number:
            for epoch, rival, held in seen.stood:
                if (epoch, rival) > (epoch_of(position), leader) and not held & 1 << number:
                    return (
                        f"lost: message {number} was confirmed by {leader}, {rival} of epoch {epoch} does not have it"
                    )
    return ""
