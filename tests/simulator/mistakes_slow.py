"""Mistakes about backups that cannot keep up."""

from __future__ import annotations

from contextlib import AbstractContextManager

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


def spare_the_slow() -> AbstractContextManager[None]:
    """A batch that does not fit the socket any more is not sent."""

    def send_batch(self: CoreLink, batch: Batch) -> None:
        if not self.backlog:
            old(self, batch)

    old = CoreLink.send_batch
    return patched(CoreLink, send_batch=send_batch)
