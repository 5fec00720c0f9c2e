"""Mistakes of the simulated resource manager: what it must not do (`rules.py`) is not harmless."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.simulator.mistakes_safety import patched
from tests.simulator.rules import Rules


def promote_whom_it_fences() -> AbstractContextManager[None]:
    """Another broker was promoted because this one will be fenced, and then this one is promoted, too."""
    return patched(Rules, _is_doomed=lambda self, process: False)
