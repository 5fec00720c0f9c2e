"""What rgmanager does with its services, as far as our scripts can notice.  Pure: time and exit codes come in, and
commands (`Run`) go out.

    stopped ──start──▶ starting ──▶ started ──status fails──▶ stopping ──▶ starting, here or elsewhere (`recovery`)
       ▲                  │            │
       └── failed on all nodes         └──disable──▶ stopping ──▶ disabled
    failed: a stop has failed; nothing happens until an administrator disables the service.

* A service is a tree of resources.  They are started in order until one fails, stopped in the opposite order all of
  them, asked for their status until one fails.  A start that fails is followed by a stop.
* One operation of a service at a time; requests meanwhile wait.  *Different services know nothing of each other*: two
  of them on one node are recovered at the same moment, which is what makes QPID-5942 possible.
* `restart`: stop and start on the same node, elsewhere if that fails.  `relocate`: stop, then start on the next node
  that may have it; on the same one again only if no other can.  `disable`: stop.
* A stop has no time limit.
* Services of a node that died (and was fenced) are started elsewhere without a stop.  A node that comes up gets the
  services that are stopped and may run there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from tests.rgmanager.cluster_conf import Cluster, Resource, Service

STOPPED: Final = "stopped"
STARTING: Final = "starting"
STARTED: Final = "started"
STOPPING: Final = "stopping"
DISABLED: Final = "disabled"
FAILED: Final = "failed"


@dataclass(frozen=True)
class Run:
    """To be carried out on `node`; its exit code is given to `Manager.ended` with the same `number`."""

    number: int
    service: str
    node: str
    action: str
    resource: Resource


Steps = Generator[Run, int, None]
Answer = Generator[Run, int, bool]


@dataclass
class Entry:
    """One service: what is known of it, and what is being done."""

    service: Service
    state: str = STOPPED
    owner: str = ""
    """The node; "" when it is nowhere."""
    steps: Steps | None = None
    run: Run | None = None
    requests: deque[Callable[[], Steps]] = field(default_factory=deque)
    poll_due: float = 0.0


class Manager:
    """`now` is any clock, in seconds.  Every method returns what to run because of it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.alive: set[str] = set()
        self.entries = {service.name: Entry(service) for service in cluster.services}
        self.history: list[str] = []
        """Each change of state and each failure, for the reader of a failed test."""
        self._number = 0
        self._now = 0.0

    # ---- time and results

    def tick(self, now: float) -> list[Run]:
        """The status checks that are due."""
        self._now = now
        runs = []
        for entry in self.entries.values():
            if entry.state == STARTED and entry.steps is None and now >= entry.poll_due:
                entry.poll_due = now + self._cluster.interval(entry.service)
                runs += self._begin(entry, self._check(entry))
        return runs

    def next_tick(self) -> float:
        """When to call `tick`; infinite if nothing is running."""
        due = (entry.poll_due for entry in self.entries.values() if entry.state == STARTED and entry.steps is None)
        return min(due, default=float("inf"))

    def ended(self, number: int, code: int, now: float) -> list[Run]:
        """An answer to what has been given up meanwhile is ignored."""
        self._now = now
        for entry in self.entries.values():
            if entry.run is not None and entry.run.number == number:
                return self._answered(entry, code)
        return []

    # ---- the administrator, the membership

    def enable(self, name: str, now: float, node: str = "") -> list[Run]:
        entry = self.entries[name]
        return self._request(entry, lambda: self._enable(entry, node), now)

    def disable(self, name: str, now: float) -> list[Run]:
        entry = self.entries[name]
        return self._request(entry, lambda: self._disable(entry), now)

    def relocate(self, name: str, now: float, node: str = "") -> list[Run]:
        entry = self.entries[name]
        return self._request(entry, lambda: self._relocate(entry, node), now)

    def node_up(self, node: str, now: float) -> list[Run]:
        self._now = now
        self.alive.add(node)
        self._note(node, "up")
        runs = []
        for entry in self.entries.values():
            waits = entry.state == STOPPED and entry.steps is None and entry.service.autostart
            if waits and node in self._where(entry):
                runs += self._begin(entry, self._place(entry))
        return runs

    def node_down(self, node: str, now: float) -> list[Run]:
        """It was fenced: whatever ran there does not run any more."""
        self._now = now
        self.alive.discard(node)
        self._note(node, "down")
        runs = []
        for entry in self.entries.values():
            if entry.owner == node or (entry.run is not None and entry.run.node == node):
                if entry.steps is not None:
                    entry.steps.close()
                entry.steps = entry.run = None
                self._set(entry, STOPPED)
                runs += self._begin(entry, self._place(entry))
        return runs

    # ---- one operation at a time

    def _request(self, entry: Entry, make: Callable[[], Steps], now: float) -> list[Run]:
        self._now = now
        entry.requests.append(make)
        return [] if entry.steps is not None else self._next(entry)

    def _begin(self, entry: Entry, steps: Steps) -> list[Run]:
        entry.steps = steps
        return self._advance(entry, lambda: next(steps))

    def _answered(self, entry: Entry, code: int) -> list[Run]:
        steps, run = entry.steps, entry.run
        assert steps is not None and run is not None
        if code:
            self._note(entry.service.name, f"{run.action} of {run.resource.name} on {run.node} failed with {code}")
        return self._advance(entry, lambda: steps.send(code))

    def _advance(self, entry: Entry, step: Callable[[], Run]) -> list[Run]:
        try:
            entry.run = step()
        except StopIteration:
            entry.steps = entry.run = None
            return self._next(entry)
        return [entry.run]

    def _next(self, entry: Entry) -> list[Run]:
        return self._begin(entry, entry.requests.popleft()()) if entry.requests else []

    # ---- operations

    def _check(self, entry: Entry) -> Steps:
        for resource in entry.service.starting():
            if (yield self._run(entry, "status", resource)):
                yield from self._recover(entry)
                return

    def _recover(self, entry: Entry) -> Steps:
        node, recovery = entry.owner, entry.service.recovery
        if not (yield from self._stop(entry)):
            return
        if recovery == "disable":
            self._set(entry, DISABLED)
        else:
            yield from self._place(entry, **({"first": node} if recovery == "restart" else {"last": node}))

    def _enable(self, entry: Entry, node: str) -> Steps:
        if entry.state in (STOPPED, DISABLED):
            yield from self._place(entry, first=node)

    def _disable(self, entry: Entry) -> Steps:
        if entry.owner and not (yield from self._stop(entry)):
            return
        self._set(entry, DISABLED)

    def _relocate(self, entry: Entry, node: str) -> Steps:
        here = entry.owner
        if entry.state == STARTED and (yield from self._stop(entry)):
            yield from self._place(entry, first=node, last=here)

    def _place(self, entry: Entry, first: str = "", last: str = "") -> Steps:
        """Starts the service on the first node that can: `first`, then those of its domain in order, at last `last`."""
        nodes = sorted(self._where(entry), key=lambda node: (node != first, node == last))
        for node in nodes:
            if (yield from self._start(entry, node)) or entry.state == FAILED:
                return
        self._set(entry, STOPPED)

    def _start(self, entry: Entry, node: str) -> Answer:
        self._set(entry, STARTING, node)
        for resource in entry.service.starting():
            if (yield self._run(entry, "start", resource)):
                yield from self._stop(entry)
                return False
        self._set(entry, STARTED, node)
        entry.poll_due = self._now + self._cluster.interval(entry.service)
        return True

    def _stop(self, entry: Entry) -> Answer:
        self._set(entry, STOPPING, entry.owner)
        codes = []
        for resource in entry.service.stopping():
            codes.append((yield self._run(entry, "stop", resource)))
        self._set(entry, FAILED if any(codes) else STOPPED)
        return not any(codes)

    def _where(self, entry: Entry) -> list[str]:
        """Living nodes that may have the service, preferred ones first."""
        domain, everybody = entry.service.domain, self._cluster.nodes
        preferred = list(domain.nodes) if domain is not None else []
        rest = [] if domain is not None and domain.restricted else [node for node in everybody if node not in preferred]
        return [node for node in preferred + rest if node in self.alive]

    def _run(self, entry: Entry, action: str, resource: Resource) -> Run:
        self._number += 1
        return Run(self._number, entry.service.name, entry.owner, action, resource)

    def _set(self, entry: Entry, state: str, owner: str = "") -> None:
        entry.state, entry.owner = state, owner
        self._note(entry.service.name, f"{state} {owner}".rstrip())

    def _note(self, who: str, text: str) -> None:
        self.history.append(f"{self._now:.3f} {who}: {text}")
