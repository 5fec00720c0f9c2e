"""What a fuzzer is, and the judge of the programs' words."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

DEFECTS: Final = re.compile(
    r"Traceback|internal error|data path failed|\b(Type|Attribute|Key|Index|Recursion|Overflow|Assertion|Runtime|Name|"
    r"Unicode\w+|ZeroDivision|Memory|NotImplemented|UnboundLocal|Lookup|StopIteration)Error\b|struct\.error"
)
"""Words of a defect.  An error of the peer or of a file has words of its own."""
LONGEST_LINE: Final = 4096


class Scene(Protocol):
    """Where the inputs of one target go: a folder, a broker."""

    def check(self, input: Any) -> None:
        """Raises AssertionError."""
        ...

    def finish(self) -> None:
        """Judges what can be judged only at the end, or now and then.  Raises AssertionError."""
        ...


@dataclass(frozen=True)
class Target:
    """One fuzzer."""

    name: str
    make: Callable[[Random], Any]
    scene: Callable[[Path], AbstractContextManager[Scene]]
    """Given a folder of its own."""
    examples: int = 20
    """In `make test`."""


class Files:
    """A scene without a process: each input is judged at once."""

    def __init__(self, folder: Path, judge: Callable[[Path, Any], None]) -> None:
        self._folder, self._judge = folder, judge

    def check(self, input: Any) -> None:
        self._judge(self._folder, input)

    def finish(self) -> None:
        """Nothing is left."""


def files(judge: Callable[[Path, Any], None]) -> Callable[[Path], AbstractContextManager[Scene]]:
    """The scene of a judge of (folder, input)."""

    @contextlib.contextmanager
    def scene(folder: Path) -> Iterator[Scene]:
        yield Files(folder, judge)

    return scene


def run_program(main: Callable[[Sequence[str]], int], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a tool, within this process."""
    output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    said = []
    for stream in (output, errors):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return code, said[0], said[1]


def judge_refusal(text: str) -> None:
    """One clear line: what a program says before it ends with an error."""
    lines = text.splitlines()
    assert len(lines) == 1, f"{len(lines)} lines, expected one: {text[:500]!r}"
    judge_words(text)
    assert len(text) <= LONGEST_LINE, f"a line of {len(text)} characters: {text[:300]!r}"


def judge_words(text: str) -> None:
    assert (found := DEFECTS.search(text)) is None, f"{found and found[0]}: {text[:500]!r}"
