"""What the removal of the Debian package leaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.documents import ROOT

SCRIPT = "packaging/debian/qpidd.postrm"


def purged(system: Path, action: str = "purge") -> str:
    """Runs the script on a directory instead of the system; its complaints."""
    text = (ROOT / SCRIPT).read_text()
    for name in ("/var/", "/run/", "/etc/"):
        text = text.replace(f" {name}", f" {system}{name}")
        assert text.count(name) == text.count(f"{system}{name}"), "it would touch the system"
    done = subprocess.run(["sh", "-s", action], input=text, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "var/lib/qpidd"
    data.mkdir(parents=True)
    (data / "ha-state.json").write_text("{}")
    return data


@pytest.mark.parametrize("kept", ["journal/0001", "salvage/a.salvage"])
def test_a_purge_keeps_messages_that_may_be_nowhere_else(data: Path, tmp_path: Path, kept: str) -> None:
    (data / kept).parent.mkdir()
    (data / kept).write_text("messages")
    assert "/var/lib/qpidd stays" in purged(tmp_path)
    assert (data / kept).exists()


def test_a_purge_removes_the_rest(data: Path, tmp_path: Path) -> None:
    (data / "salvage").mkdir()
    purged(tmp_path, "remove")
    assert data.exists()
    assert purged(tmp_path) == "" and not data.exists()
