"""A run of the tests ends and says why (tests/support/bounds.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.bounds import lacking

ROOT = Path(__file__).resolve().parents[2]
TIME = 120.0  # seconds
INNER = """
    import time, pytest
    from tests.support import bounds

    bounds.GRACE = 0.5

    def wait():
        try:
            time.sleep(600)
        finally:
            time.sleep(600)

    @pytest.fixture
    def closes_never():
        yield
        wait()

    @pytest.mark.timeout(1)
    def test_way_out():
        wait()

    @pytest.mark.timeout(2)
    def test_taken_down(closes_never):
        raise AssertionError("first")

    def test_wrong():
        raise AssertionError("wrong")

    def test_next():
        assert True
"""


def test_a_test_that_does_not_end_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text(textwrap.dedent(INNER))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", str(ROOT / "setup.cfg"), "-p", "tests.conftest"]
    ended = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'base'}", str(inner)],
        cwd=ROOT, env={**os.environ, "CI": "true"}, capture_output=True, text=True, timeout=TIME, check=False,
    )  # fmt: skip
    before_the_summary = ended.stdout.partition("short test summary")[0]
    stuck = re.findall(r"crashed while running '.*::(\w+)'", ended.stdout)
    assert {*stuck} == {"test_way_out", "test_taken_down"}
    assert re.search(r"test_inner\.py., line \d+ in test_way_out", ended.stderr)
    assert "FAILED (call) " in before_the_summary and "::test_wrong" in before_the_summary
    assert "1 passed" in ended.stdout and ended.returncode == 1


@pytest.mark.parametrize(("room", "said"), [(1, ""), (2**60, f"the tests need {2**30} GiB in ")])
def test_too_little_room_is_said_before_the_tests(room: int, said: str, tmp_path: Path) -> None:
    found = lacking(tmp_path, room)
    assert said in found and bool(found) == bool(said)
