"""Which tests run one after the other in one worker of pytest-xdist, and which work comes first (`--dist loadgroup`).

A file stays in one worker, as with `--dist loadfile`.  Files that share something that is expensive to make (an
installation, an image, a Spark session, a cluster behind a fault proxy) form one group.  What takes long comes first,
so that the workers end at about the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

TESTS: Final = Path(__file__).resolve().parents[1]
SPARK: Final = "spark"
TOGETHER: Final = ("docker", "faults", "packaging")
"""Folders whose tests share fixtures of the package or the session."""
FIRST: Final = (SPARK, "faults", "pacemaker", "rgmanager", "packaging", "agents", "acceptance", "integration")
"""Groups and folders that take long.  Tests with the Spark session are busy, most of the others wait."""


def group(item: pytest.Item) -> str:
    """The name of the group; empty: the test's file."""
    folder = item.path.relative_to(TESTS).parts[0]
    if folder in TOGETHER:
        return folder
    return SPARK if uses_spark(item) else ""


def uses_spark(item: pytest.Item) -> bool:
    """Does the test need the session of tests/spark/conftest.py?  `engine` asks for it by parameter."""
    names: Sequence[str] = getattr(item, "fixturenames", ())
    parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return "spark_session" in names or parameters.get("engine") == "spark"


def arrange(items: list[pytest.Item]) -> None:
    """In each worker, alike: marks the groups and puts what takes long first."""
    for item in items:
        if name := group(item):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    if folder == SPARK and not uses_spark(item):
        return len(FIRST)
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


class GroupsOrFiles(LoadScopeScheduling):
    """The unit of work is the test's group, else its file, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        """xdist has added `@GROUP` to the id."""
        file, _, rest = nodeid.partition("::")
        name = rest[rest.rfind("]") + 1 :].rpartition("@")
        return name[2] if name[1] else file
