"""No test asserts at once what a program has logged: it waits for it (tests/support/wait.py)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.wait import SHORTEST, stays, wait_for, wait_logged

TESTS = Path(__file__).parents[1]
MENTION = re.compile(r"\bassert\b.*[\w\])]\.log\b(?![\"'.])")
"""Most files need not be parsed."""


def hasty(source: str) -> list[int]:
    """The lines of assertions that want something in a log that is being written."""
    asserts = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    return [node.lineno for node in asserts if any(_wants(part) for part in ast.walk(node.test))]


def _wants(node: ast.AST) -> bool:
    """`... in x.log`, or `re.search(..., x.log)`."""
    if isinstance(node, ast.Compare):
        return any(isinstance(op, ast.In) and _log(right) for op, right in zip(node.ops, node.comparators, strict=True))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and any(map(_log, node.args))


def _log(node: ast.AST) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    return isinstance(node, ast.Attribute) and node.attr == "log"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("assert 'x' in broker.log", [1]),
        ("assert a == b and ('x' if a else 'y') in pair['a'].log", [1]),
        ("assert any('x' in member.log for member in members)", [1]),
        ("assert re.search('x', broker.log)", [1]),
        ("assert 'x' in cluster.log()", [1]),
        ("assert 'x' not in broker.log", []),
        ("assert broker.log.count('x') == 1", []),
        ("wait_for(lambda: 'x' in broker.log)", []),
        ("assert found == ['a.log']", []),
        ("assert len(broker.log) < 5000", []),
    ],
)
def test_what_is_found(source: str, found: list[int]) -> None:
    assert hasty(source) == found


def test_every_line_of_a_log_is_waited_for() -> None:
    texts = {str(file.relative_to(TESTS)): file.read_text() for file in TESTS.rglob("*.py")}
    found = {file: lines for file, text in texts.items() if MENTION.search(text) and (lines := hasty(text))}
    assert not found, "use wait_logged of tests/support/wait.py"


class Program:
    """It logs one more line whenever it is looked at, until it has ended."""

    def __init__(self, *lines: str) -> None:
        self._lines, self._seen = lines, 0

    @property
    def running(self) -> bool:
        return self._seen < len(self._lines)

    @property
    def log(self) -> str:
        self._seen += 1
        return "\n".join(self._lines[: self._seen])


def test_lines_that_come_later_are_waited_for() -> None:
    wait_logged(Program("a", "b", "c"), "c", "a")


def test_a_program_that_has_ended_is_not_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"\['d'\]"):
        wait_logged(Program("a", "b"), "a", "d", timeout=600)


def test_deadlines_are_wide() -> None:
    with pytest.raises(ValueError, match="expected 10 s or more"):
        wait_for(lambda: True, SHORTEST - 1)


def test_what_stays_and_what_does_not() -> None:
    left = [True, True, False]
    assert not stays(lambda: left.pop(0), 600, poll=0)
    assert stays(lambda: True, 0.01)
