"""Clients of a scenario: those of the torture, as threads of the test, and the verdict of its checker.

One producer and one consumer on `client_lib`; a plain producer whose messages are not consumed before `finish`, so that
every one of them has to survive all that happens meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from demo.progress import Board, Slot, create
from testkit.judge import History, Verdict, longest_pause
from testkit.record import Recorder, read
from tests.support.wait import wait_for
from torture import library, plain
from torture.context import Context
from torture.load import Client

PRODUCERS: Final = ("library1", "plain1")
CLIENTS: Final = (*PRODUCERS, "library2", "plain2")
RATE: Final = 60.0
"""Messages a second of each producer."""
PATIENCE: Final = 60.0


class Load:
    """Begins at once; `finish` or `close` ends it.  `queue` distinguishes the loads of one cluster."""

    def __init__(self, directory: Path, addresses: list[str], queue: str) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        create(directory / "progress", len(CLIENTS))
        self._board = Board(directory / "progress")
        self._targets = tuple((address.rpartition(":")[0], int(address.rpartition(":")[2])) for address in addresses)
        self._enough, self._over, self._draining = threading.Event(), threading.Event(), threading.Event()
        self.failures: list[BaseException] = []
        passed, kept = f"{queue}.passed", f"{queue}.kept"
        self._threads = [
            self._start("library1", lambda context: library.Producer(context, passed)),
            self._start("plain1", lambda context: plain.Producer(context, kept, resend=True)),
            self._start("library2", lambda context: library.Consumer(context, passed)),
            self._start("plain2", lambda context: plain.LateConsumer(context, kept)),
        ]

    def _start(self, name: str, make: Callable[[Context], Client]) -> threading.Thread:
        record = Recorder(self._directory / "history", name)
        slot = Slot(self._directory / "progress", CLIENTS.index(name))
        stop = self._enough if name in PRODUCERS else self._over
        client = make(Context(self._targets, record, slot, stop, self._draining, RATE))
        thread = threading.Thread(target=self._run, args=(client, record), name=name, daemon=True)
        thread.start()
        return thread

    def _run(self, client: Client, record: Recorder) -> None:
        try:
            client.run()
        except BaseException as error:
            self.failures.append(error)
        finally:
            record.close()

    def confirmed(self) -> list[int]:
        """So many messages of each producer."""
        return [self._board.read(slot).done for slot in range(len(PRODUCERS))]

    def progress(self, messages: int = 10) -> None:
        """Until every producer has so many more messages confirmed."""
        goals = [done + messages for done in self.confirmed()]
        wait_for(
            lambda: self.failures or all(done >= goal for done, goal in zip(self.confirmed(), goals, strict=True)),
            PATIENCE,
            lambda: f"confirmed {self.confirmed()}, wanted {goals}",
        )
        assert not self.failures

    def outage(self, begin: float, end: float) -> float:
        """The longest time without a confirm of any one producer; arguments in s of the monotonic clock."""
        confirms = self._history().confirms
        return max(longest_pause(confirms[name], int(begin * 1e6), int(end * 1e6)) for name in PRODUCERS)

    def finish(self) -> Verdict:
        """All is published, confirmed and consumed."""
        self._enough.set()
        self._join(self._threads[: len(PRODUCERS)])
        self._draining.set()
        wait_for(lambda: not self.missing(), PATIENCE, lambda: f"missing {sorted(self.missing())}")
        self.close()
        assert not self.failures
        return self._history().verdict()

    def missing(self) -> set[str]:
        """Confirmed, not consumed."""
        return set(self._history().missing())

    def confirmed_ids(self) -> set[str]:
        return self._history().confirmed

    def _history(self) -> History:
        return History().add(read(self._directory / "history"))

    def close(self) -> None:
        for event in (self._enough, self._over, self._draining):
            event.set()
        self._join(self._threads)

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"{thread.name} does not end"
