"""How far a journal had come, in a file next to it: shows that a folder was put back from an older copy.        Shell.

The mark is written now and then, and when the broker stops; it is never ahead of what is on disk.  It is one line of
JSON with its checksum.  A mark that cannot be read says nothing.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from pathlib import Path
from typing import Final

from qpidd_py.amqp.json_object import read_object

NAME: Final = "journal.mark"
EVERY: Final = 60.0
"""Seconds between two marks."""

log = logging.getLogger(__name__)


def read_mark(path: Path) -> int:
    """The position; 0 if there is none."""
    try:
        value = read_object(path.read_bytes())
    except (OSError, ValueError):
        return 0
    position = value.get("position")
    if not isinstance(position, int) or not 0 <= position < 1 << 64:
        return 0
    return position if value.get("crc32") == _checksum(position) else 0


def write_mark(path: Path, position: int) -> None:
    """A disk that fails costs the mark only."""
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("wb") as file:
            file.write(json.dumps({"position": position, "crc32": _checksum(position)}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


def _checksum(position: int) -> int:
    return zlib.crc32(b"%d" % position)
