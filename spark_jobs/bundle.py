"""An input: a folder, a tarball, a packed file or a single one, as files with names and lines.              Shell.

Theory.  A file's name is its place inside what was given, with `/` (a tarball inside a folder is a folder of that
name), so every row can name its line and two people get the same names.  The order is that of the names.  Formats are
recognized by the first octets, never by suffixes: rotated logs may be named `.1`, `-20261121` or `.gz`.

* Packed (gzip, xz, bzip2, zstd) single files are unpacked while they are read, also packed twice.
* Tarballs are unpacked below a scratch directory, under numbers instead of their names: a name like `../../etc/x` can
  do no harm, and is refused nevertheless, because it would give a wrong provenance.
* Links in a folder are not followed: what they lead to is either in the folder anyway, or was not given.  So there are
  no loops, and no line is read twice.

Refused or damaged files are listed with the reason; only a missing input is an error.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Final, cast

from spark_jobs.unpack import DAMAGE, BundleError, packing_of, reading, unpacked

__all__ = ["Bundle", "BundleError", "File", "Refused"]

LINE_MAX: Final = 1 << 20
"""Octets; the rest of a longer line is left out."""
DEPTH_MAX: Final = 4
"""Tarballs inside of tarballs."""
_TAR_MAGIC: Final = (257, b"ustar")

Progress = Callable[[int, int], None]
"""Octets of the input that were read, of how many."""


@dataclass(frozen=True)
class Refused:
    """A file that is not read, or only in part."""

    name: str
    why: str


@dataclass(frozen=True)
class File:
    """`name`: inside the input.  `mtime`: µs since 1970.  `size`: octets as they lie there, packed or not."""

    name: str
    mtime: int
    size: int
    path: Path
    _bundle: Bundle

    @property
    def packed(self) -> bool:
        try:
            with self.path.open("rb") as file:
                return bool(packing_of(file.read(6)))
        except OSError:
            return False

    def open(self) -> BinaryIO:
        """Its octets, unpacked.  Raises BundleError."""
        try:
            return unpacked(self._bundle._counted(self))
        except OSError as error:
            raise BundleError(f"{self.name}: cannot be read: {error.strerror or error}") from None

    def head(self, count: int = 40) -> list[bytes]:
        """Its first lines; does not count as progress.  Raises BundleError."""
        found: list[bytes] = []
        try:
            with unpacked(self.path.open("rb")) as file:
                while len(found) < count and (line := file.readline(LINE_MAX)):
                    found.append(line)
        except DAMAGE as error:
            if not found:
                raise BundleError(f"{self.name}: cannot be read: {error}") from None
        return found

    def lines(self) -> Iterator[bytes]:
        """With their line feeds; only the last one may lack it.  What stands before a damaged place is given, then the
        damage is listed in `Bundle.refused`.  Raises BundleError if the file cannot be opened."""
        with self.open() as file:
            number = 0
            try:
                while line := file.readline(LINE_MAX):
                    number += 1
                    yield _whole(file, line)
            except DAMAGE as error:
                self._bundle.refused.append(Refused(self.name, f"damaged behind line {number}: {error}"))


class Bundle:
    """`with Bundle(path) as bundle`: `files` in the order of their names.

    Raises BundleError if there is nothing at `path` or it cannot be read at all."""

    def __init__(self, path: Path | str, progress: Progress | None = None, scratch: Path | None = None) -> None:
        self.path = Path(path)
        self.refused: list[Refused] = []
        self.files: tuple[File, ...] = ()
        self._progress = progress
        self._scratch_in = scratch
        self._scratch: Path | None = None
        self._found: dict[str, File] = {}
        self._number = 0  # of the last file in the scratch directory
        self._inner: set[str] = set()  # files out of a tarball: the tarball has been counted
        self._done = self._total = 0

    def __enter__(self) -> Bundle:
        try:
            self._total = _size(self.path)
            if self.path.is_dir():
                self._folder(self.path, "")
            else:
                self._file(self.path, self.path.name, 0)
        except OSError as error:
            self.close()
            raise BundleError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise
        if not self.path.is_dir() and not self._found:
            self.close()
            raise BundleError(f"{self.path}: " + ("; ".join(f"{r.name}: {r.why}" for r in self.refused) or "empty"))
        self.files = tuple(self._found[name] for name in sorted(self._found))
        self.refused.sort(key=lambda refused: refused.name)
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[File]:
        return iter(self.files)

    def close(self) -> None:
        """Takes away what was unpacked."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    # ---- finding ----------------------------------------------------------------------------------------------------

    def _folder(self, directory: Path, name: str) -> None:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            if not name:
                raise
            self._refuse(name, f"cannot be read: {error.strerror}")
            return
        for entry in entries:
            inside = f"{name}/{entry.name}" if name else entry.name
            if entry.is_symlink():
                self._refuse(inside, f"a link to {os.readlink(entry.path)}: links are not followed")
            elif entry.is_dir():
                self._folder(Path(entry.path), inside)
            elif entry.is_file():
                self._guarded_file(Path(entry.path), inside)
            else:
                self._refuse(inside, "neither a file nor a folder")

    def _guarded_file(self, path: Path, name: str) -> None:
        try:
            self._file(path, name, 0)
        except OSError as error:
            self._refuse(name, f"cannot be read: {error.strerror or error}")

    def _file(self, path: Path, name: str, depth: int, mtime: float | None = None) -> None:
        """`depth` 0: as it was given, not out of a tarball."""
        status = path.stat()
        try:
            is_tar = _is_tar(path)
        except DAMAGE as error:
            self._refuse(name, f"damaged: {error}")
            return
        except BundleError as error:
            self._refuse(name, str(error).removeprefix(f"{path.name}: "))
            return
        if is_tar and depth < DEPTH_MAX:
            outer = "" if path == self.path else f"{name}/"
            self._tarball(path, name, outer, depth)
            return
        moment = int((status.st_mtime if mtime is None else mtime) * 1_000_000)
        self._found[name] = File(name, moment, status.st_size, path, self)  # of two in a tarball the last one is valid
        if depth:
            self._inner.add(name)

    def _refuse(self, name: str, why: str) -> None:
        self.refused.append(Refused(name, why))

    # ---- tarballs ---------------------------------------------------------------------------------------------------

    def _tarball(self, path: Path, name: str, prefix: str, depth: int) -> None:
        raw = cast(BinaryIO, path.open("rb")) if depth else self._counting(path.open("rb"))
        try:
            with unpacked(raw) as file, tarfile.open(fileobj=file, mode="r|") as archive:
                for member in archive:
                    self._member(archive, member, prefix, depth)
        except DAMAGE as error:
            self._refuse(name, f"damaged, the files behind are missing: {error}")

    def _member(self, archive: tarfile.TarFile, member: tarfile.TarInfo, prefix: str, depth: int) -> None:
        why = _refusal(member)
        if member.isdir() or why:
            if why:
                self._refuse(prefix + member.name, why)
            return
        source = archive.extractfile(member)
        assert source is not None  # of a file it is one
        self._number += 1
        target = self._scratch_dir() / str(self._number)
        with source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        self._file(target, prefix + str(PurePosixPath(member.name)), depth + 1, member.mtime)

    def _scratch_dir(self) -> Path:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="bundle-", dir=self._scratch_in))
        return self._scratch

    # ---- progress ---------------------------------------------------------------------------------------------------

    def _counted(self, file: File) -> BinaryIO:
        raw = file.path.open("rb")
        return cast(BinaryIO, raw) if file.name in self._inner else self._counting(raw)

    def _counting(self, raw: BinaryIO) -> BinaryIO:
        def take(size: int) -> bytes:
            found = raw.read(size)
            self._count(len(found))
            return found

        return raw if self._progress is None else reading(take, raw)

    def _count(self, octets: int) -> None:
        self._done = min(self._done + octets, self._total)  # a file that is read twice counts once too much
        if self._progress is not None:
            self._progress(self._done, self._total)


