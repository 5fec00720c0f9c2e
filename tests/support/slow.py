"""Much of the same: `make test` runs some of it, `make test-all` the rest as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[object], quick: int) -> list[Any]:
    """Parameters of a test, all but the first `quick` of which are marked as slow."""
    listed = list(values)
    return [*listed[:quick], *(pytest.param(value, marks=pytest.mark.slow) for value in listed[quick:])]
