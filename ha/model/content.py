"""The content of a member on its own disk: whose it is, and what a restart brings back.

Theory.  A member with a journal acknowledges a position when its journal has it, and a primary counts itself as it
counts a backup.  So a restart finds everything that the member has ever acknowledged, and the broker is what it was
before: a member whose link is lost.  It is *whole* if the newest in-sync set that it stored lists it, and *in doubt*,
since it may have been removed while it was away.  The rules of promotion do not ask whether a process has restarted.

    instance    names the content.  Without a journal it is new with each process; with one it stays as long as the
                folder does, and is new when that is empty or damaged: then the set does not list this broker any more
    run         names the process.  A copied data directory has the same instance, and never the same run

What is on disk is replaced as a whole or not at all (`qpidd_py/store/journal.py`): while a difference is applied, the
content before it stays there, and a restart goes on from that.

Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Protocol

from ha.model.difference import Lineage, lineage_from_json, lineage_to_json
from ha.model.protocol import need
from qpidd_py.core import Batch, Engine
from qpidd_py.errors import LinkError


class Journal(Protocol):
    """The content on disk (`qpidd_py.store.journal.Journal`)."""

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

    def leave(self) -> None:
        """What the engine holds from here on does not continue what is on disk."""
        ...

    def begin_again(self) -> None:
        """What the engine holds now takes the place of what is on disk; `complete` when it has."""
        ...

    def note(self, note: bytes) -> None:
        """Write whose content this is, before what follows."""
        ...


class NoJournal:
    """Without a journal everything is as durable as the process."""

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

    def leave(self) -> None:
        """Nothing is on disk."""

    def begin_again(self) -> None:
        """Nothing is written."""

    def note(self, note: bytes) -> None:
        """Nothing is written."""


@dataclass(frozen=True)
class Content:
    """Whose content it is."""

    instance: str
    lineage: Lineage = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps({"instance": self.instance, "lineage": lineage_to_json(self.lineage)}).encode()

    @classmethod
    def decode(cls, note: bytes) -> Content:
        """Raises LinkError for a note that no member has written."""
        try:
            found = json.loads(note)
        except ValueError as error:
            raise LinkError(f"not a note of a member: {note!r:.80}") from error
        if not isinstance(found, dict):
            raise LinkError(f"not a note of a member: {note!r:.80}")
        return cls(need(found, "instance", str), lineage_from_json(found.get("lineage")))
