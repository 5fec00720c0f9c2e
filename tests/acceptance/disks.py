"""Small file systems for the data directories of brokers, to be filled and to be made read-only.  Needs root."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path

SIZE = 1 << 20
"""Octets of one file system, usually."""
FILLER = "filler"


class SmallDisk:
    """A file system of its own, mounted at `path`.  Raises OSError when this machine does not let us mount."""

    def __init__(self, path: Path, size: int = SIZE) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._read_only = False
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path))

    def fill(self) -> None:
        """Not one octet is left."""
        with open(self.path / FILLER, "ab", buffering=0) as file:
            for size in (64 << 10, 4 << 10, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        found = errno.ENOSPC
        try:
            (self.path / "probe").write_bytes(b"x")
            found = 0
        except OSError as error:
            found = error.errno or 0
        (self.path / "probe").unlink(missing_ok=True)
        assert found == errno.ENOSPC, f"{self.path} is not full: {found}"

    def free(self) -> None:
        (self.path / FILLER).unlink()

    def freeze(self) -> None:
        """Whatever is opened from here on is read-only, as after an I/O error."""
        _run("mount", "--bind", str(self.path), str(self.path))
        self._read_only = True
        _run("mount", "-o", "remount,bind,ro", str(self.path))

    def thaw(self) -> None:
        self._read_only = False
        _run("umount", "-l", str(self.path))

    def close(self) -> None:
        if self._read_only:
            self.thaw()
        _run("umount", "-l", str(self.path))


def mountable(path: Path) -> bool:
    """May this process mount file systems?"""
    if os.geteuid():
        return False
    try:
        SmallDisk(path).close()
    except OSError:
        return False
    return True


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{' '.join(command)}: {error.stderr.strip()}") from error
