"""The broker's virtual hosts as HA sees them (`model.environment.Configuration`).                            Shell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qpidd_py.broker.adoption import adopting
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.pause import Pause
from qpidd_py.core import Queue


class VHostConfiguration:
    """The broker's virtual hosts as HA sees them (`environment.Configuration`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pause: Pause | None = None

    def snapshot(self) -> bytes:
        return self._broker.configurations.encoded()

    def adopting(self, records: list[tuple[int, bytes]]) -> Iterator[None]:
        return adopting(self._broker.configurations, records)

    def replicated(self) -> Iterable[tuple[Queue, int]]:
        queues = self._broker.configurations.all_queues()
        return [(queue.core, queue.position) for queue in queues if queue.core.replicated]

    def on_promoted(self) -> None:
        self._broker.passive = False
        self._broker.vhosts.on_promoted()

    def on_deposed(self) -> None:
        self._broker.passive = True

    def pause_clients(self, reason: str) -> None:
        self._pause = self._pause or Pause(self._broker, reason)

    def resume_clients(self) -> None:
        if self._pause is not None:
            self._pause.end()
            self._pause = None

    def still_busy(self) -> tuple[int, int]:
        return (self._pause.unanswered, self._pause.unacknowledged) if self._pause is not None else (0, 0)

    def on_throttle(self, reason: str) -> None:
        if reason:
            self._broker.block(reason, "throttle")
        else:
            self._broker.unblock("throttle")
