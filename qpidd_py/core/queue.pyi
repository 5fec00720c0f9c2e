from collections.abc import Iterable

class Queue:
    number: int
    name: str
    replicated: bool
    deleted: bool
    ready: int
    unacked: int
    bytes: int
    enqueued: int
    dequeued: int
    owner: object
    @property
    def consumer_count(self) -> int: ...
    def held(self) -> _octets: ...
    def peek(self, limit: int) -> list[tuple[int, bool, _octets, _octets, _octets, _octets]]: ...
    def check(self) -> None: ...

_octets = bytes

def encode_ids(ranges: Iterable[tuple[int, int]]) -> bytes: ...
def decode_ids(data: bytes) -> list[tuple[int, int]]: ...
