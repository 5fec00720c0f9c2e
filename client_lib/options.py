"""The options of a connection, with the names Qpid's users know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client_lib.retry import RetryPolicy

EventCallback = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Times in seconds.

    heartbeat       whole seconds, 0 = none; a silent broker is given up before two of them have passed
    connect_timeout one attempt, from the SYN to connection.open-ok; keep it short, a paused broker costs all of it
    restore_timeout how long a session whose queues are not there (yet) after a fail-over tries again
    reconnect_urls  further addresses, after the one given to the connection
    reconnect_interval  sets both reconnect_interval_min and reconnect_interval_max
    event_log       directory for the JSON lines of `client_lib.events`; None = no file
    on_event        called with each event, in whatever thread it happens; must be quick and must not raise
    """

    reconnect: bool = True
    reconnect_urls: str | Sequence[str] | None = None
    reconnect_timeout: float | None = None
    reconnect_limit: int | None = None
    reconnect_interval: float | None = None
    reconnect_interval_min: float = 0.01
    reconnect_interval_max: float = 2.0
    heartbeat: int = 2
    connect_timeout: float = 2.0
    restore_timeout: float = 5.0
    username: str = "guest"
    password: str = "guest"
    virtual_host: str = "/"
    client_id: str | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict)
    frame_max: int = 131072
    event_log: str | Path | None = None
    cluster: str = ""
    on_event: EventCallback | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.heartbeat, int) or not 0 <= self.heartbeat < 65536:
            raise ValueError(f"heartbeat must be whole seconds from 0 to 65535, not {self.heartbeat!r}")
        if self.connect_timeout <= 0:
            raise ValueError(f"connect_timeout must be positive, not {self.connect_timeout!r}")
        self.retry_policy()

    def retry_policy(self) -> RetryPolicy:
        shortest, longest = self.reconnect_interval_min, self.reconnect_interval_max
        if self.reconnect_interval is not None:
            shortest = longest = self.reconnect_interval
        return RetryPolicy(self.reconnect, self.reconnect_timeout, self.reconnect_limit, shortest, longest)