def _refusal(member: tarfile.TarInfo) -> str:
    """Why a member is not read; empty if it is."""
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts or "\0" in member.name:
        return "its name leads out of the tarball"
    if member.issym() or member.islnk():
        return f"a link to {member.linkname}: links are not followed"
    return "" if member.isdir() or (member.isfile() and parts) else "neither a file nor a folder"


def _size(path: Path) -> int:
    """Octets of all files below."""
    if not path.is_dir():
        return path.stat().st_size
    sizes = 0
    for root, _, names in os.walk(path):
        for name in names:
            status = os.lstat(os.path.join(root, name))
            sizes += status.st_size if os.path.isfile(os.path.join(root, name)) else 0
    return sizes


def _whole(file: BinaryIO, line: bytes) -> bytes:
    """Leaves out the end of a line that is too long."""
    if len(line) < LINE_MAX or line.endswith(b"\n"):
        return line
    while (more := file.readline(LINE_MAX)) and not more.endswith(b"\n"):
        pass
    return line + b"\n"


def _is_tar(path: Path) -> bool:
    """Also if it is packed.  Raises BundleError, and what a damaged file raises."""
    offset, magic = _TAR_MAGIC
    with unpacked(path.open("rb")) as file:
        head = b""
        try:
            while len(head) < offset + len(magic) and (more := file.read1(offset)):  # type: ignore[attr-defined]
                head += more
        except EOFError:
            pass  # a log that is cut off is read as far as it goes
    return head[offset:].startswith(magic)
