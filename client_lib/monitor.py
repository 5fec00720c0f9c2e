"""The difference between the threaded and the asyncio API: mutual exclusion and notification of waiting callers."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol


class Monitor(Protocol):
    """A `threading.Condition`, or the asyncio substitute, which excludes nothing."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...

    def notify_all(self) -> None: ...
