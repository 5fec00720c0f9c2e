"""Archives as files: written under another name, synced and renamed; read only after every octet was checked. Shell."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

from qpidd_py.store.archive import (
    ArchiveError,
    End,
    Header,
    Message,
    decode_end,
    decode_header,
    decode_line,
    encode_end,
    encode_header,
    encode_message,
    encode_object,
)

_BLOCK: Final = 1 << 20


class ArchiveWriter:
    """Lines to a stream."""

    def __init__(self, stream: IO[bytes], header: Header) -> None:
        self._stream = stream
        self._sum = hashlib.sha256()
        self.messages = self.objects = self.octets = 0
        self._write(encode_header(header))

    def object(self, payload: bytes) -> None:
        self.objects += 1
        self._write(encode_object(payload))

    def message(self, message: Message) -> None:
        self.messages += 1
        self._write(encode_message(message))

    def finish(self) -> None:
        self._stream.write(encode_end(End(self.messages, self.objects, self._sum.hexdigest())))
        self._stream.flush()

    def _write(self, line: bytes) -> None:
        self._sum.update(line)
        self.octets += len(line)
        self._stream.write(line)


class NewFile:
    """A file that only its owner may read, and that is there as a whole or not at all."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, also for a path that is something else than an archive."""
        check_replaceable(path)
        self._path = path
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        self._temporary = Path(name)
        self.stream = os.fdopen(descriptor, "wb", buffering=_BLOCK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: object) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            self._temporary.unlink()

    def finish(self) -> None:
        """It has its name when this returns."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self._temporary.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def check_replaceable(path: Path) -> None:
    """Raises OSError unless `path` is free or an earlier archive."""
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            decode_header(file.readline(_BLOCK))
    except (ArchiveError, IsADirectoryError) as error:
        raise FileExistsError(f"{path} exists and is not an archive; it is not replaced") from error


class ArchiveFile:
    """An archive that was checked as a whole."""

    def __init__(self, path: Path, progress: Callable[[int, int], None] = lambda done, of: None) -> None:
        """`progress` is called with (octets read, of all).  Raises ArchiveError and OSError."""
        self.path = path
        self.size = path.stat().st_size
        try:
            self.header, self.end = self._check(progress)
        except ArchiveError as error:
            raise ArchiveError(f"{path}: {error}") from error

    def _check(self, progress: Callable[[int, int], None]) -> tuple[Header, End]:
        total, last, done = hashlib.sha256(), b"", 0
        with self.path.open("rb") as file:
            header = decode_header(file.readline(_BLOCK))
            file.seek(0)
            for line in file:
                total.update(last)
                last, done = line, done + len(line)
                progress(done, self.size)
        if not last.endswith(b"\n") or not last.startswith(b'{"end":'):
            raise ArchiveError("it is cut off: the last line is missing")
        end = decode_end(decode_line(last))
        if end is None or end.sha256 != total.hexdigest():
            raise ArchiveError("it is damaged: its checksum is another one")
        return header, end

    def lines(self) -> Iterator[bytes]:
        """Objects and messages, without header and end."""
        with self.path.open("rb") as file:
            file.readline()
            for line in file:
                if line.startswith(b'{"end":'):
                    return
                yield line

    def values(self) -> Iterator[dict[str, Any]]:
        return map(decode_line, self.lines())
