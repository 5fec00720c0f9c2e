"""Builds and runs `amqp_load`, the load generator in C."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.processes import BenchmarkError

SOURCES = Path(__file__).parent / "generator"
PROGRAM = Path(__file__).parent.parent / "build" / "benchmarks" / "amqp_load"
Option = str | float | bool | Path
Report = dict[str, Any]
"""What the generator prints; README.md names the fields."""


def build() -> Path:
    """Compiles it when a source is newer than the program."""
    files = sorted(SOURCES.glob("*.[ch]"))
    if PROGRAM.exists() and PROGRAM.stat().st_mtime >= max(file.stat().st_mtime for file in files):
        return PROGRAM
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchmarkError("a C compiler is needed to build the load generator")
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    sources = [str(file) for file in files if file.suffix == ".c"]
    subprocess.run(
        [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", *sources, "-o", str(PROGRAM), "-lpthread"], check=True
    )
    return PROGRAM


def command(name: str, **options: Option) -> list[str]:
    """Keyword `no_consume=True` becomes --no-consume, `size=16` becomes --size 16."""
    words = [str(PROGRAM), name]
    for option, value in options.items():
        flag = "--" + option.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words


def parse(output: str, errors: str, status: int) -> Report:
    """Raises BenchmarkError when the generator found a fault."""
    if status:
        raise BenchmarkError(errors.strip() or output.strip() or f"amqp_load ended with status {status}")
    report: Report = json.loads(output)
    return report


class Run:
    """A generator in the background."""

    def __init__(self, name: str, **options: Option) -> None:
        self.process = subprocess.Popen(
            command(name, **options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def report(self, timeout: float = 600) -> Report:
        """Waits for its end, at most `timeout` seconds."""
        try:
            output, errors = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise BenchmarkError(f"the load generator did not end within {timeout:g} s") from None
        return parse(output, errors, self.process.returncode)

    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        if self.running():
            self.process.kill()
        self.process.communicate()


def run(name: str, patience: float = 600, /, **options: Option) -> Report:
    """Waits for its end, at most `patience` seconds."""
    background = Run(name, **options)
    try:
        return background.report(patience)
    finally:
        background.stop()
