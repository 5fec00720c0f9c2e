"""How far a journal had come, in a file next to its folder: shows that this was put back from an older copy.     Shell.

The folder has a mark of its own (`layout.MARK`), which says what was on disk *in it* and goes wherever it is copied to;
so that one cannot tell a copy, and this one cannot be part of it.  This one is written now and then, and when the
broker stops; it is never ahead of what is on disk.  A mark that cannot be read says nothing.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from qpidd_py.store.layout import decode_mark, encode_mark

NAME: Final = "journal.mark"
EVERY: Final = 60.0
"""Seconds between two marks."""

log = logging.getLogger(__name__)


def read_mark(path: Path) -> int:
    """The position; 0 if there is none."""
    try:
        return decode_mark(path.read_bytes())
    except OSError:
        return 0


def write_mark(path: Path, position: int) -> None:
    """A disk that fails costs the mark only."""
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("wb") as file:
            file.write(encode_mark(position))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
