"""Much of the same: `make test` runs some of it, `make test-all` the rest as well."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

ALL: Final = "ALL_TESTS"
"""A variable that is set by `make test-all`."""
SHARE: Final = 3


def mostly_slow(values: Iterable[object], quick: int) -> list[Any]:
    """Parameters of a test, all but the first `quick` of which are marked as slow."""
    listed = list(values)
    return [*listed[:quick], *(pytest.param(value, marks=pytest.mark.slow) for value in listed[quick:])]


both_engines: Final = pytest.mark.parametrize("engine", ["spark", "duck"], indirect=True)
"""For tests with the fixture of tests/spark/conftest.py: Spark's turn is not slow."""


def few(number: int) -> int:
    """How many examples, variants or seeds a test takes of `number`: a third of them, or all."""
    return number if ALL in os.environ else -(-number // SHARE)
