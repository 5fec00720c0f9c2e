"""Runs what `Manager` decides: the real scripts, each a process, all nodes on this machine.  Shell.

A thread of its own waits for the ends of processes and for the next status check, as rgmanager's daemons do.  Addresses
(`ip`) are only noted: who has them, and that no other one does.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

from tests.rgmanager.cluster_conf import Cluster
from tests.rgmanager.manager import Manager, Run
from tests.rgmanager.node import Node


@dataclass
class Child:
    run: Run
    process: subprocess.Popen[bytes]
    pidfd: int
    output: IO[bytes]


class Driver:
    """`nodes` by the names of the cluster.conf; all are down at first."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.addresses: dict[str, str] = {}
        """Virtual address → node."""
        self.outputs: list[str] = []
        """What the scripts said, but for status checks that found nothing wrong."""
        self.checked: Counter[str] = Counter()
        """Service → status checks that have ended."""
        self._manager = Manager(cluster)
        self._children: dict[int, Child] = {}
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._over = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="rgmanager", daemon=True)
        self._thread.start()

    # ---- what an administrator does and sees

    def enable(self, service: str, node: str = "") -> None:
        self._do(lambda now: self._manager.enable(service, now, node))

    def disable(self, service: str) -> None:
        self._do(lambda now: self._manager.disable(service, now))

    def relocate(self, service: str, node: str = "") -> None:
        self._do(lambda now: self._manager.relocate(service, now, node))

    def node_up(self, name: str) -> None:
        self._do(lambda now: self._manager.node_up(name, now))

    def node_down(self, name: str) -> None:
        """Power cut: nothing that runs there ends in an orderly way.  Then the others hear of it."""
        with self._lock:
            for child in self._children.values():
                if child.run.node == name:
                    _kill_group(child)
            self.nodes[name].power_off()
            self.addresses = {address: node for address, node in self.addresses.items() if node != name}
        self._do(lambda now: self._manager.node_down(name, now))

    def state(self, service: str) -> tuple[str, str]:
        """State and node; busy is "changing"."""
        with self._lock:
            if self.failure is not None:
                raise self.failure
            entry = self._manager.entries[service]
            busy = bool(entry.requests) or (entry.run is not None and entry.run.action != "status")
            return ("changing" if busy else entry.state), entry.owner

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(self._manager.entries)

    @property
    def report(self) -> str:
        return "\n".join(["---- services", *self._manager.history, "---- scripts", *self.outputs])

    def close(self) -> None:
        self._over = True
        self._wake()
        self._thread.join()
        for child in list(self._children.values()):
            _kill_group(child)
            child.process.wait()
            self._forget(child)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # ---- the thread

    def _do(self, work: Callable[[float], list[Run]]) -> None:
        with self._lock:
            self._carry_out(work(time.monotonic()))
        self._wake()

    def _wake(self) -> None:
        os.write(self._wake_write, b"x")

    def _serve(self) -> None:
        try:
            while not self._over:
                for key, _ in self._selector.select(self._patience()):
                    self._ready(key)
                self._do_quietly()
        except BaseException as error:
            self.failure = error

    def _do_quietly(self) -> None:
        with self._lock:
            self._carry_out(self._manager.tick(time.monotonic()))

    def _patience(self) -> float | None:
        with self._lock:
            due = self._manager.next_tick()
        return None if math.isinf(due) else max(0.0, due - time.monotonic())

    def _ready(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            os.read(self._wake_read, 4096)
            return
        with self._lock:
            child: Child = key.data
            code = child.process.wait()
            self._tell(child, code)
            self._forget(child)
            self._carry_out(self._manager.ended(child.run.number, code, time.monotonic()))

    def _carry_out(self, runs: list[Run]) -> None:
        waiting = list(runs)
        while waiting:
            run = waiting.pop()
            if run.resource.kind == "ip":
                waiting += self._manager.ended(run.number, self._address(run), time.monotonic())
            else:
                self._spawn(run)

    def _address(self, run: Run) -> int:
        """The exit code of an address's agent."""
        address, owner = run.resource.name, self.addresses.get(run.resource.name)
        if run.action == "start":
            assert owner in (None, run.node), f"{address} is on {owner}, and has to be started on {run.node}"
            self.addresses[address] = run.node
        elif run.action == "stop" and owner == run.node:
            del self.addresses[address]
        return int(run.action == "status" and owner != run.node)

    def _spawn(self, run: Run) -> None:
        node, output = self.nodes[run.node], tempfile.TemporaryFile()  # noqa: SIM115 (closed by _forget)
        process = subprocess.Popen(
            [str(node.script(run.resource.file)), run.action],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=node.environment(), start_new_session=True,
        )  # fmt: skip
        child = Child(run, process, os.pidfd_open(process.pid), output)
        self._children[run.number] = child
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)

    def _tell(self, child: Child, code: int) -> None:
        child.output.seek(0)
        text, run = child.output.read().decode(errors="replace").strip(), child.run
        self.checked[run.service] += run.action == "status"
        if code or run.action != "status":
            now = time.monotonic()
            self.outputs.append(f"{now:.3f} {run.node} {run.resource.name} {run.action} -> {code}: {text}")

    def _forget(self, child: Child) -> None:
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        child.output.close()
        del self._children[child.run.number]


def _kill_group(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
