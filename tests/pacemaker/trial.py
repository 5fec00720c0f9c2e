"""One trial: clients at work, things happen to the cluster, everybody is served again, the queues are drained, and a
judgement.                                                                                                      Shell.

    with Trial(cluster, "kill9", directory) as trial:
        trial.happen("kill -9 of the primary", node, lambda: node.signal("qpidd"))
        trial.served()
    trial.check()

Leaving the block drains and judges; an exception in it shows what happened instead.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from demo.events import read as read_events
from tests.pacemaker import morning
from tests.pacemaker.clients import RATE, Clients
from tests.pacemaker.cluster import CLIENT, PORT, VIRTUAL_ADDRESS, Cluster
from tests.pacemaker.judge import Evidence, Happening, Report, judge
from tests.pacemaker.primaries import Event
from tests.pacemaker.sampler import Sampler
from tests.pacemaker.timeline import Entry, merged, read, story
from tests.support.wait import wait_for
from torture import second_judge
from torture.evidence import bad_lines

SERVED: Final = 60.0
"""Seconds until clients are served again, whatever happened."""
DRAIN: Final = 60.0
WRITTEN: Final = (
    "var/log/pacemaker/pacemaker.log", "var/log/pacemaker/qpid-alerts.jsonl", "var/log/corosync/corosync.log",
    "var/lib/qpidd/events",
)  # fmt: skip
"""On each node; what `failover-report` reads."""


class Trial:
    """Use as a context manager, once."""

    def __init__(self, cluster: Cluster, name: str, directory: Path, rate: float = RATE, virtual: bool = True) -> None:
        """`directory`: empty; for histories, logs and the report.  Without `virtual` there is only the list."""
        self.cluster = cluster
        self.directory = directory
        self.name = name
        self.happenings: list[Happening] = []
        self.wanted_lines: list[tuple[str, str]] = []
        """Node and words of what its broker may log as critical."""
        self.report: Report | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._zero = time.time() - time.monotonic()
        self._begin = time.time()
        self.sampler = Sampler(cluster.lab.nodes, cluster.login)
        addresses = [f"{node.address}:{PORT}" for node in cluster.lab.nodes]
        address = f"{VIRTUAL_ADDRESS}:{PORT}" if virtual else ""
        self.clients = Clients(directory, cluster.lab.clients, name, addresses, address, rate, CLIENT)

    def __enter__(self) -> Trial:
        self.sampler.start()
        try:
            self.clients.start()
            self._await_clients(0, "progress of all clients")
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._drain()
                self.report = self._judge()
        except BaseException:
            self._show()
            raise
        else:
            if error is not None:
                self._show()
        finally:
            self._give_up()

    # ---- the course of it -----------------------------------------------------------------------------------------

    def happen(self, text: str, node: str, action: Callable[[], object]) -> Happening:
        """Does it, and notes when: the moment before."""
        happening = Happening(text, node, _micro())
        self.happenings.append(happening)
        action()
        return happening

    def served(self, timeout: float = SERVED) -> None:
        """Everybody has got something done after the last happening and after now."""
        self._await_clients(_micro(), "clients are served again", timeout)
        for happening in self.happenings:
            happening.served = happening.served or _micro()

    def _await_clients(self, moment: int, what: str, timeout: float = SERVED) -> None:
        def progress() -> bool:
            self.clients.check()
            return self.clients.served_since(moment)

        def state() -> str:
            return f"{what}; waiting: {self.clients.waiting_since(moment)}, brokers: {self.sampler.states()}"

        wait_for(progress, timeout, state, poll=0.02)

    # ---- the end of it --------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self.clients.stop("producers")
        self.clients.drain()
        wait_for(self._empty, DRAIN, lambda: f"empty queues; left: {self._depths()}", poll=0.1)
        self.clients.stop("consumers")
        self.sampler.stop()

    def _empty(self) -> bool:
        depths = self._depths()
        return depths is not None and not any(depths.values())

    def _depths(self) -> dict[str, int] | None:
        """Messages in this trial's queues on the primary; None when there is none, or no answer."""
        primary = self.sampler.primary()
        found = self.cluster.depths(primary) if primary else None
        mine = (item for item in (found or {}).items() if item[0].startswith(f"{self.name}."))
        return None if found is None else dict(mine)

    def _judge(self) -> Report:
        entries = self.entries()
        found = Evidence(
            happenings=self.happenings,
            history=self.clients.history(),
            samples=self.sampler.samples,
            entries=entries,
            broker_events=list(self._broker_events()),
            nodes={node.address: node.name for node in self.cluster.lab.nodes},
            zero=self._zero,
            now=time.time(),
            bad=self._bad(),
        )
        report = judge(found, story(entries, self._event_time()))
        (self.directory / "report.json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
        return report

    def check(self, may_lose: bool = False) -> Report:
        """Fails with everything that was found, and with the story of the cluster."""
        assert self.report is not None, "the trial has not ended"
        failures = [*self.report.failures(may_lose), *self._second_judge(may_lose)]
        if failures:
            self._show()
        assert not failures, "\n".join([*failures, *self.report.lines()])
        print("\n".join([f"== {self.name}", *self.report.lines()]))
        return self.report

    def _second_judge(self, may_lose: bool) -> list[str]:
        """`failover-report` from the logs alone, of everything that the nodes have written since they began."""
        assert self.report is not None
        mode, logs = "availability" if may_lose else "manager", self.directory / "logs"
        for node in self.cluster.lab.nodes:
            for place in WRITTEN:
                _copy(node.disk / place, logs / node.name / place)
        found = second_judge.contradictions(self.directory, mode, self.report.messages, True, [logs], may_lose)
        return found or morning.missed(self.report, self._zero, self.directory / "report")

    def _give_up(self) -> None:
        self.clients.kill()
        self.sampler.stop()

    # ---- what the nodes have written ------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Facts of all nodes' logs since the trial began."""
        year = datetime.now().year
        logs = []
        for node in self.cluster.lab.nodes:
            for path in ("var/log/pacemaker/pacemaker.log", "var/log/corosync/corosync.log"):
                file = node.disk / path
                lines = file.read_text(errors="replace").splitlines() if file.exists() else []
                logs.append(list(read(lines, year, self._begin)))
        return merged(logs)

    def _broker_events(self) -> Iterator[Event]:
        begin = (self._begin - self._zero) * 1e6
        for node in self.cluster.lab.nodes:
            events = read_events(node.disk / "var/lib/qpidd/events")
            yield from (event for event in events if int(event["ts_mono"]) >= begin)

    def _bad(self) -> list[str]:
        found = []
        for node in self.cluster.lab.nodes:
            lines = self.cluster.broker_log(node.name)[self.cluster.log_marks.get(node.name, 0) :]
            words = [each for name, each in self.wanted_lines if name == node.name]
            found += bad_lines(node.name, [line for line in lines if not any(each in line for each in words)])
        self.cluster.mark_logs()
        return found

    def _event_time(self) -> float:
        first = self.happenings[0].moment / 1e6 if self.happenings else time.monotonic()
        return self._zero + first

    def _show(self) -> None:
        """The story is told, as pytest shows it with a failure; the logs of all nodes are saved by `conftest.py`."""
        print(f"== {self.name}: histories in {self.directory}; brokers: {self.sampler.states()}")
        print("\n".join(f"   {one.text} ({one.node})" for one in self.happenings))
        print("\n".join(story(self.entries(), self._event_time())[-200:]))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _micro() -> int:
    return time.monotonic_ns() // 1000
