"""The interface of a group of brokers under measurement."""

from __future__ import annotations

from typing import Protocol


class Cluster(Protocol):
    """Brokers on the loopback interface, one process each. Nodes are numbered from 0.

    Every method may raise BenchmarkError.
    """

    name: str
    queue_arguments: str
    """Of queue.declare, "key=value,..."; empty: none."""

    def start(self) -> None:
        """Returns when node 0 takes clients and the others replicate."""

    def stop(self) -> None: ...

    def pids(self) -> list[int]:
        """Of the brokers that are running."""

    def addresses(self) -> list[str]:
        """host:port of all nodes, the one that serves clients first."""

    def fail_over(self) -> None:
        """kill -9 of the primary, and a promotion at once if the cluster needs a request for it."""

    def repair(self) -> None:
        """Starts the killed broker again and returns when it replicates."""
