"""Mistakes about backups that cannot keep up."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ha.primary.late import LateBackups
from ha.primary.slow import SlowBackups
from ha.primary.throttle import Throttle
from ha.shell.core_link import CoreLink
from qpidd_py.core import Batch
from tests.simulator.mistakes_safety import patched


def read_publishers_on() -> AbstractContextManager[None]:
    """What waits for a slow backup has no bound."""
    return patched(Throttle, set_slow=lambda self, reason: None)


def keep_the_slow() -> AbstractContextManager[None]:
    """A slow backup is never dropped, and the publishers wait for it."""
    return patched(SlowBackups, _is_due=lambda self, peer, now: False)


def keep_the_late() -> AbstractContextManager[None]:
    """All wait for a backup that lives and is late."""
    return patched(LateBackups, _consider=lambda self, peer, known, delays, now: None)


def late_for_ever() -> AbstractContextManager[None]:
    """A backup that was late is kept out while it is needed."""

    def change(self: LateBackups, members: Any, delays: Any, base: float, now: float) -> None:
        with patched(LateBackups, _end=lambda self, peer, known, now: None):
            old(self, members, delays, base, now)

    old = LateBackups._change
    return patched(LateBackups, _change=change)


def last_copy_given_up() -> AbstractContextManager[None]:
    """The only backup in sync leaves for being late."""

    def enough(self: LateBackups, rest: Any) -> bool:
        in_sync = self._local.persisted.in_sync
        gone = in_sync.ids - {peer.id for peer in rest} - {self._local.id}
        return self._local.safety.may_shrink(in_sync, gone)

    return patched(LateBackups, _enough=enough, _base=lambda self, members, delays: 0.0)


def spare_the_slow() -> AbstractContextManager[None]:
    """A batch that does not fit the socket any more is not sent."""

    def send_batch(self: CoreLink, batch: Batch) -> None:
        if not self.backlog:
            old(self, batch)

    old = CoreLink.send_batch
    return patched(CoreLink, send_batch=send_batch)
