"""Writes rendered files to the disk.                                                                            Shell.

All or nothing: if a file exists and differs, none is written, unless `force` is given.  Files with a password are not
world-readable.
"""

import os
from collections.abc import Mapping
from pathlib import Path

PRIVATE = (".conf", ".xml", ".sh", ".crmsh", ".yaml")
"""qpidd.conf has the login of the links, the others may have that of a fence device."""
FOR_CONTAINERS = ("cluster.yaml",)
"""Read by the image's user, who does not exist on this machine."""


class WriteError(Exception):
    """Nothing, or not everything, was written; the text is the reason."""


def write(directory: Path, files: Mapping[str, str], force: bool = False) -> dict[str, str]:
    """`written`, `replaced` or `unchanged` for each file.  WriteError: it differs, or cannot be written."""
    try:
        states = {name: _state(directory / name, text) for name, text in files.items()}
        different = [name for name, state in states.items() if state == "replaced"]
        if different and not force:
            raise WriteError(f"{directory}: found other content in {', '.join(different)}; --force replaces it")
        for name, state in states.items():
            if state != "unchanged":
                _write(directory / name, files[name])
    except OSError as error:
        raise WriteError(f"cannot write {error.filename or directory}: {error.strerror}") from error
    return states


def _state(path: Path, text: str) -> str:
    if not path.exists():
        return "written"
    return "unchanged" if path.read_bytes() == text.encode() else "replaced"


def _write(path: Path, text: str) -> None:
    """Write under a temporary name first, so that a half-written file is never visible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    work = path.with_name(f".{path.name}.new")
    work.unlink(missing_ok=True)
    descriptor = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _mode(path))
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    work.replace(path)


def _mode(path: Path) -> int:
    """The umask takes away from it, as usual."""
    mode = 0o640 if path.suffix in PRIVATE and path.name not in FOR_CONTAINERS else 0o644
    return mode | 0o110 if path.suffix == ".sh" else mode
