"""What a test uses of the system is in tools/test_packages.txt, from which a new machine gets it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import system

TESTS = Path(__file__).resolve().parents[1]
ASKING = ("needs", "skip_without", "missing", "which", "package")
STARTING = ("run", "Popen", "check_output", "check_call")
OF_THE_SYSTEM = re.compile(r"/(usr|s?bin|lib)/(?!.*qpid)")
"""Paths of files that packages bring, ours excepted."""


def literal(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def used_by(call: ast.Call) -> Iterator[str]:
    """Names of programs and paths of files that this call asks for or starts."""
    kind, words = name_of(call), [literal(word) for word in call.args]
    if kind in ASKING:
        yield from filter(None, words)
    elif kind == "Path":
        yield from filter(OF_THE_SYSTEM.match, words)
    elif kind in STARTING and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
        program = literal(call.args[0].elts[0]) if call.args[0].elts else ""
        if program and ("/" not in program or OF_THE_SYSTEM.match(program)):
            yield program


def found_in(source: str) -> tuple[list[str], list[int]]:
    """What the source uses that no package brings, and the lines that look for a program without the list."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    used = {name for call in calls for name in used_by(call)}
    past = [call.lineno for call in calls if ast.unparse(call.func) == "shutil.which"]
    return sorted(name for name in used if not is_listed(name)), past


def is_listed(name: str) -> bool:
    try:
        return bool(system.package(name))
    except LookupError:
        return False


def test_what_tests_use_has_its_package() -> None:
    files = [path for path in TESTS.rglob("*.py") if path.name not in ("system.py", Path(__file__).name)]
    found = {str(path.relative_to(TESTS)): found_in(path.read_text()) for path in files}
    assert len(found) > 400
    unlisted = {name: names for name, (names, _) in found.items() if names}
    assert unlisted == {}, f"add them to {system.LIST.name}"
    assert {name: lines for name, (_, lines) in found.items() if lines} == {}, "use tests.support.system.which"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('@needs("sh", "frobnicate")\ndef test(): pass', (["frobnicate"], [])),
        ('skip_without("/usr/share/frob/a.rng")', (["/usr/share/frob/a.rng"], [])),
        ('AGENT = Path("/usr/lib/frob/agent")', (["/usr/lib/frob/agent"], [])),
        ('subprocess.run(["frobnicate", "-x"], check=True)', (["frobnicate"], [])),
        ('\nx = shutil.which("sh")', ([], [2])),
        ('needs("sh"); Path("/usr/lib/qpidd/bin/python"); run(["./qpidd"]); run([]); Path("/dev")', ([], [])),
    ],
)
def test_what_has_no_package_is_found(source: str, found: tuple[list[str], list[int]]) -> None:
    assert found_in(source) == found


def test_a_test_that_needs_what_is_not_listed_is_no_skipped_test() -> None:
    with pytest.raises(LookupError, match=r"frobnicate is not in test_packages\.txt"):
        system.needs("frobnicate")


def test_what_is_missing_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "pcs" else f"/usr/bin/{name}")
    assert system.missing("sh") == ""
    assert system.missing("sh", "pcs") == "pcs is not found (package pcs)"


def test_every_line_of_the_list_is_used_and_whole() -> None:
    lines = [line.split() for line in system.LIST.read_text().splitlines() if line and not line.startswith("#")]
    assert [words for words in lines if len(words) not in (2, 3) or words[2:] not in ([], ["manual"])] == []
    assert [words[0] for words in lines] == list(dict.fromkeys(system.PACKAGES))
    text = "".join(path.read_text() for path in TESTS.rglob("*.py"))
    assert [path for path in system.PACKAGES if not re.search(rf"\b{re.escape(Path(path).name)}\b", text)] == []
