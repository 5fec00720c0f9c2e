"""Which brokers of this machine are gone, by locks that end with the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ha.registry.living import Living
from tests.support.wait import wait_for

HOLD = """
import sys
from pathlib import Path
from ha.registry.living import Living
living = Living(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def holder(folder: Path, id: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder), id]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_process_is_gone_when_it_has_been_killed_and_not_before(tmp_path: Path) -> None:
    own = Living(tmp_path / "registry", "a")
    with holder(tmp_path / "registry", "b") as other:
        assert own.gone(["a", "b", "never seen"]) == frozenset()
        other.kill()
        wait_for(lambda: own.gone(["a", "b", "never seen"]) == {"b"})


def test_an_identity_is_gone_when_the_last_process_that_has_it_is(tmp_path: Path) -> None:
    own = Living(tmp_path / "registry", "a")
    with holder(tmp_path / "registry", "b") as original, holder(tmp_path / "registry", "b") as copy:
        original.kill()
        original.wait()
        assert own.gone(["b"]) == frozenset()
        copy.kill()
        wait_for(lambda: own.gone(["b"]) == {"b"})


def test_a_lock_of_another_boot_or_machine_says_nothing(tmp_path: Path) -> None:
    boots = [tmp_path / "one", tmp_path / "other"]
    for boot in boots:
        boot.write_text(f"{boot.name:36}")
    Living(tmp_path / "registry", "b", boots[0]).close()
    assert Living(tmp_path / "registry", "a", boots[1]).gone(["b"]) == frozenset()
    assert Living(tmp_path / "registry", "c", boots[0]).gone(["b"]) == {"b"}


def test_the_folder_of_the_registry_has_to_be_there(tmp_path: Path) -> None:
    """A disk that is not mounted must not become an empty registry."""
    with pytest.raises(FileNotFoundError):
        Living(tmp_path / "not mounted" / "registry", "a")
