"""Keeps the promotion score of one broker up to date (the rule is in `score.py`), and reports changes.

    the link to the primary is lost ──▶ the others are asked (`finder.py`), the registry is read ──▶ score
                                                    ▲                              │
                                                    └── again, while there is no primary

The score is computed at every event that may change it, and at every tick, because doubt can begin by time alone.
While there is no primary the registry is read again every REREAD intervals: its content and its reachability change
without notice.

Invariants: at most one reading of the registry is under way; a reading from before the loss of a primary is not used
after it; nothing is read while a primary feeds us, or while we are primary.
Who may call: every part of the core; `look` calls `news` only, never the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ha.model.environment import Exchanged
from ha.model.local_member import LocalMember
from ha.model.view import View
from ha.promotion.case import ManagerRecord
from ha.promotion.score import NO_REGISTRY, SLOW, Outlook, Registry, score

REREAD: Final = 1.0
"""Least number of heartbeat intervals between two readings of the registry."""
RECENT: Final = 2.0
"""Heartbeat intervals for which a promotion uses a reading; longer would be safe, but fail more often."""


class Candidacy:
    """The score of one broker, from its start to its end."""

    def __init__(self, local: LocalMember, standing: Callable[[], tuple[View, Outlook]]) -> None:
        """`standing` returns the broker's own view, and what its role knows of the others."""
        self._local = local
        self._standing = standing
        self.score: int | None = None
        """None: this broker must not be promoted now."""
        self.news: Callable[[], None] = lambda: None
        """Called after every look that found another state or score, and at every tick."""
        self._told: object = None
        self._registry = Registry() if local.settings.registry else NO_REGISTRY
        self._under_way = False
        self._readings = 0
        """Number of readings of the registry begun."""
        self._void = 0
        """Number of readings begun before the present search for a primary; their results are not used."""
        self._read_at = self._known_at = float("-inf")
        """Start times of the last reading, and of the last one that has ended."""

    def tick(self) -> None:
        self.look()
        self.news()

    def look(self) -> None:
        """Recompute the score after an event that may change it."""
        local = self._local
        view, outlook = self._standing()
        if local.settings.registry:
            self._keep_reading(local.state.is_backup and not outlook.follows)
        found = score(view, outlook, local.safety, self._registry, self.score)
        self.score = found if local.state.is_primary else self._possible(found)
        if self._told != (told := (local.state, self.score)):
            self._told = told
            self.news()

    def _possible(self, found: int | None) -> int | None:
        """The score of a backup with this disk.  It cannot be promoted without a stored vote."""
        if found is None or self._local.disk.error:
            return None
        return min(found, SLOW) if self._local.slow_disk else found

    def recent(self) -> ManagerRecord | None:
        """A recent reading of the registry, if it was made since the primary was lost."""
        local = self._local
        fresh = local.settings.registry and local.env.now() - self._known_at <= RECENT * local.settings.heartbeat
        return self._registry.record if fresh else None

    def _keep_reading(self, needed: bool) -> None:
        now, interval = self._local.env.now(), self._local.settings.heartbeat
        if not needed:
            self._registry, self._void = Registry(), self._readings
            self._read_at = self._known_at = float("-inf")
        elif not self._under_way and now - self._read_at >= REREAD * interval:
            self._read_at = now
            self._read()

    def _read(self) -> None:
        local = self._local
        self._under_way = True
        self._readings += 1
        done = partial(self._was_read, self._readings, self._read_at)
        local.env.exchange(None, local.settings.registry_timeout, done)

    def _was_read(self, number: int, began: float, end: Exchanged) -> None:
        self._under_way = False
        if self._local.stopped:
            return
        if number > self._void:
            self._known_at = began
            self._registry = Registry(failed=True) if end.error else Registry(ManagerRecord.read(end))
            self._listen(end)
        self.look()

    def _listen(self, end: Exchanged) -> None:
        """The registry may know of members that neither we nor those whom we ask do: then one of them is primary."""
        self._local.cluster.heard_of(state.in_sync for state in end.states)
