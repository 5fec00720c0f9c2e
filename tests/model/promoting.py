"""A promotion: the others are asked, an epoch is claimed, the claim is granted or denied, and stands or fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ha.model.environment import Answer, Exchanged, Outcome
from ha.model.view import Survey
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim
from tests.model.calls import Cluster, Label, Step, put, spend
from tests.model.host import Host
from tests.model.leading import registry_steps, shown, view_of
from tests.model.state import (
    Attempt,
    Broker,
    Exchange,
    Saved,
    World,
    address_of,
    in_sync,
    letters,
    member,
    request_code,
    request_of,
    saved_code,
    set_code,
    states_of,
)


def promoting(cluster: Cluster, world: World, i: int, broker: Broker) -> Iterator[Step]:
    name, attempt = cluster.names[i], broker.attempt
    if attempt is not None and attempt.claim is not None:
        yield from _claiming(cluster, world, i, broker, attempt)
    elif attempt is not None:
        yield from _decide(cluster, world, i, broker, attempt.record)
    elif world.left.claims and cluster.registry:
        yield ("reads the registry", name), put(world, i, broker._replace(attempt=Attempt(world.registry)))
    elif world.left.claims:
        yield from _decide(cluster, world, i, broker, None)


def _decide(
    cluster: Cluster, world: World, i: int, broker: Broker, record: tuple[Saved | None, ...] | None
) -> Iterator[Step]:
    """It asks the others, decides, votes for itself and sends its claim.  Any may be silent, and the host of any may
    refuse the connection though the broker lives."""
    others = _asked(cluster, world, i)
    for ends in product((Outcome.ANSWERED, Outcome.SILENT, Outcome.REFUSED), repeat=len(others)):
        found = dict(zip(others, ends, strict=True))
        reached = [j for j in others if found[j] is Outcome.ANSWERED]
        refusing = [j for j in others if found[j] is Outcome.REFUSED]
        if any(not world.brokers[j].up for j in reached):
            continue
        if any(_would_learn(world.brokers[j], broker) for j in reached):
            continue  # the question deposes it: that is a step of its own, which comes first
        key: tuple[object, ...] = ("decide", i, broker.saved, broker.state, broker.whole, broker.position, record)
        key += tuple((j, shown(world.brokers[j])) for j in reached), *refusing
        if key not in cluster.memory:
            cluster.memory[key] = _ask(cluster, world, i, broker, record, reached, refusing)
        claimed = cluster.memory[key]
        if claimed is not None:
            saved, disk, attempt, request = claimed
            after = put(world, i, broker._replace(saved=saved, disk=disk, attempt=attempt, link=None))
            what = "having heard " + ("".join(cluster.names[j] for j in reached) or "no broker")
            if refusing:
                what += ", refused by " + "".join(cluster.names[j] for j in refusing)
            label = ("claims epoch", str(saved[0]), cluster.names[i], what)
            yield label, spend(after._replace(claims=tuple(sorted({*world.claims, request}))), claims=1)


def _asked(cluster: Cluster, world: World, i: int) -> list[int]:
    """Of two brokers that had one address the one that has it now."""
    started = [j for j, other in enumerate(world.brokers) if other.state != "spare"]
    at = {address_of(cluster.names[j]): j for j in started}
    return [j for where, j in at.items() if where != address_of(cluster.names[i])]


def _would_learn(other: Broker, asking: Broker) -> bool:
    return other.up and other.lead is not None and other.saved[:2] < asking.saved[:2]


def _ask(
    cluster: Cluster,
    world: World,
    i: int,
    broker: Broker,
    record: tuple[Saved | None, ...] | None,
    reached: list[int],
    refusing: list[int],
) -> tuple[Any, ...] | None:
    """None when it is refused."""
    host = cluster.hosts[i]
    readings = {where: Answer(Outcome.SILENT) for where in cluster.addresses}
    for j in reached:
        view = view_of(cluster, j, world.brokers[j])
        readings[address_of(cluster.names[j])] = Answer(Outcome.ANSWERED, view.to_json())
    for j in refusing:
        readings[address_of(cluster.names[j])] = Answer(Outcome.REFUSED)
    node = host.load(broker._replace(attempt=None, link=None))
    promoter = host.promoter(readings)
    if record is not None:
        promoter._record = ManagerRecord.read(Exchanged(states_of(record)))
    promoter._ask(node.local.cluster.latest(), {})
    claim, request = promoter.claim, host.request()
    if claim is None or request is None:
        return None
    # In the second step it makes no difference whether a broker was silent or its host has refused.
    outcomes = {address: end.value for address, end in promoter._survey.outcomes.items()}
    silent = dict.fromkeys((Outcome.SILENT.value, Outcome.REFUSED.value), Outcome.SILENT.value)
    asked = tuple(sorted((address, silent.get(end, end)) for address, end in outcomes.items()))
    exchange = next((Exchange(saved_code(state), "asked") for state, _ in host.env.exchanged if state), None)
    attempt = Attempt(None, _claim_code(claim), asked, "", exchange)
    targets = "".join(sorted(address for address, _ in host.env.claims))
    return saved_code(node.local.persisted), saved_code(host.env.disk), attempt, (*request_code(request), targets)


def _claiming(cluster: Cluster, world: World, i: int, broker: Broker, attempt: Attempt) -> Iterator[Step]:
    name, exchange = cluster.names[i], attempt.exchange
    if exchange is None:
        yield from _finish(cluster, world, i, ("ends its claim", name))
        return
    for label, after, found in registry_steps(world, i, name, exchange):
        yield label, put(after, i, broker._replace(attempt=attempt._replace(exchange=found)))
    if exchange.step == "read":
        yield from _finish(cluster, world, i, ("ends its claim", name))
    yield from _finish(cluster, world, i, ("ends its claim", name, "without an answer of the registry"), lost=True)


def _finish(
    cluster: Cluster, world: World, i: int, label: Label, denied: str = "", lost: bool = False
) -> Iterator[Step]:
    """With the grants that have come.  The hosts of all others refuse: that hinders a claim less than silence does."""
    attempt = world.brokers[i].attempt
    assert attempt is not None and attempt.claim is not None
    answers = {address: Answer(Outcome.REFUSED) for address, _ in attempt.asked}
    for id in attempt.granted:
        answers[address_of(id)] = Answer(Outcome.ANSWERED, {"granted": True, "reason": "", "id": id})
    if denied:
        answers[address_of(denied)] = Answer(Outcome.ANSWERED, {"granted": False, "reason": "denied", "id": denied})
    exchanged = None
    if attempt.exchange is not None:
        exchanged = Exchanged(error="no answer") if lost else Exchanged(states_of(attempt.exchange.states))
    claim, outcomes = _claim_of(attempt.claim), {address: Outcome(outcome) for address, outcome in attempt.asked}

    def finish(host: Host) -> None:
        promoter = host.promoter({})
        promoter._survey = Survey((), outcomes)
        promoter._claimed(claim, answers, exchanged)

    key = "finish", denied, lost
    after, _, writes = cluster.run(i, world.brokers[i], key, finish)
    yield label, put(world, i, after._replace(attempt=None))
    yield from cluster.dying(world, i, label, key, finish, writes)


def deliver(cluster: Cluster, world: World, code: tuple[Any, ...]) -> Iterator[Step]:
    """A claim arrives at any broker that it was sent to, at any time, also twice."""
    epoch, claimant = code[0], code[1]
    i = cluster.names.index(claimant)
    for j, other in enumerate(world.brokers):
        if not other.up or address_of(cluster.names[j]) not in code[6]:
            continue
        again = other.saved[:2] == (epoch, claimant)
        if not again or other.link is None:  # a second one only breaks the link to the claimant
            yield from _grant(cluster, world, i, j, code)


def _grant(cluster: Cluster, world: World, i: int, j: int, code: tuple[Any, ...]) -> Iterator[Step]:
    name, what = cluster.names[j], f"{code[1]}'s claim of epoch {code[0]}"
    granter, result, _ = cluster.run(j, world.brokers[j], code, lambda host: host.node.claimed(request_of(code[:6])))
    after, attempt = put(world, j, granter), world.brokers[i].attempt
    waiting = attempt is not None and attempt.claim is not None and attempt.claim[0] == code[0]
    if not result["granted"]:
        if result["abstains"]:  # as if it had not answered
            yield ("abstains", name, what), after
        elif waiting:
            yield from _finish(cluster, after, i, ("denies", name, what), name)
        return
    if attempt is not None and waiting and name not in attempt.granted:
        attempt = attempt._replace(granted="".join(sorted(attempt.granted + name)))
        yield ("grants", name, what), put(after, i, after.brokers[i]._replace(attempt=attempt))
    if granter != world.brokers[j]:
        yield ("grants", name, what, "(the answer is lost)"), after


def _claim_code(claim: Claim) -> tuple[object, ...]:
    members = "".join(member.id for member in claim.members)
    positions = tuple(sorted(claim.positions.items()))
    return claim.epoch, set_code(claim.base), members, claim.whole, positions, letters(claim.holders)


def _claim_of(code: tuple[Any, ...]) -> Claim:
    epoch, base, members, whole, positions, holders = code
    found = tuple(member(id) for id in members), whole, dict(positions), tuple(member(id) for id in holders)
    return Claim(epoch, in_sync(base), *found)
