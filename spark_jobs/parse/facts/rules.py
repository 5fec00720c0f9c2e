"""How the text of a line becomes columns of an event: the small machine under `pacemaker` and `corosync` (pure).

A rule's named groups are the event's columns if they are one of `COLUMNS`, else keys of `attrs`.  Behind ` | ` the
file log has `key=value` pairs, which go to `attrs`, too; syslog cuts them off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from spark_jobs.data import table
from spark_jobs.schema import Event

COLUMNS = ("peer", "old", "new", "reason", "result")
_PAIR = re.compile(r"([\w-]+)=([^\s,;]+)")
_ROLES = {
    "Master": "Promoted",
    "Slave": "Unpromoted",
    "Promoted": "Promoted",
    "Unpromoted": "Unpromoted",
    "Started": "Started",
    "Stopped": "Stopped",
}
"""A role under the name that Pacemaker has for it since 2.1; `raw` keeps what was written."""


@dataclass(slots=True)
class Fact:
    """What one line says: `columns` and `attrs` of the event to be; `source` if it is not that of the file;
    `more`: other columns."""

    kind: str
    columns: dict[str, str]
    attrs: dict[str, str]
    planned: bool = False
    source: str = ""
    more: Event = field(default_factory=dict)


Finish = Callable[[Fact], None]


@dataclass(frozen=True)
class Rule:
    """`needle` must be in the text, `pattern` must match its beginning; `renames`: keys of the pairs behind ` | `."""

    kind: str
    needle: str
    pattern: re.Pattern[str]
    finish: Finish | None = None
    renames: tuple[tuple[str, str], ...] = ()

    def read(self, body: str) -> Fact | None:
        if self.needle not in body:
            return None
        match = self.pattern.match(body)
        if match is None:
            return None
        _, _, behind = body.partition(" | ")
        attrs = {dict(self.renames).get(key, key): value for key, value in _PAIR.findall(behind)}
        fact = Fact(self.kind, {}, attrs)
        for name, value in match.groupdict().items():
            if value is None:
                continue
            if name in COLUMNS:
                fact.columns[name] = value.strip()
            else:
                fact.attrs[name] = value.strip()
        _to_columns(fact)
        if self.finish is not None:
            self.finish(fact)
        return fact


def rules(name: str, finishers: Mapping[str, Finish] = MappingProxyType({})) -> dict[str, tuple[Rule, ...]]:
    """Of NAME.toml, by whose they are; `finishers`: by their names there."""

    def made(kind: str, needle: str, pattern: list[str], finish: str = "", renames: Mapping[str, str] = {}) -> Rule:
        finisher = finishers[finish] if finish else None
        return Rule(kind, needle, re.compile("".join(pattern)), finisher, tuple(renames.items()))

    return {whose: tuple(made(*one) for one in of) for whose, of in table(__package__, name).items()}


def _to_columns(fact: Fact) -> None:
    for name in COLUMNS:
        if name in fact.attrs:
            fact.columns.setdefault(name, fact.attrs.pop(name))


def role(text: str) -> str | None:
    return _ROLES.get(text)


def read(rules: tuple[Rule, ...], body: str) -> Fact | None:
    """The fact of the first rule that knows the text."""
    for item in rules:
        fact = item.read(body)
        if fact is not None:
            return fact
    return None


def split_op(op: str) -> tuple[str, str] | None:
    """`broker:0_monitor_2000` is operation `monitor` of `broker:0`."""
    parts = op.rsplit("_", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].isdigit():
        return None
    # migrate_to and migrate_from have a `_` of their own
    if parts[0].endswith("_migrate") and parts[1] in ("to", "from"):
        return parts[0].removesuffix("_migrate"), f"migrate_{parts[1]}"
    return parts[0], parts[1]
