"""What tests use of the system: programs and files, each with the Debian package that brings it.

The list is tools/test_packages.txt, from which tools/need_system_packages.sh installs.  A test that lacks something is
skipped and names the package.  A name that is not in the list is an error of the test, wherever it runs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

LIST: Final = Path(__file__).resolve().parents[2] / "tools/test_packages.txt"
WITH_SBIN: Final = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
"""Where Debian keeps the programs of administrators: not in everybody's PATH."""


def _read() -> dict[str, str]:
    lines = (line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {path: package for path, package, *_ in lines}


PACKAGES: Final = _read()
"""Path → package."""
_PROGRAMS: Final = {Path(path).name: package for path, package in PACKAGES.items()}


def package(name: str) -> str:
    """What brings the program of that name, or the file at that absolute path.

    LookupError: tools/test_packages.txt does not say."""
    found = (PACKAGES if name.startswith("/") else _PROGRAMS).get(name)
    if found is None:
        raise LookupError(f"{name} is not in {LIST.name}: add it with its Debian package")
    return found


def which(name: str, path: str | None = None) -> str | None:
    """Where the program is, below PATH or the given one; None if it is not installed."""
    package(name)
    return shutil.which(name, path=path)


def missing(*names: str) -> str:
    """Why a test that uses these is skipped; empty when all are there."""
    packages = {name: package(name) for name in names}
    lacking = [name for name in names if not (Path(name).exists() if name.startswith("/") else which(name))]
    return "; ".join(f"{name} is not found (package {packages[name]})" for name in lacking)


def needs(*names: str) -> pytest.MarkDecorator:
    """Programs, or absolute paths of files, without which a test is skipped."""
    reason = missing(*names)
    return pytest.mark.skipif(bool(reason), reason=reason)


def skip_without(*names: str) -> None:
    """`needs` for a fixture or for part of a test."""
    if reason := missing(*names):
        pytest.skip(reason)
