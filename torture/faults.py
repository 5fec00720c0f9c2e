"""The faults: what each does and how it is undone.  Every fault ends by itself; `KINDS` lists the faults of each mode.

A fault is made of two calls, `begin` and `end`.  `begin` returns a description of what it did, or "" when it is not
possible now (no suitable broker, or the last whole member of the in-sync set would die); then `end` is not called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from torture.brokers import Broker
from torture.lab import Lab
from torture.manager import start_promotion
from torture.network import Host
from torture.paths import Effect

CUT: Final = Effect(cut=True)
Undo = Callable[[], None]


@dataclass
class Fault:
    """One fault of a campaign."""

    kind: str
    text: str = ""
    began: float = 0.0
    ended: float = 0.0
    undo: list[Undo] = field(default_factory=list)

    def begin(self, lab: Lab) -> bool:
        self.text = KINDS[self.kind].begin(lab, self.undo)
        return bool(self.text)

    def end(self) -> None:
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()


Begin = Callable[[Lab, list[Undo]], str]


@dataclass(frozen=True)
class Kind:
    begin: Begin
    modes: frozenset[str]
    shortest: float
    longest: float
    """Seconds."""
    weight: float = 1.0
    needs: str = ""
    """A management method that the brokers must have."""


# ---- processes ------------------------------------------------------------------------------------------------------


def _kill(lab: Lab, undo: list[Undo], victims: Sequence[Broker]) -> str:
    return _down(undo, victims) if victims and lab.expendable(victims) else ""


def _down(undo: list[Undo], victims: Sequence[Broker]) -> str:
    for broker in victims:
        broker.held_down += 1
        undo.append(partial(_release, broker))
    for broker in victims:
        broker.kill()
    return "kill -9 " + _names(victims)


def _release(broker: Broker) -> None:
    broker.held_down -= 1
    broker.died = 0.0  # it is started at the next tick


def _pause(lab: Lab, undo: list[Undo], victims: Sequence[Broker]) -> str:
    if not victims or (lab.plan.mode in FENCED and not lab.expendable(victims)):
        return ""  # a manager that fences will kill it
    for broker in victims:
        broker.pause()
        undo.append(broker.resume)
    return "pause " + _names(victims)


def _primary(lab: Lab) -> list[Broker]:
    primary = lab.primary()
    return [primary] if primary is not None and primary.responsive else []


def _backups(lab: Lab, count: int = 1) -> list[Broker]:
    found = lab.backups()
    return lab.rng.sample(found, count) if len(found) >= count else []


def _any(lab: Lab, count: int = 1) -> list[Broker]:
    found = [broker for broker in lab.brokers if broker.responsive]
    return lab.rng.sample(found, count) if len(found) >= count else []


def _names(brokers: Sequence[Broker]) -> str:
    return " and ".join(broker.name for broker in brokers)


def power(lab: Lab, undo: list[Undo]) -> str:
    """All brokers at once."""
    return _kill(lab, undo, [broker for broker in lab.brokers if broker.running]) if lab.plan.journaled else ""


def power_cut(lab: Lab, undo: list[Undo]) -> str:
    """The same, and their disks forget what was not synced."""
    victims = [broker for broker in lab.brokers if broker.running]
    text = _kill(lab, undo, victims) if lab.plan.power_cuts else ""
    if not text:
        return ""
    lost = sum(broker.lose_cache(lab.rng) for broker in lab.brokers)
    return f"power cut of {_names(victims)}, {lost} changes were not on a disk"


def kill_all_backups(lab: Lab, undo: list[Undo]) -> str:
    return _kill(lab, undo, lab.backups() if lab.primary() is not None else [])


# ---- links ----------------------------------------------------------------------------------------------------------


def _spread(
    lab: Lab, undo: list[Undo], one: Host, others: Sequence[Host], effect: Effect, both: bool, out: bool
) -> None:
    """Applies an effect between one host and several; `out`: the direction, if only one."""
    for other in others:
        pair = (one, other) if out else (other, one)
        lab.lay(*pair, effect, both)
        undo.append(partial(lab.lift, *pair, effect, both))


def cut_pair(lab: Lab, undo: list[Undo]) -> str:
    chosen = _any(lab, 2)
    if not chosen or _would_be_fenced(lab, chosen):
        return ""
    one, other = chosen
    both, out = lab.rng.random() < 0.5, lab.rng.random() < 0.5
    _spread(lab, undo, one.host, [other.host], CUT, both, out)
    arrow = "-x-" if both else "-x>" if out else "<x-"
    return f"cut {one.name} {arrow} {other.name}"


def isolate(lab: Lab, undo: list[Undo]) -> str:
    """From the other brokers, and sometimes from the clients as well; in both directions or in one."""
    chosen = _primary(lab) if lab.rng.random() < 0.6 else _any(lab)
    if not chosen or _would_be_fenced(lab, chosen):
        return ""
    broker = chosen[0]
    both, out, clients = lab.rng.random() < 0.6, lab.rng.random() < 0.5, lab.rng.random() < 0.4
    others = [other.host for other in lab.brokers if other is not broker]
    _spread(lab, undo, broker.host, [*others, lab.clients] if clients else others, CUT, both, out)
    how = "" if both else ", it only hears" if out else ", it is only heard"
    return f"isolate {broker.name}{' from clients too' if clients else ''}{how}"


def cut_clients(lab: Lab, undo: list[Undo]) -> str:
    chosen = _primary(lab)
    if not chosen:
        return ""
    both, out = lab.rng.random() < 0.5, lab.rng.random() < 0.5
    _spread(lab, undo, chosen[0].host, [lab.clients], CUT, both, out)
    return f"cut {chosen[0].name} from clients{'' if both else ', to them' if out else ', from them'}"


def slow_pair(lab: Lab, undo: list[Undo]) -> str:
    chosen = _any(lab, 2)
    if not chosen:
        return ""
    effect = _slowness(lab)
    _spread(lab, undo, chosen[0].host, [chosen[1].host], effect, True, True)
    return f"slow link {_names(chosen)} ({_words(effect)})"


def slow_broker(lab: Lab, undo: list[Undo]) -> str:
    chosen = _any(lab)
    if not chosen:
        return ""
    effect = _slowness(lab)
    others = [broker.host for broker in lab.brokers if broker is not chosen[0]]
    _spread(lab, undo, chosen[0].host, [*others, lab.clients], effect, True, True)
    return f"slow links of {chosen[0].name} ({_words(effect)})"


def _slowness(lab: Lab) -> Effect:
    if lab.rng.random() < 0.5:
        return Effect(delay=round(lab.rng.uniform(0.02, 0.4), 3))
    return Effect(rate=float(lab.rng.randrange(10_000, 200_000)))


def _words(effect: Effect) -> str:
    return f"{effect.delay * 1000:.0f} ms" if effect.delay else f"{effect.rate / 1000:.0f} kB/s"


def _would_be_fenced(lab: Lab, chosen: Sequence[Broker]) -> bool:
    """A manager that fences kills isolated brokers: none of them may be the last whole member."""
    return lab.plan.mode in FENCED and not lab.expendable(chosen)


# ---- wrong and planned promotions -----------------------------------------------------------------------------------


def promote(lab: Lab, undo: list[Undo], victims: Sequence[Broker]) -> str:
    """Promotes any broker, as a wrong manager would."""

    def told(name: str, refusal: str) -> None:
        lab.say(f"   {name}: {refusal or 'promoted'}"[:200])

    if victims:
        undo += [start_promotion(broker, told).join for broker in victims]
    return "promote " + _names(victims) if victims else ""


def promote_two(lab: Lab, undo: list[Undo]) -> str:
    """A doubled manager: two promotions at one moment, mostly while the primary is stopped or isolated, so that both
    may proceed."""
    victims, primary = _backups(lab, 2), _primary(lab)
    if not victims or not primary:
        return ""
    how = lab.rng.choice(("while nothing is wrong", "pause", "cut", "cut"))
    if how == "pause":
        how = _pause(lab, undo, primary)
    elif how == "cut":
        both, out = lab.rng.random() < 0.6, lab.rng.random() < 0.5
        _spread(lab, undo, primary[0].host, [other.host for other in lab.backups()], CUT, both, out)
        how = f"isolate {primary[0].name}"
    return f"{promote(lab, undo, victims)}, {how}"


def relocate(lab: Lab, undo: list[Undo]) -> str:
    primary, targets = lab.primary(), lab.backups()
    if primary is None or not targets:
        return ""
    to = lab.rng.choice([*targets, None])

    def ask() -> None:
        refusal = lab.request(primary, "ha.relocate", to=to.address if to else "")
        lab.say(f"   relocate: {refusal or 'done'}"[:200])

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    undo.append(thread.join)
    return f"relocate from {primary.name} to {to.name if to else 'anybody'}"


def replace_member(lab: Lab, undo: list[Undo]) -> str:
    """A backup is removed from the cluster, loses its disk, and joins again as a new member."""
    primary, victims = lab.primary(), _backups(lab)
    complete = all(broker.member for broker in lab.brokers) and not lab.owed  # one at a time, as its manual says
    if primary is None or not victims or not complete or not lab.expendable(victims):
        return ""
    broker = victims[0]
    refusal = lab.request(primary, "ha.member", action="remove", address=broker.address)
    if refusal:
        lab.say(f"  member remove: {refusal}"[:200])
        lab.owed.append(broker)  # without an answer it may still come
        return ""
    broker.held_down += 1
    broker.kill()
    broker.replace_disk()
    broker.member = False

    def back() -> None:
        leader = lab.primary()
        refusal = "no primary"
        if leader is not None:
            refusal = lab.request(leader, "ha.member", action="add", address=broker.address)
        if refusal:
            lab.say(f"  member add: {refusal}"[:200])
            lab.owed.append(broker)
        else:
            broker.member = True
        _release(broker)

    undo.append(back)
    return f"replace {broker.name} by an empty one"


# ---- shovels and routes ---------------------------------------------------------------------------------------------


def kill_far(lab: Lab, undo: list[Undo]) -> str:
    """The broker outside; its journal has all that it has confirmed."""
    victims = [broker for broker in lab.far if broker.responsive]
    return _down(undo, victims) if victims else ""


def pause_far(lab: Lab, undo: list[Undo]) -> str:
    for broker in lab.far:
        broker.pause()
        undo.append(broker.resume)
    return "pause " + _names(lab.far) if lab.far else ""


def cut_far(lab: Lab, undo: list[Undo]) -> str:
    """From one broker of the cluster, mostly the primary, or from all."""
    chosen = lab.brokers if lab.rng.random() < 0.3 else _primary(lab) or _any(lab)
    if not lab.far or not chosen:
        return ""
    both, out = lab.rng.random() < 0.6, lab.rng.random() < 0.5
    _spread(lab, undo, lab.far[0].host, [broker.host for broker in chosen], CUT, both, out)
    how = "" if both else ", it only hears" if out else ", it is only heard"
    return f"cut far from {_names(chosen)}{how}"


def kill_shovel(lab: Lab, undo: list[Undo]) -> str:
    """Mostly the one that is at work."""
    if lab.routes is None:
        return ""
    busy = [shovel for shovel in lab.routes.shovels if shovel.broker in _primary(lab)]
    shovel = lab.rng.choice(busy if busy and lab.rng.random() < 0.7 else lab.routes.shovels)
    shovel.held_down += 1
    undo.append(shovel.release)
    shovel.kill()
    return f"kill -9 {shovel.name}"


CARELESS: Final = frozenset({"quorum", "registry"})
FENCED: Final = frozenset({"manager", "availability"})
ALL: Final = CARELESS | FENCED

KINDS: Final[dict[str, Kind]] = {
    "kill primary": Kind(lambda lab, undo: _kill(lab, undo, _primary(lab)), ALL, 0.5, 5, 2),
    "kill backup": Kind(lambda lab, undo: _kill(lab, undo, _backups(lab)), ALL, 0.5, 5),
    "kill two": Kind(lambda lab, undo: _kill(lab, undo, _any(lab, 2)), ALL, 0.5, 4),
    "kill all backups": Kind(kill_all_backups, ALL, 0.5, 3, 0.7),
    "power": Kind(power, ALL, 0.5, 3, 2),
    "power cut": Kind(power_cut, ALL, 0.5, 3, 3),
    "pause primary": Kind(lambda lab, undo: _pause(lab, undo, _primary(lab)), ALL, 0.3, 6, 2),
    "pause backup": Kind(lambda lab, undo: _pause(lab, undo, _backups(lab)), ALL, 0.3, 6),
    "pause two": Kind(lambda lab, undo: _pause(lab, undo, _any(lab, 2)), CARELESS, 0.3, 5),
    "cut a link": Kind(cut_pair, CARELESS | {"manager"}, 1, 8, 2),
    "isolate": Kind(isolate, CARELESS | {"manager"}, 1, 8, 3),
    "cut off clients": Kind(cut_clients, ALL, 1, 5, 0.7),
    "slow link": Kind(slow_pair, ALL, 2, 6),
    "slow broker": Kind(slow_broker, ALL, 2, 6),
    "promote two": Kind(promote_two, CARELESS, 0.5, 4, 2),
    "promote anybody": Kind(lambda lab, undo: promote(lab, undo, _any(lab)), CARELESS, 0.5, 1, 1.5),
    "kill far": Kind(kill_far, ALL, 0.5, 4),
    "pause far": Kind(pause_far, ALL, 0.3, 6, 0.7),
    "cut off far": Kind(cut_far, ALL, 1, 6),
    "kill a shovel": Kind(kill_shovel, ALL, 0.3, 3),
    "relocate": Kind(relocate, ALL, 0.5, 1, 1.5, "ha.relocate"),
    "replace member": Kind(replace_member, ALL, 1, 3, 1, "ha.member"),
}
