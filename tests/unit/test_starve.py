"""The plugin that stalls tests (tests/support/starve.py) finds a race, and does nothing unless it is asked to."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.starve import VARIABLE

ROOT = Path(__file__).parents[2]
RACE = """
import sys, threading, time
import pytest

came = []

def come_later():
    threading.Timer(0.02, came.append, [1]).start()

@pytest.mark.parametrize("number", range(20))
def test_race(number):
    come_later()
    before = len(came)
    deadline = time.monotonic() + 0.3
    while len(came) == before:
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)

def test_nothing_is_traced():
    assert sys.gettrace() is None

def test_without_a_race():
    before = len(came)
    come_later()
    while len(came) == before:
        time.sleep(0.01)
"""


def run(folder: Path, seed: str) -> str:
    (folder / "tests").mkdir()
    (folder / "tests/test_race.py").write_text(RACE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.starve", "-p", "no:cacheprovider", "tests"]
    variables = os.environ | {"PYTHONPATH": str(ROOT), VARIABLE: seed}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_a_race_is_found_and_its_stalls_are_told(tmp_path: Path) -> None:
    shown = run(tmp_path, "1")
    assert "nothing came" in shown
    assert "FAILED tests/test_race.py::test_race" in shown
    assert "FAILED tests/test_race.py::test_nothing_is_traced" in shown
    assert "FAILED tests/test_race.py::test_without_a_race" not in shown
    before = RACE.splitlines().index("    before = len(came)") + 1
    assert f"tests/test_race.py:{before} in MainThread" in shown


def test_without_a_seed_nothing_is_traced(tmp_path: Path) -> None:
    shown = run(tmp_path, "")
    assert "FAILED tests/test_race.py::test_nothing_is_traced" not in shown
    assert " before /" not in shown
