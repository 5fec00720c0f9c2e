"""Mistakes in the Cython core: an edit of the source, built in a copy of the tree, judged there.

Each edit of core.yaml has a name, the file, the `old` text (which must be there exactly once), the `new` one, the
`tests` that have to notice it, and the `simulate` options (`mode`, `seeds`, `faults`) with which the simulator has to;
one of the two at least, and each that is named has to notice it by itself.  About ten seconds for each to build.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.mutants.finder import ROOT

EDITS = Path(__file__).parent / "core.yaml"
CORE = Path("qpidd_py/core")
COPIED = (
    "qpidd_py",
    "ha",
    "client_lib",
    "benchmarks",
    "tests",
    "tools",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
)
FAILED: Final = (1,)
"""Exit codes of pytest and of the simulator when something was wrong; others say that they could not judge."""
NOTICED: Final = "noticed"
SECONDS: Final = 900
"""For one build, and for one run of the judges."""


@dataclass(frozen=True)
class Edit:
    """One mistake."""

    name: str
    file: str
    """In `qpidd_py/core`; one that has a library of its own (.pyx)."""
    old: str
    new: str
    tests: Sequence[str] = ()
    simulate: Mapping[str, Any] = field(default_factory=dict)

    def applied(self, source: str) -> str:
        """Raises ValueError when there is no such place, or more than one."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.file} has this text {count} times, expected once: {self.old!r}")
        return source.replace(self.old, self.new)

    @property
    def commands(self) -> list[list[str]]:
        """Of the judges; each fails when it notices the mistake."""
        units = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *self.tests]
        seeds = ["-m", "tests.simulator", *(f"--{name}={value}" for name, value in self.simulate.items())]
        return [command for command, named in ((units, self.tests), (seeds, self.simulate)) if named]


def edits(path: Path = EDITS) -> list[Edit]:
    return [Edit(name, **fields) for name, fields in (yaml.safe_load(path.read_text()) or {}).items()]


def listed(match: str) -> int:
    """Prints their names."""
    print("\n".join(edit.name for edit in edits() if match in edit.name))
    return 0


def main(match: str) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder) / "tree")
        for edit in edits():
            if match in edit.name:
                verdict, (build, judge) = _tried(edit, tree)
                failed += verdict != NOTICED
                print(f"{verdict:8} {edit.name}  ({build:.0f} s to build, {judge:.0f} s to judge)", flush=True)
    return int(failed > 0)


def copied(tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)
    return tree


def _tried(edit: Edit, tree: Path) -> tuple[str, tuple[float, float]]:
    """The verdict, and the seconds to build and to judge."""
    path = tree / CORE / edit.file
    library = tree / CORE / f"{path.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    source, built = path.read_text(), library.read_bytes()
    try:
        changed = edit.applied(source)
    except ValueError as error:
        return f"STALE ({error})", (0.0, 0.0)
    path.write_text(changed)
    library.unlink()
    began = time.monotonic()
    try:
        if _build(tree, path.stem, library):
            return "BROKEN (does not build)", (time.monotonic() - began, 0.0)
        middle = time.monotonic()
        return _judged(edit, tree), (middle - began, time.monotonic() - middle)
    finally:
        path.write_text(source)
        library.write_bytes(built)


def _judged(edit: Edit, tree: Path) -> str:
    for command in edit.commands:
        code = run(tree, [sys.executable, *command])
        if code == 0:
            return f"SURVIVES {command[1]}"
        if code not in FAILED and code > 0:
            return f"BROKEN (exit code {code} of {command[1]})"
    return NOTICED


def _build(tree: Path, module: str, library: Path) -> int:
    """Without optimisation, which takes most of the time; the other modules stay as they are."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    source = CORE / f"{module}.pyx"
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{CORE}"]
    options = ["-shared", "-fPIC", "-O0", "-w", *includes]
    return run(tree, [sys.executable, "-m", "cython", "-3", str(source)]) or run(
        tree, [*compiler, *options, str(source.with_suffix(".c")), "-o", str(library)]
    )


def run(tree: Path, command: Sequence[str]) -> int:
    environment = {**os.environ, "PYTHONPATH": str(tree), "CI": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS, check=False)
    return done.returncode
