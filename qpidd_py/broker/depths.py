"""What becomes of a queue that is fuller than it should be: publishers wait, somebody is told, or it ends.

The core compares (`core/watch.pyx`) and calls at the end of the turn.  An alert is an alarm of the broker while it
lasts; one that comes again within `qpid.alert_repeat_gap` seconds is not raised again before these are over.
"""

import logging
from functools import partial
from typing import Final

from qpidd_py.broker.common import Rules
from qpidd_py.broker.endings import Endings
from qpidd_py.broker.qpid_arguments import ALERT_GAP, ALERT_GAP_DEFAULT
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.deadlines import Deadlines
from qpidd_py.core.watch import Watch
from qpidd_py.logrules import Floods
from qpidd_py.security.entries import HOST

log = logging.getLogger(__name__)

QUEUE_ALARM: Final = "queue "
"""Begins the name of an alarm about a queue of `/`, before that of the queue."""
ALARMS: Final = 100
"""Alerts that are alarms at the same time; others are only in the log."""


class Depths:
    """Of one virtual host."""

    def __init__(self, endings: Endings, floods: Floods, rules: Rules) -> None:
        self._rules = rules
        self._endings = endings
        self._floods = floods
        self._alerts: dict[DeclaredQueue, str] = {}  # that are alarms, and their names
        self._gaps: Deadlines[DeclaredQueue] = Deadlines()  # until when a queue raises no alert again
        self._recent: dict[DeclaredQueue, bool] = {}  # those, and whether their alert has come again meanwhile
        self._now = 0.0

    def created(self, queue: DeclaredQueue) -> None:
        watch = queue.core.watch
        if watch is not None:
            watch.on_change = partial(self._changed, queue, watch)

    def dropped(self, queue: DeclaredQueue) -> None:
        if queue.core.watch is not None:
            self._end(queue)
            self._recent.pop(queue, None)
            self._gaps.drop(queue)

    def tick(self, now: float) -> None:
        """`now` in seconds."""
        self._now = now
        while (queue := self._gaps.pop(now)) is not None:
            if self._recent.pop(queue, False):
                self._begin(queue)

    def _changed(self, queue: DeclaredQueue, watch: Watch) -> None:
        if watch.overflown:
            text = "queue %r is at its limit and ends (qpid.policy_type self-destruct)"
            self._floods.write(logging.WARNING, text, queue.core.label)
            self._endings.end_queues([queue])
        elif not watch.alerting:
            self._end(queue)
        elif queue not in self._alerts:
            self._begin(queue) if queue not in self._recent else self._recent.update({queue: True})

    def _begin(self, queue: DeclaredQueue) -> None:
        core = queue.core
        self._recent[queue] = False
        self._gaps.set(queue, self._now + queue.arguments.get(ALERT_GAP, ALERT_GAP_DEFAULT))
        depth = f"{core.ready} messages of {core.ready_bytes} octets"
        reason = f"queue '{queue.core.label}' has {depth} (qpid.alert_count, _size)"
        self._floods.write(logging.WARNING, "%s", reason)
        if len(self._alerts) < ALARMS:
            self._alerts[queue] = _alarm_of(queue)
            self._rules.alarm(self._alerts[queue], reason)

    def _end(self, queue: DeclaredQueue) -> None:
        if queue in self._recent:
            self._recent[queue] = False
        name = self._alerts.pop(queue, None)
        if name is not None:
            self._rules.alarm(name, "")


def _alarm_of(queue: DeclaredQueue) -> str:
    """One name for each queue of all virtual hosts, whatever they are called."""
    return QUEUE_ALARM + queue.name if queue.host == HOST else f"vhost {queue.host!r} queue {queue.name!r}"
