from typing import Any

from typing_extensions import Buffer

HEADER_SIZE: int
OPERATIONS: dict[int, str]

class Pool:
    segment_size: int
    allocated: int
    keep: int
    paged: int
    rotten: int
    leaving: int
    written: int
    loaded: int
    sparse: int
    swept: int
    at_once: int
    def held(self) -> int: ...
    def trim(self) -> None: ...

class Page(Buffer):
    octets: int
    place: tuple[int, ...]
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def checksum(self) -> None: ...

class Batch(Buffer):
    first: int
    last: int
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def crc32c(data: bytes, crc: int = 0) -> int: ...
def link_frame(kind: int, position: int, body: bytes, records: int = 0) -> bytes: ...
def frame_length(data: bytes, at: int = 0) -> int: ...
def records(data: bytes) -> list[tuple[str, int, int, list[int], Any]]: ...
