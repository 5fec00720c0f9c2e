from collections.abc import Callable

from qpidd_py.core.delays import Delays
from qpidd_py.core.groups import Groups
from qpidd_py.core.routes import Route
from qpidd_py.core.shares import Shares
from qpidd_py.core.values import LastValues
from qpidd_py.core.watch import Watch
from qpidd_py.core.window import Window

NO_LIMIT: int

class Queue:
    number: int
    name: str
    host: str
    label: str
    replicated: bool
    deleted: bool
    ready: int
    unacked: int
    bytes: int
    unreadable: int
    enqueued: int
    dequeued: int
    owner: object
    ready_bytes: int
    max_count: int
    max_bytes: int
    ttl: int
    patience: int
    rejects: bool
    refused_die: bool
    shadow: bool
    keeps: bool
    watch: Watch | None
    kind: LastValues | Groups | None
    shares: Shares | None
    single: bool
    fenced: bool
    window: Window | None
    delays: Delays | None
    counts: bool
    most_returns: int
    dead_letter: Callable[[str, _octets, _octets, _octets, _octets], _Letter | None] | None
    levels: list[Queue] | None
    weighted: bool
    stuck: list[tuple[Queue, int]]
    def add_levels(self, highest: int) -> None: ...
    def count_returns(self, most: int = ...) -> None: ...
    @property
    def handed_out(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def consumer_count(self) -> int: ...
    def held(self, low: int = 0, high: int = ...) -> _octets: ...
    def rotten(self) -> _octets: ...
    def peek(self, limit: int) -> list[tuple[int, bool, _octets, _octets, _octets, _octets]]: ...
    def check(self) -> None: ...
    @property
    def moves(self) -> int: ...

_octets = bytes
_Letter = tuple[Route, bytes, bytes, bytes]
