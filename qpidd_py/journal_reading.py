"""Reads the journal in the main thread, before there is a loop; signals and clients are answered meanwhile."""

import logging
import signal
from typing import Any, Final

from qpidd_py.doorman import Doorman
from qpidd_py.logrules import log_notice
from qpidd_py.store.progress import Interrupted
from qpidd_py.store.service import Store

log = logging.getLogger(__name__)

STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2)
"""Signals that stop the broker."""


class JournalReading:
    """One, at the start of a broker with a journal."""

    def __init__(self, store: Store, doorman: Doorman) -> None:
        self._store = store
        self._doorman = doorman
        self.reload_waits = False
        """SIGHUP came meanwhile."""

    def run(self) -> bool:
        """False: a signal has ended it, and nothing was changed.  Raises ConfigError."""
        before = self._catch_signals()
        self._doorman.start()
        try:
            self._store.read()
        except Interrupted:
            log_notice(log, "stopping: the journal is not read to its end")
        finally:
            self._doorman.stop()
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
        return not self._store.progress.stop

    def _catch_signals(self) -> dict[int, Any]:
        """Until the loop does.  Returns the handlers before."""
        wanted = {**dict.fromkeys(STOPS, self._stop), signal.SIGHUP: self._later, signal.SIGUSR1: self._tell}
        return {number: signal.signal(number, handler) for number, handler in wanted.items()}

    def _stop(self, number: int, frame: object) -> None:
        self._store.progress.stop = True
        signal.signal(number, signal.SIG_DFL)  # a disk may hang: the second one ends the process at once

    def _later(self, number: int, frame: object) -> None:
        self.reload_waits = True

    def _tell(self, number: int, frame: object) -> None:
        log_notice(log, "%s", self._store.progress.step)
