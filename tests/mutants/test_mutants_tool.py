"""The tool that makes mistakes in the code: what it changes, who judges it, and what it says of survivors."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.mutants import core
from tests.mutants.campaign import Target, chosen, known
from tests.mutants.finder import ROOT
from tests.mutants.operators import mutants, mutated
from tests.mutants.processes import start, wait
from tests.mutants.scope import REVIEWED, UNREVIEWED
from tests.mutants.verdicts import Verdicts

SOURCE = '''
LIMIT = 3

def votes(mine: int, others: list[int]) -> bool:
    """Never changed."""
    print(f"{mine} votes")
    if mine < LIMIT and others:
        others.append(mine)
    return max(others) >= 2
'''


def whats(source: str) -> list[str]:
    return [mutant.what for mutant in mutants("ha/x.py", source)]


def test_the_mistakes_of_a_small_function() -> None:
    assert whats(SOURCE) == [
        "drop print(f'{mine} votes')",
        "if mine < LIMIT and others: -> if not (mine < LIMIT and others):",
        "mine < LIMIT and others -> mine < LIMIT or others",
        "mine < LIMIT and others -> others",
        "mine < LIMIT and others -> mine < LIMIT",
        "mine < LIMIT -> mine <= LIMIT",
        "drop others.append(mine)",
        "return max(others) >= 2 -> return not max(others) >= 2",
        "max(others) >= 2 -> max(others) > 2",
        "max(others) -> min(others)",
        "2 -> 3",
    ]


def test_what_is_only_said_is_not_changed() -> None:
    assert (
        whats("def f(self) -> None:\n    self.env.log('info', 'x')\n    assert self, 1\n    self.env.event('y', z=1)\n")
        == []
    )


def test_each_is_one_change_that_compiles() -> None:
    original = ast.dump(ast.parse(SOURCE))
    for mutant in mutants("ha/x.py", SOURCE):
        tree = mutated(SOURCE, mutant.number)
        assert ast.dump(tree) != original
        compile(tree, "x.py", "exec")


def test_equal_changes_of_a_function_have_names_of_their_own() -> None:
    assert whats("def f(a, b):\n    g(a < b, a < b)\n")[-2:] == ["a < b -> a <= b", "a < b -> a <= b #2"]


@pytest.mark.parametrize(
    ("text", "names"), [("majority", {"Safety.majority"}), ("", {"Safety.majority", "Safety.votes"})]
)
def test_selection_by_function(text: str, names: set[str]) -> None:
    target = Target.of(f"ha/model/safety.py:Safety.{text}" if text else "ha/model/safety.py")
    assert names <= {mutant.function for mutant in chosen([target])}


def test_selection_by_line() -> None:
    line = chosen([Target.of("ha/model/safety.py:Safety.majority")])[0].line
    assert {mutant.line for mutant in chosen([Target.of(f"ha/model/safety.py:{line}")])} == {line}


def run(tmp_path: Path, *arguments: str, known: str = "{}") -> tuple[int, dict[str, Any], str]:
    """The exit code, the result, and what was printed."""
    reasons, result = tmp_path / "known.yaml", tmp_path / "result.json"
    reasons.write_text(known)
    options = ["--seeds", "0", "--known", str(reasons), "--json", str(result)]
    command = [sys.executable, "-m", "tests.mutants", *arguments, *options, "--tests", "tests/unit/ha/test_safety.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(result.read_text()), done.stdout


PATIENCE = "ha/model/safety.py:Safety.patience"
NOTICED = f"{PATIENCE}: accounted > (1 + len(outcomes)) // 2 -> accounted >= (1 + len(outcomes)) // 2"
UNSEEN = "ha/model/position.py:sequence_of: position & SEQUENCE_MASK -> position | SEQUENCE_MASK"


def test_one_is_noticed_and_one_that_no_test_executes_survives(tmp_path: Path) -> None:
    code, result, printed = run(tmp_path, "ha/model/safety.py:Safety.patience", "--match", "accounted >")
    assert (code, [*result["killed"]]) == (0, [NOTICED]), printed
    assert "test_a_primary_that_may_be_the_one_cut_off_waits" in result["killed"][NOTICED]
    code, result, printed = run(tmp_path, "ha/model/position.py:sequence_of")
    assert (code, result["survived"]) == (1, {UNSEEN: ""}), printed
    assert f"OPEN     ha/model/position.py:{line_of(UNSEEN)} {UNSEEN}" in printed


def line_of(name: str) -> int:
    return next(mutant.line for mutant in chosen([Target.of("ha/model/position.py")]) if mutant.name == name)


def test_a_reason_excuses_a_survivor_and_is_stale_when_it_is_noticed(tmp_path: Path) -> None:
    path, function, what = UNSEEN.split(":", 1)[0], *UNSEEN.split(":", 1)[1].split(": ", 1)
    known = yaml.safe_dump({path: {function: {what: "only for this test"}}})
    code, result, _ = run(tmp_path, "ha/model/position.py:sequence_of", known=known)
    assert (code, result["survived"]) == (0, {UNSEEN: "only for this test"})
    path, function, what = NOTICED.split(":", 1)[0], *NOTICED.split(":", 1)[1].split(": ", 1)
    known = yaml.safe_dump({path: {function: {what: "wrong"}}})
    code, result, printed = run(tmp_path, "ha/model/safety.py:Safety.patience", "--match", "accounted >", known=known)
    assert (code, result["stale"]) == (1, [NOTICED]), printed


def test_reasons_name_mutants_that_exist() -> None:
    """A line that was changed takes its reasons along."""
    reasons = known()
    paths = {name.partition(":")[0] for name in reasons}
    assert reasons.keys() <= {mutant.name for mutant in chosen([Target.of(path) for path in paths])}
    assert all(reasons.values())


def test_each_module_is_reviewed_or_left_out_for_a_reason() -> None:
    paths = [path.relative_to(ROOT / "ha") for path in (ROOT / "ha").rglob("*.py") if path.stem != "__init__"]
    found = {str(path.with_suffix("") if len(path.parts) < 3 else path.parent) for path in paths}
    named = [*REVIEWED, *(name for names in UNREVIEWED.values() for name in names)]
    assert sorted(named) == sorted(found)
    reviewed = {f"ha/{name}.py" for name in REVIEWED}
    assert {name.partition(":")[0] for name in known()} <= reviewed, "a reason for what is not tried is never stale"


def test_a_verdict_is_kept_until_something_changes_on_which_it_rests(tmp_path: Path) -> None:
    first, second, *_ = chosen([Target.of("ha/model/position.py")])
    verdicts = Verdicts(tmp_path / "verdicts", seeds=0)
    assert verdicts.of(first) is None
    verdicts.keep(first, "tests/unit/ha/test_difference.py::test_x")
    verdicts.keep(second, "")
    again = Verdicts(tmp_path / "verdicts", seeds=0)
    assert (again.of(first), again.of(second)) == ("tests/unit/ha/test_difference.py::test_x", "")
    assert Verdicts(tmp_path / "verdicts", seeds=20).of(second) is None, "it has survived fewer seeds"
    moved = replace(first, path="ha/model/safety.py")
    text = (tmp_path / "verdicts").read_text().replace(first.name, moved.name)
    (tmp_path / "verdicts").write_text(text)
    assert Verdicts(tmp_path / "verdicts").of(moved) is None, "another module"
    again.forget()
    assert Verdicts(tmp_path / "verdicts").of(first) is None


def test_one_that_hangs_is_ended() -> None:
    child = start(1.0, None, hang)
    wait([child])
    assert child.result() is None


def hang() -> None:
    while True:
        pass


def test_the_judges_of_the_core_find_all_that_they_need_in_the_copy(tmp_path: Path) -> None:
    tree = core.copied(tmp_path / "tree")
    files = sorted({test for edit in core.edits() for test in edit.tests})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *files]
    assert core.run(tree, command) == 0
    assert core.run(tree, [sys.executable, "-m", "tests.simulator", "--help"]) == 0


@pytest.mark.parametrize("edit", core.edits(), ids=lambda edit: edit.name)
def test_each_edit_of_the_core_finds_its_place(edit: core.Edit) -> None:
    source = (ROOT / core.CORE / edit.file).read_text()
    assert edit.applied(source) != source
    assert all((ROOT / test).exists() for test in edit.tests) and edit.commands
