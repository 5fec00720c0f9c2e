"""A schedule as data: what goes wrong, what clients do, and when; made from a seed (`plan.py`) or read from a file.

Each action stands for itself: it has its time, and whatever it decides at random it draws from a source of its own.  So
one can be taken away and the others happen as before, as far as their world still is the same; that is how a failing
schedule shrinks (`shrink.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import yaml

MODES = ("quorum", "manager", "availability", "registry", "gamble")
"""`ha-safety`; `registry` is `manager` with a registry, and without any fencing; `gamble` is `availability` with a
resource manager that keeps no rules: what was confirmed may be lost to the cluster, but not to the salvage files."""
FORGIVING = frozenset({"quorum", "registry"})
"""Modes in which the resource manager may do anything at any time."""
Fields = dict[str, Any]


@dataclass(frozen=True)
class Action:
    """One fault, or one thing that a client is told to do."""

    at: float
    """Virtual seconds."""
    do: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Fields:
        return {"at": self.at, "do": self.do, **self.fields}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Action:
        fields = dict(value)
        return cls(float(fields.pop("at")), str(fields.pop("do")), fields)

    def __str__(self) -> str:
        return f"{self.at:8.4f} {self.do} " + " ".join(f"{name}={value}" for name, value in self.fields.items())


@dataclass(frozen=True)
class Scenario:
    """Everything that a run depends on."""

    seed: str
    """Of all that is decided while it runs: delays, what a consumer does with a message."""
    mode: str
    brokers: int
    duration: float = 4.0
    """Virtual seconds until everything is repaired."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """See `plan.py`."""
    clients: tuple[Fields, ...] = ()
    actions: tuple[Action, ...] = ()
    title: str = ""
    expect: str = ""
    """Beginning of the violation that must show; for scenarios that show a hole."""

    def option(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)

    def rng(self, what: str) -> Random:
        """A source of randomness that is the same whatever else happens."""
        return Random(f"{self.seed}/{what}")

    def with_actions(self, actions: Iterable[Action]) -> Scenario:
        return replace(self, actions=tuple(actions))

    def text(self) -> str:
        """As a file: readable, and `read` makes the same of it."""
        head: Fields = {"title": self.title} if self.title else {}
        head |= {"seed": self.seed, "mode": self.mode, "brokers": self.brokers, "duration": self.duration}
        if self.expect:
            head["expect"] = self.expect
        lines = [yaml.safe_dump(head, sort_keys=False, width=200, allow_unicode=True)]
        lines += [f"options: {_flow(dict(self.options))}\n"]
        lines += ["clients:\n", *(f"- {_flow(client)}\n" for client in self.clients)] if self.clients else []
        actions = [action.to_json() for action in self.actions]
        lines += ["actions:\n", *(f"- {_flow(action)}\n" for action in actions)] if actions else []
        return "".join(lines)

    @classmethod
    def read(cls, text: str) -> Scenario:
        value = yaml.safe_load(text)
        value["seed"] = str(value["seed"])
        value["clients"] = tuple(value.get("clients") or ())
        value["actions"] = tuple(Action.from_json(action) for action in value.get("actions") or ())
        return cls(**value)

    @classmethod
    def load(cls, path: Path) -> Scenario:
        return cls.read(path.read_text())


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20)
    return text.strip()
