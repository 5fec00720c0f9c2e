"""Settings that would be accepted and do harm, or nothing: refused at start and by `qpidd --check-config`."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidd_py.__main__ import main
from tests.support.certificates import Authority, needs_openssl

THREE = "127.0.0.1:5672,10.0.0.2:5672,10.0.0.3:5672"
SECRET = "a file with the password"
LOGIN = ["--ha-username", "ha", "--ha-password-file", SECRET]
CLUSTER = [*LOGIN, "--ha-cluster", "yes", "--ha-brokers-url", THREE, "--ha-safety", "quorum"]
SECURE = [word.replace("10.0.0.", "ssl:10.0.0.") for word in CLUSTER]
REFUSED = {
    "a user without a password": (["--ha-username", "ha"], "ha-username: found ha without a password"),
    "a password without a user": (["--ha-password", "x"], "ha-password: found without ha-username"),
    "two passwords": (["--ha-password", "x", "--ha-password-file", "/x"], "found with ha-password"),
    "no password file": (["--ha-username", "ha", "--ha-password-file", "/x/y"], "cannot read /x/y"),
    "an unknown mechanism": (["--ha-mechanism", "PLIAN"], "expected one of PLAIN, AMQPLAIN"),
    "a cluster without brokers": (["--ha-cluster", "yes", "--ha-safety", "availability"], "ha-brokers-url"),
    "a member that forgets": ([*CLUSTER, "--no-data-dir", "yes"], "no-data-dir: found yes with ha-cluster"),
    "a list without this broker": ([*CLUSTER, "--port", "5673"], "expected an address with port 5673"),
    "an address not in the list": ([*CLUSTER, "--ha-address", "10.0.0.9:5672"], "expected one of ha-brokers-url"),
    "no user file": (["--user-file", "/x/users"], "cannot read the user file /x/users"),
    "no certificate": (["--ssl-cert", "/x/cert"], "cannot use the certificate /x/cert"),
    "no authorities of brokers": ([*SECURE, "--ha-ssl-ca", "/x/ca"], "cannot use the authorities in /x/ca"),
    "encryption without authorities": (SECURE, "option ha-ssl-ca: found none"),
    "certificates on plain addresses": ([*CLUSTER, "--ha-mechanism", "EXTERNAL"], "expected ssl: before each address"),
    "guest between machines": (CLUSTER[len(LOGIN) :], "ha-username: not given, with"),
    "a log rule": (["--log-enable", "loud+"], "log rule: found 'loud+'"),
    "an unknown option": (["--ha-usrname", "x"], "unrecognized arguments: --ha-usrname"),
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("qpidd_py.options.DEFAULT_CONFIG_FILE", str(tmp_path / "none.conf"))


@pytest.fixture
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], int]:
    """The exit code of `qpidd --check-config`."""
    secret = tmp_path_factory.mktemp("secret") / "password"
    secret.touch(0o600)
    secret.write_text("geheim\n")
    return lambda words: main(["--check-config", *(str(secret) if word == SECRET else word for word in words)])


@pytest.mark.parametrize("what", REFUSED)
def test_each_is_refused_in_one_line(
    check: Callable[[list[str]], int], what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words, expected = REFUSED[what]
    assert check(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("qpidd: ") and expected in line
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def test_what_is_right_passes(
    check: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert check([]) == check(CLUSTER) == 0
    assert check([*CLUSTER, "--port", "9", "--ha-address", "10.0.0.2:5672"]) == 0
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_password_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    file = tmp_path / "secret"
    file.write_text("geheim\n")
    file.chmod(0o600)
    words = ["--check-config", "--ha-username", "ha", "--ha-password-file"]
    assert main([*words, str(file)]) == 0
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert main([*words, "secret"]) == 0
    file.chmod(0o604)
    assert main([*words, str(file)]) == 1
    file.chmod(0o600)
    file.write_text("")
    assert main([*words, str(file)]) == 1
    assert "can be read by everybody" in (err := capsys.readouterr().err) and "is empty" in err and "geheim" not in err


@needs_openssl
def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked(check, tmp_path: Path, capsys) -> None:
    """OpenSSL asks on the terminal: a broker that was told to read its files again stood still."""
    authority = Authority(tmp_path / "ca")
    locked = str(authority.lock(authority.certificate("broker"), "secret"))
    links = ["--ha-ssl-cert", locked, "--ha-ssl-ca", str(authority.file)]
    for words in (["--ssl-cert", locked], [*SECURE, *links]):
        assert check(words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "cannot use the certificate" in line and "its key is encrypted" in line


def test_the_page_lists_them() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/refused-settings.md").read_text()
    named = set(re.findall(r"`([a-z-]+)`", page))
    assert {words[0].removeprefix("--") for words, _ in REFUSED.values()} <= named | {"ha-usrname"}
