from collections.abc import Callable

_Levels = tuple[int | None, int | None]

class Watch:
    stop_count: int
    stop_bytes: int
    resume_count: int
    resume_bytes: int
    alert_count: int
    alert_bytes: int
    stopped: bool
    alerting: bool
    overflown: bool
    destructs: bool
    on_change: Callable[[], None] | None
    def __init__(self, flow: _Levels = ..., resume: _Levels = ..., alert: _Levels = ...) -> None: ...
