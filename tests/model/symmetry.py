"""Brokers that differ by nothing but their ids are interchangeable: of states that only exchange them one is explored.

Ids matter where two ballots have the same epoch.  With one claim in all, of a new epoch, and a primary `a`, that cannot
be; so this is for spaces with at most one claim, of `quorum`.  A broker that is in the configuration of none but itself
is exchanged with its equals only.  `test_symmetry.py` compares with the search without it.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from tests.model.state import Broker, World

Names = dict[int, str]
"""For `str.translate`: every id, and every address, to another."""


def canonical(world: World, groups: tuple[str, ...]) -> World:
    """The same state, with the brokers of each group in the order of what is true of them without their names.  Equals
    keep their order, so two states that are the same up to names may stay two: that costs time and is not wrong."""
    new = "".join(chr(97 + i) for i in range(len(world.brokers)))
    for group in groups:
        ordered = sorted(group, key=lambda id: _facts(world, id))
        new = new.translate(dict(zip(map(ord, group), ordered, strict=True)))
    return world if new == "".join(sorted(new)) else _renamed(world, new)


def orbit(world: World, groups: tuple[str, ...]) -> World:
    """The first of all states that only exchange brokers of a group."""
    found = [world]
    for group in groups:
        found = [_renamed(other, _placed(other, group, order)) for other in found for order in permutations(group)]
    return min(found, key=repr)


def _placed(world: World, group: str, order: tuple[str, ...]) -> str:
    every = "".join(chr(97 + i) for i in range(len(world.brokers)))
    return every.translate(dict(zip(map(ord, group), order, strict=True)))


def _facts(world: World, id: str) -> tuple[Any, ...]:
    """What is true of a broker, without names but those of brokers that lead."""
    me, seen = world.brokers[ord(id) - 97], world.seen
    leads = [broker for broker in world.brokers if broker.lead is not None]
    peers = [peer[1:] for broker in leads for peer in broker.lead.peers if peer.id == id]
    listed = [id in broker.saved[2][3] for broker in leads]
    expected = [id in broker.lead.expected for broker in leads]
    granted = [id in broker.attempt.granted for broker in world.brokers if broker.attempt is not None]
    sets = [(*saved[2][::2][:2], len(saved[2][3]), id in saved[2][3], saved[1] == id) for saved in (me.saved, me.disk)]
    return (
        (me.up, me.state, me.blank, me.whole, me.position, me.holds, me.saved[0], me.disk[0], sets),
        (me.link[1:] if me.link else (), me.attempt is not None, me.lead is not None),
        (peers, listed, expected, granted, id in seen.survivors, id in seen.in_force[3]),
        any(claim[1] == id for claim in world.claims),
    )


def _renamed(world: World, old: str) -> World:
    """The broker `old[i]` gets the id of the place `i`."""
    places = range(len(old))
    names = {ord(old[i]): chr(97 + i) for i in places} | {ord(old[i].upper()): chr(65 + i) for i in places}
    brokers = tuple(_broker(world.brokers[ord(old[i]) - 97], names) for i in places)
    seen = world.seen._replace(
        published=_named(world.seen.published, names),
        stood=tuple(sorted(_named(world.seen.stood, names))),
        in_force=_named(world.seen.in_force, names),
        survivors=_named(world.seen.survivors, names),
    )
    claims = tuple(sorted(_named(world.claims, names)))
    return world._replace(brokers=brokers, claims=claims, seen=seen)


def _broker(broker: Broker, names: Names) -> Broker:
    attempt, lead = broker.attempt, broker.lead
    if attempt is not None:
        assert attempt.exchange is None and attempt.record is None, "no registry"
        attempt = attempt._replace(
            claim=_claim(attempt.claim, names),
            asked=tuple(sorted(_named(attempt.asked, names))),
            granted=_named(attempt.granted, names),
        )
    if lead is not None:
        assert lead.exchange is None and lead.change is None and not lead.queue, "no registry"
        lead = lead._replace(
            peers=tuple(sorted(peer._replace(id=_named(peer.id, names)) for peer in lead.peers)),
            expected=_named(lead.expected, names),
            log=_named(lead.log, names),
            former=_named(lead.former, names),
        )
    link = broker.link and broker.link._replace(primary=_named(broker.link.primary, names))
    disk, saved = _named(broker.disk, names), _named(broker.saved, names)
    return broker._replace(disk=disk, saved=saved, link=link, attempt=attempt, lead=lead)


def _claim(claim: tuple[Any, ...] | None, names: Names) -> tuple[Any, ...] | None:
    if claim is None:
        return None
    renamed = _named(claim, names)
    return *renamed[:4], tuple(sorted(renamed[4])), *renamed[5:]


def _named(value: Any, names: Names) -> Any:
    """A text of ids or of addresses is renamed and sorted; any other word has a letter that is none."""
    if isinstance(value, str):
        return "".join(sorted(value.translate(names))) if all(ord(letter) in names for letter in value) else value
    return tuple(_named(part, names) for part in value) if isinstance(value, tuple) else value
