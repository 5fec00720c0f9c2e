"""The content of a member on its own disk: whose it is, and what a restart brings back.

Theory.  A member with a journal acknowledges a position when its journal has it, and a primary counts itself as it
counts a backup.  So a restart finds everything that the member has ever acknowledged, and the broker is what it was
before: a member whose link is lost.  It is *whole* if the newest in-sync set that it stored lists it, and *in doubt*,
since it may have been removed while it was away.  The rules of promotion do not ask whether a process has restarted.

A set lists one *instance*: a run of a process.  The journal keeps the names of the runs that have written it, so a
later run *stands for* the listed one.  So does a copy of the data directory that runs next to the original.  Therefore
what it acknowledges counts from when a set lists its own instance: from then on the other one stands for no member.

What is on disk is replaced as a whole or not at all (`qpidd_py/store/journal.py`): while a difference is applied, the
content before it stays there, and a restart goes on from that.

Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ha.model.difference import Lineage, lineage_from_json, lineage_to_json
from ha.model.membership import HaState, InSync
from ha.model.protocol import need
from qpidd_py.amqp.json_object import read_object
from qpidd_py.core import Batch, Engine
from qpidd_py.errors import LinkError

KEPT: Final = 8
"""Names of earlier runs."""


class Journal(Protocol):
    """The content on disk (`qpidd_py.store.journal.Journal`)."""

    waiting: int
    """Octets that were handed over and are not on disk."""
    durable: int
    """The number of the last frame on disk."""
    full: bool
    """The disk takes no more at the moment."""

    @property
    def position(self) -> int:
        """The log is on disk up to here."""
        ...

    @property
    def complete(self) -> bool:
        """What the engine holds continues what is on disk: a restart brings back everything up to `position`."""
        ...

    def batch(self, batch: Batch) -> None:
        """Our engine sealed a batch.  Those of a primary come from the core."""
        ...

    def differ(self) -> None:
        """From here on the engine's content changes into that of a primary, part by part."""
        ...

    def part(self, kind: int, body: bytes) -> None:
        """The engine has taken over what came in this frame."""
        ...

    def leave(self) -> None:
        """What the engine holds from here on is no known change of what is on disk."""
        ...

    def begin_again(self) -> None:
        """What the engine holds now takes the place of what is on disk; `complete` when it has."""
        ...

    def note(self, note: bytes) -> None:
        """Write whose content this is, before what follows."""
        ...


class NoJournal:
    """Without a journal everything is as durable as the process."""

    waiting = 0
    durable = 0
    full = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def position(self) -> int:
        return self._engine.position

    @property
    def complete(self) -> bool:
        return True

    def batch(self, batch: Batch) -> None:
        """Nothing is written."""

    def differ(self) -> None:
        """Nothing is written."""

    def part(self, kind: int, body: bytes) -> None:
        """Nothing is written."""

    def leave(self) -> None:
        """Nothing is on disk."""

    def begin_again(self) -> None:
        """Nothing is written."""

    def note(self, note: bytes) -> None:
        """Nothing is written."""


@dataclass(frozen=True)
class Content:
    """Whose content it is."""

    instances: tuple[str, ...]
    """The runs that have written it, the last one at the end."""
    lineage: Lineage = field(default_factory=dict)
    boot: str = ""
    """If acknowledgements do not wait for the disk (`journal-sync`): the boot of the machine, whose end may have taken
    the last of them."""

    state: HaState | None = None
    """Vote and set that were on disk when this was noted: a state file that lacks them was put back from a copy."""

    def after(self, boot: str) -> Content:
        """As it is worth in this boot: what may lack something stands for no run."""
        return replace(self, instances=()) if self.boot not in ("", boot) else self

    def known_as(self, id: str, in_sync: InSync) -> tuple[str, ...]:
        """The runs that a set may list: since the one that this set lists, and a few before it."""
        member = in_sync.member(id)
        names = self.instances
        listed = names.index(member.instance) if member is not None and member.instance in names else len(names)
        return names[max(0, min(listed, len(names) - KEPT)) :]

    def encode(self) -> bytes:
        found: dict[str, object] = {"instances": self.instances, "lineage": lineage_to_json(self.lineage)}
        found |= {"boot": self.boot} if self.boot else {}
        found |= {"state": self.state.to_json()} if self.state else {}
        return json.dumps(found).encode()

    @classmethod
    def decode(cls, note: bytes) -> Content:
        """Raises LinkError for a note that no member has written."""
        try:
            found = read_object(note)
        except ValueError as error:
            raise LinkError(f"not a note of a member: {error}") from error
        instances = need(found, "instances", list)
        lineage, state = lineage_from_json(found.get("lineage")), found.get("state")
        noted = HaState.from_json(state) if state is not None else None
        return cls(tuple(map(str, instances)), lineage, str(found.get("boot", "")), noted)
