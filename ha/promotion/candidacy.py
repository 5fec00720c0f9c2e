"""Keeps the promotion score of one broker up to date (the rule is in `score.py`), and says when there is news.

    the link to the primary is lost ──▶ the others are asked (`finder.py`), the registry is read ──▶ score
                                                    ▲                              │
                                                    └── again, while nobody is primary

It looks at every event that may change the score, and at every tick: doubt grows with time alone.  While there is no
primary the registry is read again every REREAD intervals, because what it says, and whether it answers at all, changes
without our being told.

Invariants: at most one reading of the registry is under way; what was read before a primary was lost is not used after
it; nothing is read while a primary feeds us, or while we are one.
Who may call: everybody in the core; `look` never calls back into the caller, only `news`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ha.environment import Exchanged
from ha.model.local_member import LocalMember
from ha.model.view import View
from ha.promotion.promotion import Record
from ha.promotion.score import NO_REGISTRY, Outlook, Registry, score

REREAD: Final = 1.0
"""Heartbeat intervals between two readings of the registry, at least."""
RECENT: Final = 2.0
"""Heartbeat intervals for which a promotion takes what was read; longer would be safe, too, and in vain more often."""


class Candidacy:
    """The score of one broker, from its start to its end."""

    def __init__(self, local: LocalMember, standing: Callable[[], tuple[View, Outlook]]) -> None:
        """`standing`: what the broker says of itself, and what its role knows of the others."""
        self._local = local
        self._standing = standing
        self.score: int | None = None
        """None: it must not be promoted now."""
        self.news: Callable[[], None] = lambda: None
        """Called after every look that has found another state or another score, and at every tick."""
        self._told: object = None
        self._registry = Registry() if local.settings.registry else NO_REGISTRY
        self._under_way = False
        self._readings = 0
        """How many readings of the registry were begun."""
        self._void = 0
        """The first so many were begun before this search for a primary, and say nothing."""
        self._read_at = self._known_at = float("-inf")
        """When the last reading was begun, and the last one that has ended."""

    def tick(self) -> None:
        self.look()
        self.news()

    def look(self) -> None:
        """Something has happened that may change the score."""
        local = self._local
        view, outlook = self._standing()
        if local.settings.registry:
            self._keep_reading(local.state.is_backup and not outlook.follows)
        # A broker whose vote cannot be stored would be promoted in vain; a primary goes on as far as it can.
        refused = bool(local.disk.error) and not local.state.is_primary
        self.score = None if refused else score(view, outlook, local.safety, self._registry, self.score)
        if self._told != (told := (local.state, self.score)):
            self._told = told
            self.news()

    def recent(self) -> Record | None:
        """The registry as it was a moment ago, if it was read since the primary was lost."""
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
            self._registry = Registry(failed=True) if end.error else Registry(Record.read(end))
        self.look()
