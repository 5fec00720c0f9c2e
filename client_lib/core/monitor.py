"""What the threaded and the asyncio API differ in: how somebody is kept out, and how somebody who waits is told."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol


class Monitor(Protocol):
    """A `threading.Condition`, or asyncio's stand-in, which keeps nobody out."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...

    def notify_all(self) -> None: ...
