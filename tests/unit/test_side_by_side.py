"""tools/side_by_side.sh: `make test` runs the checks of lint at the same time as the tests."""

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.wait import wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "side_by_side.sh"


def run(first: str, second: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", str(SCRIPT), first, second], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [("true", "exit 3"), ("exit 2", "true"), ("exit 2", "exit 3")])
def test_fails_when_one_fails(first: str, second: str) -> None:
    done = run(first, second)
    assert done.returncode == 1
    assert ("failed (2): exit 2" in done.stderr, "failed (3): exit 3" in done.stderr) == (
        first == "exit 2",
        second == "exit 3",
    )


def test_both_at_once_and_the_output_of_the_second_at_the_end(tmp_path: Path) -> None:
    """Each waits for the other: one after the other would never end."""
    os.mkfifo(tmp_path / "fifo")
    done = run(f"echo early; cat {tmp_path}/fifo; echo one", f"echo two; echo three >&2; echo through >{tmp_path}/fifo")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[:3] == ["early", "through", "one"]
    assert done.stdout.splitlines()[4:] == ["two", "three"]
    assert done.stderr == ""


def test_an_interruption_ends_the_second(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first", "second")]
    words = [f"echo $$ >{file}; sleep 60; true" for file in files]
    with subprocess.Popen(["bash", str(SCRIPT), *words], start_new_session=True) as process:
        _, second = (int(wait_for(partial(_text, file), what=f"the {file.name} runs")) for file in files)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(30) == 130
    wait_for(lambda: not _group_alive(second), what="the group of the second ended")


def _text(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
