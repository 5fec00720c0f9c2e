"""The broker's package as `make package` makes it from this tree.      Shell."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.pacemaker.lab.names import PROJECT

SYSTEM_PYTHON: Final = "/usr/bin/python3"
OLD_ENOUGH: Final = "import sys; sys.exit(sys.version_info < (3, 11))"
BUILD_TIME: Final = 600.0
"""Seconds: the first time compiles the core and fetches what the broker needs; later it is one second or four."""


QUICKLY: Final = {**os.environ, "QPIDD_OPTIMIZE": "0"}
"""Environment of a build whose core is compiled in a third of the time; not for users."""


@functools.cache
def package() -> Path:
    """Builds it once in this process.  AssertionError with the output if that fails."""
    words = ["make", "-s", "-C", str(PROJECT), "package", f"INSTALL_PYTHON={interpreter()}"]
    done = subprocess.run(
        words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=QUICKLY, timeout=BUILD_TIME
    )
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return PROJECT / done.stdout.split()[-1]


def interpreter() -> str:
    """The machine's own Python if it is new enough, else the one that we run with."""
    try:
        fits = subprocess.run([SYSTEM_PYTHON, "-c", OLD_ENOUGH]).returncode == 0
    except FileNotFoundError:
        fits = False
    return SYSTEM_PYTHON if fits else str(Path(sys.base_prefix) / "bin" / "python3")
