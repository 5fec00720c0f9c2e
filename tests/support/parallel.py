"""Which tests run one after the other in one worker of pytest-xdist, and which come first (`--dist loadfile`).

A file stays in one worker.  Files that share something that is expensive to make (an installation, an image, a Spark
session, a cluster behind a fault proxy) are one group and stay together, too.  What takes long comes first, and at the
end come tests that need nothing of each other, one by one in whichever worker is free, so that the workers end at about
the same time.  The names of files decide, since xdist tells its scheduler nothing else.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.support import slow

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK: Final = "spark session"
RABBIT: Final = "rabbit"
TOGETHER: Final = ("docker", "faults", "packaging", "pacemaker")
"""Folders whose tests share fixtures of the package or session; and one cluster of Pacemaker at a time is enough."""
FIRST: Final = (SPARK, "faults", "pacemaker", RABBIT, "rgmanager", "packaging", "agents", "acceptance", "integration")
"""Groups and folders that take long.  Tests with the Spark session are busy, most of the others wait."""
LAST: Final = "simulator"
"""The folder of tests that keep one processor busy for up to half a minute and share nothing."""
_ARGUMENT: Final = r"def \w+\([^)]*\b({})\b"
_WANTS_SPARK: Final = {
    True: re.compile(rf"^ *{_ARGUMENT.format('spark|spark_session|engine')}", re.MULTILINE),
    False: re.compile(rf"^@both_engines|(?<!mark\.slow\n)^{_ARGUMENT.format('spark|spark_session')}", re.MULTILINE),
}
"""A test or fixture with an argument that brings the session of tests/spark/conftest.py: with slow ones, or without."""


@functools.cache
def group(file: str) -> str:
    """What the tests of a file share a worker with; `file` is relative to the project, and a group by itself."""
    folder = _folder(file)
    if folder == "spark" and _WANTS_SPARK[slow.ALL in os.environ].search((ROOT / file).read_text()):
        return SPARK
    if folder == "integration" and "rabbit_port" in (ROOT / file).read_text():
        return RABBIT
    return folder if folder in TOGETHER else file


def rank(file: str) -> int:
    """The lower, the earlier."""
    names = (group(file), _folder(file))
    if LAST in names:
        return len(FIRST) + 1
    return next((FIRST.index(name) for name in names if name in FIRST), len(FIRST))


def arrange(items: list[pytest.Item]) -> None:
    """In each worker, alike: puts what takes long first."""
    items.sort(key=lambda item: rank(_file(item.nodeid)))


def _folder(file: str) -> str:
    """Below tests; empty for a file from elsewhere."""
    parts = Path(file).parts
    return parts[1] if parts[:1] == ("tests",) else ""


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class GroupsOfFiles(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """The unit of work is a group of files, or a test of the last folder, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = _file(nodeid)
        return nodeid if _folder(file) == LAST else group(file)
