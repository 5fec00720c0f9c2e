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
from typing import TYPE_CHECKING, Final

from ha.environment import Exchanged
from ha.promotion.promotion import Record
from ha.promotion.score import NO_REGISTRY, Registry, score

if TYPE_CHECKING:
    from ha.node import Node

REREAD: Final = 1.0
"""Heartbeat intervals between two readings of the registry, at least."""
RECENT: Final = 2.0
"""Heartbeat intervals for which a promotion takes what was read; longer would be safe, too, and in vain more often."""


class Candidacy:
    """The score of one broker, from its start to its end."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.score: int | None = None
        """None: it must not be promoted now."""
        self.news: Callable[[], None] = lambda: None
        """Called after every look that has found another state or another score, and at every tick."""
        self._told: object = None
        self._registry = Registry() if node.settings.registry else NO_REGISTRY
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
        node = self._node
        outlook = node.role.outlook
        if node.settings.registry:
            self._keep_reading(node.state.is_backup and not outlook.follows)
        # A broker whose vote cannot be stored would be promoted in vain; a primary goes on as far as it can.
        refused = bool(node.disk.error) and not node.state.is_primary
        self.score = None if refused else score(node.view(), outlook, node.safety, self._registry, self.score)
        if self._told != (told := (node.state, self.score)):
            self._told = told
            self.news()

    def recent(self) -> Record | None:
        """The registry as it was a moment ago, if it was read since the primary was lost."""
        node = self._node
        fresh = node.settings.registry and node.env.now() - self._known_at <= RECENT * node.settings.heartbeat
        return self._registry.record if fresh else None

    def _keep_reading(self, needed: bool) -> None:
        now, interval = self._node.env.now(), self._node.settings.heartbeat
        if not needed:
            self._registry, self._void = Registry(), self._readings
            self._read_at = self._known_at = float("-inf")
        elif not self._under_way and now - self._read_at >= REREAD * interval:
            self._read_at = now
            self._read()

    def _read(self) -> None:
        node = self._node
        self._under_way = True
        self._readings += 1
        done = partial(self._was_read, self._readings, self._read_at)
        node.env.exchange(None, node.settings.registry_timeout, done)

    def _was_read(self, number: int, began: float, end: Exchanged) -> None:
        self._under_way = False
        if self._node.stopped:
            return
        if number > self._void:
            self._known_at = began
            self._registry = Registry(failed=True) if end.error else Registry(Record.read(end))
        self.look()
