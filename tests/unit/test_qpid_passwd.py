"""`qpid-passwd`."""

import io
import sys
from pathlib import Path

import pytest

from qpidd_py.cli.qpid_passwd import main
from qpidd_py.security.users import password_matches, read_user_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.yaml"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    def run(*words: object, password: str = "") -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(password + "\n"))
        return main([str(word) for word in words])

    return run


def test_a_user_from_beginning_to_end(run, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("add", file, "anna", "--cost", 10, password="secret") == 0
    assert run("add", file, "bén: x", "--cost", 10, password="other") == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert password_matches("secret", read_user_file(file)["anna"])
    assert run("check", file, "anna", password="secret") == 0
    assert run("check", file, "anna", password="wrong") == 1
    assert run("add", file, "anna", "--cost", 10, password="new") == 0
    assert run("check", file, "anna", password="new") == 0
    capsys.readouterr()
    assert run("list", file) == 0
    assert capsys.readouterr().out == "anna\nbén: x\n"
    assert run("remove", file, "anna") == 0
    assert list(read_user_file(file)) == ["bén: x"]


def test_an_entry_for_scram(run, file: Path) -> None:
    assert run("add", file, "anna", "--scram", password="secret") == 0
    assert read_user_file(file)["anna"].startswith("scram-sha-256$600000$")
    assert run("check", file, "anna", password="secret") == 0 and run("check", file, "anna", password="wrong") == 1
    assert run("add", file, "anna", "--scram", "--cost", 10, password="secret") == 1, "that has no cost"
    assert run("add", file, "anna", password="secret") == 0
    assert read_user_file(file)["anna"].startswith("scrypt$"), "the default takes its place"


def test_the_mode_of_a_file_stays(run, file: Path) -> None:
    run("add", file, "anna", "--cost", 10, password="secret")
    file.chmod(0o640)
    run("add", file, "ben", "--cost", 10, password="secret")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_what_is_refused(run, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("add", file, "anna", password="") == 1
    assert run("add", file, "", password="x") == 1
    assert run("add", file, "a\nb", password="x") == 1
    assert run("remove", file, "anna") == 1
    file.write_text("anna: secret\n")
    assert run("add", file, "ben", password="x") == 1
    assert file.read_text() == "anna: secret\n", "nothing of a file that is not understood is lost"
    assert run("check", file, "nobody", password="x") == 1
    assert len(capsys.readouterr().out.splitlines()) == 6, "one line each"
