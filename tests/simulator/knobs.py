"""The points where the product may legally be slow, split a batch or try again, and which of them a scenario turns.

This is what others call buggify; no point needs code of its own in the product, since each is a setting or lies in a
port.  `--coverage` prints in how many seeds each was turned: one that never is tests nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.simulator.scenario import Scenario


@dataclass(frozen=True)
class Knob:
    """`where` it is in the product, and what turning it means."""

    where: str
    means: str
    turned: Callable[[Scenario], bool]


def _option(name: str, inner: str = "") -> Callable[[Scenario], bool]:
    def turned(scenario: Scenario) -> bool:
        value: Any = scenario.option(name, None)
        return bool(value) and (not inner or bool(value.get(inner)))

    return turned


def _action(*kinds: str) -> Callable[[Scenario], bool]:
    return lambda scenario: any(action.do in kinds for action in scenario.actions)


KNOBS: Final[Mapping[str, Knob]] = {
    "turn": Knob("Engine.schedule", "a turn takes long, so its batch is large", _option("turn")),
    "split": Knob("Connection.feed", "reads end anywhere in a frame", _option("search", "split")),
    "reads": Knob("Reactor.read", "a turn reads little of each connection", _option("reactor", "octets")),
    "partial": Knob("Reactor.flush", "a socket takes part of what is written", _option("reactor", "partly")),
    "long turn": Knob("Reactor.poll", "time passes between the connections of a turn", _option("reactor", "seconds")),
    "linger": Knob("Reactor.wait", "acknowledgements wait for a batch that comes anyway", _option("reactor", "linger")),
    "short slice": Knob("Engine.slice", "a purge or a deletion takes many turns", _option("looks")),
    "timers": Knob("Environment.after", "timers are late", _option("search", "timers")),
    "priorities": Knob("Reactor.poll", "one source is served before all others", _option("search", "priorities")),
    "slice": Knob(
        "NodeSettings.slice_size", "slices of a difference are small or large", _option("settings", "slice_size")
    ),
    "backlog": Knob(
        "NodeSettings.backlog_high", "publishers wait soon for a slow backup", _option("settings", "backlog_high")
    ),
    "slow backup": Knob(
        "NodeSettings.slow_backup_timeout", "it is dropped soon", _option("settings", "slow_backup_timeout")
    ),
    "isolation": Knob("NodeSettings.isolation_timeout", "clients go soon", _option("settings", "isolation_timeout")),
    "alone": Knob(
        "NodeSettings.isolation_wait", "an isolated primary waits long or not", _option("settings", "isolation_wait")
    ),
    "segment": Knob("Engine(segment_size)", "a batch needs many segments", _option("segments")),
    "sweep": Knob("Engine.sweep_most", "a compaction takes many ticks", _option("segments", "sweep")),
    "pages": Knob("Paging", "all that may leave memory does", lambda scenario: "pages" in scenario.options),
    "rot": Knob("Pager.arrived", "what left memory does not come back as it was", _action("page-rots")),
    "asker": Knob("Environment.request", "questions are sent again when their connection breaks", _option("asker")),
    "file": Knob("Environment.exchange", "a write of the registry fails, or is made again", _option("registry file")),
    "pacemaker": Knob("AttributeRegistry", "nodes have different copies of the registry", _option("pacemaker")),
    "slow disk": Knob("Environment.persist", "a vote or a set takes long to write", _action("slow-disk")),
    "full disk": Knob("Environment.persist", "it cannot be written, and is tried again", _action("disk-error")),
    "full socket": Knob("CoreLink.backlog", "what is written stays in the process", _action("narrow")),
    "journal": Knob("LocalMember.journal", "what is acknowledged is on a disk first", _option("journal")),
    "journal disk": Knob(
        "store.disk.Disk", "it rots, hangs, forgets", _action("disk-rots", "disk-hangs", "disk-forgets", "put-back")
    ),
    "slow journal": Knob("Journal.submit", "a commit takes long", _option("journal", "seconds")),
    "twice": Knob("Environment.request", "a request is carried out twice", _action("repeat")),
    "late": Knob("Environment.request", "a request is carried out long after its answer counts", _action("delay")),
}


def turned(scenario: Scenario) -> Counter[str]:
    """The knobs that this scenario turns, once each."""
    return Counter(name for name, knob in KNOBS.items() if knob.turned(scenario))


def text(found: Counter[str]) -> str:
    """For people: in how many seeds each was turned."""
    lines = ["knobs, and in how many seeds each was turned:"]
    lines += [f"  {name:12} {found[name]:6}  {knob.where:34} {knob.means}" for name, knob in KNOBS.items()]
    return "\n".join(lines)
