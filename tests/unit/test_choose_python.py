"""`tools/choose_python.sh`: the system's interpreter where it can do what the PATH's can."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = "(3, 11)"


@pytest.mark.parametrize(
    ("path", "system", "chosen"),
    [
        (OURS, (OURS, "whole"), "system"),
        (OURS, (OURS, "without headers or venv"), "path"),
        (OURS, ("(3, 12)", "whole"), "path"),
        (OURS, None, "path"),
        (None, (OURS, "whole"), "path"),
        (None, None, "path"),
    ],
)
def test_which_is_chosen(tmp_path, path, system, chosen):
    stand_in(tmp_path / "path", path, "whole")
    stand_in(tmp_path / "system", *system or (None, ""))
    command = ["bash", ROOT / "tools/choose_python.sh", tmp_path / "path", tmp_path / "system"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == f"{tmp_path / chosen}\n"


def stand_in(program, version, state):
    """Answers as an interpreter of that version; None: it is not there."""
    if version is not None:
        whole = int(state != "whole")
        program.write_text(f'#!/bin/sh\ncase "$2" in *version_info*) echo "{version}";; *) exit {whole};; esac\n')
        program.chmod(0o755)


def test_by_default_it_is_that_of_the_path_or_of_the_system():
    found = subprocess.run(["bash", ROOT / "tools/choose_python.sh"], capture_output=True, text=True, check=True)
    assert found.stdout in ("python3\n", "/usr/bin/python3\n")
