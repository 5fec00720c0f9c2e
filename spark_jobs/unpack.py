"""Reading what is packed (gzip, xz, bzip2, zstd), told by its first octets; UTF-16 becomes UTF-8.

All yield everything before a damaged place before they raise: the torn end of a log is where the incident is.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

NESTED_MAX: Final = 4
"""Packings of one file."""
DAMAGE: Final = (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError)
"""The errors of reading a damaged file."""
Take = Callable[[int], bytes]
"""So many octets at most; none at the end."""
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
        file = reading(_opened(file, packing), file)
    if file.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # type: ignore[attr-defined]
        file = reading(_Utf8(file).take, file)
    return file


def reading(take: Take, inner: BinaryIO) -> BinaryIO:
    """A file of what `take` gives; it closes the inner one."""
    return cast(BinaryIO, _Nested(_Raw(take), inner))


def _opened(file: BinaryIO, packing: str) -> Take:
    if packing == "gzip":
        return gzip.GzipFile(fileobj=file).read1
    if packing == "zstd":
        import pyarrow as pa  # slow to import

        return cast(Take, pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd").read)
    return _Decoded(file, bz2.BZ2Decompressor if packing == "bzip2" else lzma.LZMADecompressor).take


class _Decoded:
    """xz or bzip2.  The readers of the standard library end at zeros, and lose the end of what stands before damage."""

    def __init__(self, file: BinaryIO, make: Callable[[], Any]) -> None:
        self._file, self._make, self._decoder, self._rest = file, make, make(), b""

    def take(self, size: int) -> bytes:
        found = b""
        while not found and (not self._decoder.eof or self._next()):
            data = b""
            if self._decoder.needs_input:
                data, self._rest = self._rest or self._file.read(_CHUNK), b""
                if not data:
                    raise EOFError("it ends too early")
            found = self._decoder.decompress(data, size)
        return found

    def _next(self) -> bool:
        """Packed files may be appended to each other, and be filled up with zeros."""
        rest: bytes = self._decoder.unused_data.lstrip(b"\0")
        while not rest and (rest := self._file.read(_CHUNK)):
            rest = rest.lstrip(b"\0")
        if rest:
            self._rest, self._decoder = rest, self._make()
        return bool(rest)


class _Utf8:
    """What is written in UTF-16, with the mark of its order of octets in front."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._rest = file, b""
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def take(self, size: int) -> bytes:
        while not self._rest and (data := self._file.read(_CHUNK)):
            self._rest = self._decoder.decode(data).encode("utf-8", "replace")
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


class _Raw(io.RawIOBase):
    def __init__(self, take: Take) -> None:
        self._take = take

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self._take(len(buffer))
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
