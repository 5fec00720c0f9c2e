"""How long and how often a client tries to connect (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Qpid's names.  Seconds; `limit` counts rounds, None = without limit.

    connect_timeout  what an attempt may take, from the SYN to connection.open-ok
    connect_overlap  after this time the next place is tried in parallel"""

    reconnect: bool = True
    timeout: float | None = None
    limit: int | None = None
    interval_min: float = 0.01
    interval_max: float = 2.0
    connect_timeout: float = 2.0
    connect_overlap: float = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.interval_min <= self.interval_max:
            raise ValueError(f"reconnect intervals {self.interval_min}..{self.interval_max} s are not a range")
        if not 0 < self.connect_overlap <= self.connect_timeout:
            raise ValueError(
                f"connect_overlap must be positive and at most connect_timeout ({self.connect_timeout} s),"
                f" not {self.connect_overlap} s"
            )
