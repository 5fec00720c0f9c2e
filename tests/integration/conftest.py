"""A cluster that several test modules use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.members import Members


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Up: one primary, and backups that are ready."""
    found = Members(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.close()
