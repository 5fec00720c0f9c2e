"""Writes `client_lib/session.py` from `client_lib/aio/session.py`: python -m tools.threaded_session.

The two have the same signatures and docstrings; what waits differently is in `client_lib.waiting` and
`client_lib.aio.waiting`.  Everything after MARK is copied without `async` and `await`; docstring of the module and
imports, before it, are each file's own.
"""

from __future__ import annotations

import re
from pathlib import Path

CLIENT_LIB = Path(__file__).parents[1] / "client_lib"
SOURCE, TARGET = CLIENT_LIB / "aio" / "session.py", CLIENT_LIB / "session.py"
MARK = "# The rest is aio/session.py without async and await, copied by `python -m tools.threaded_session`\n"
RULES = {r"\basync def ": "def ", r"\bawait ": "", r"\b__aenter__\b": "__enter__", r"\b__aexit__\b": "__exit__"}


def threaded(asynchronous: str) -> str:
    """The same code without coroutines."""
    for pattern, replacement in RULES.items():
        asynchronous = re.sub(pattern, replacement, asynchronous)
    return asynchronous


def written(source: str, target: str) -> str:
    """The new content of the target.  Raises ValueError where MARK is missing."""
    (_, _, body), (head, mark, _) = source.partition(MARK), target.partition(MARK)
    if not body or not mark:
        raise ValueError(f"no line {MARK.strip()!r}")
    return head + MARK + threaded(body)


if __name__ == "__main__":
    TARGET.write_text(written(SOURCE.read_text(), TARGET.read_text()))
