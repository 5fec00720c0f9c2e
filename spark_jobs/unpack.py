"""Reading what is packed (gzip, xz, bzip2, zstd), told by its first octets; UTF-16 becomes UTF-8.

Unlike the readers of the standard library, these yield everything before a damaged place before they raise: the torn
end of a log is where the incident is.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, cast

NESTED_MAX: Final = 4
"""Packings of one file."""
DAMAGE: Final = (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError)
"""The errors of reading a damaged file."""
_CHUNK: Final = 1 << 15
_PACKED: Final = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}


class BundleError(ValueError):
    """An input cannot be read; the message names the file and says why."""


def packing_of(head: bytes) -> str:
    """How a file is packed, by its first octets; empty if it is not."""
    return next((name for magic, name in _PACKED.items() if head.startswith(magic)), "")


def unpacked(raw: BinaryIO) -> BinaryIO:
    """What is packed in it, also if that is packed again."""
    file: BinaryIO = raw if hasattr(raw, "peek") else cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, raw)))
    for _ in range(NESTED_MAX):
        packing = packing_of(file.peek(6))  # type: ignore[attr-defined]
        if not packing:
            break
        file = _Nested(_opened(file, packing), file)
    if file.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # type: ignore[attr-defined]
        file = _Nested(_Utf8(file), file)
    return file


def _opened(file: BinaryIO, packing: str) -> io.RawIOBase:
    if packing in _DECODERS:
        return _Decoded(file, _DECODERS[packing])
    import pyarrow as pa  # slow to import

    return _Zstd(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))


class _Inflate:
    """zlib's decoder of gzip, with the interface of the others."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._decoder.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)


_DECODERS: Final[Mapping[str, Callable[[], Any]]] = {
    "gzip": _Inflate,
    "xz": lzma.LZMADecompressor,
    "bzip2": bz2.BZ2Decompressor,
}


class _Decoded(io.RawIOBase):
    """The standard library's readers lose what stands before a damaged place; this one gives it first."""

    def __init__(self, file: BinaryIO, make: Callable[[], Any]) -> None:
        self._file, self._make, self._decoder = file, make, make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while True:
            if self._decoder.eof and not self._next():
                return 0
            data = self._file.read(_CHUNK) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not data:
                raise EOFError("it ends too early")
            found = self._decoder.decompress(data, len(buffer))
            if found:
                buffer[: len(found)] = found
                return len(found)

    def _next(self) -> bool:
        """Packed files may be appended to each other, and be filled up with zeros."""
        rest = self._decoder.unused_data.lstrip(b"\0")
        while not rest and (rest := self._file.read(_CHUNK)):
            rest = rest.lstrip(b"\0")
        if rest:
            self._file = cast(BinaryIO, _Before(rest, self._file))
            self._decoder = self._make()
        return bool(rest)


class _Before:
    """Some octets, and then a file."""

    def __init__(self, octets: bytes, file: BinaryIO) -> None:
        self._octets, self._file = octets, file

    def read(self, size: int) -> bytes:
        if not self._octets:
            return self._file.read(size)
        found, self._octets = self._octets[:size], self._octets[size:]
        return found


class _Zstd(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self._file.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class _Utf8(io.RawIOBase):
    """What is written in UTF-16, with the mark of its order of octets in front."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._rest = file, b""
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._rest and (data := self._file.read(_CHUNK)):
            self._rest = self._decoder.decode(data).encode("utf-8", "replace")
        found, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)


class _Nested(io.BufferedReader):
    """Closes what is inside as well."""

    def __init__(self, outer: io.RawIOBase, inner: BinaryIO) -> None:
        super().__init__(outer, 1 << 16)
        self._inner = inner

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._inner.close()
