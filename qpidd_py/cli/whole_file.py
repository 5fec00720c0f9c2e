"""Files that are written as a whole or not at all: an older one survives a full disk.                      Shell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def whole(file: Path) -> Iterator[TextIO]:
    """What to write to; `file` is replaced at the end.  Only its owner may read a new one."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
