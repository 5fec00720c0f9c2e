"""Users, password hashes, login."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidd_py.amqp.sasl import response
from qpidd_py.errors import ConfigError, ConnectionException
from qpidd_py.security import users as users_module
from qpidd_py.security.sasl import authenticator
from qpidd_py.security.users import Users, hash_password, password_matches, read_users

CHEAP = 4  # log2 of scrypt's cost


def test_a_hash_matches_its_password_only() -> None:
    stored = hash_password("sésame", log2n=CHEAP)
    assert password_matches("sésame", stored)
    assert not password_matches("sesame", stored)
    assert stored != hash_password("sésame", log2n=CHEAP), "salted"


def test_without_a_file_there_is_guest() -> None:
    users = read_users(None)
    assert users.check("guest", "guest")
    assert not users.check("guest", "")
    assert not users.check("root", "guest")


def test_a_broker_without_a_file_does_not_load_its_reader() -> None:
    """It would cost time at each start."""
    program = "import sys, ha.plugin, qpidd_py.__main__, qpidd_py.service; sys.exit('yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_user_file(tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(f"anna: {hash_password('secret', log2n=CHEAP)}\n")
    users = read_users(file)
    assert "anna" in users
    assert users.check("anna", "secret")
    assert not users.check("anna", "other")
    assert not users.check("guest", "guest")
    users.add("ha", "link")
    assert users.check("ha", "link")


def test_the_slow_check_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counting(password: str, stored: str) -> bool:
        calls.append(password)
        return password_matches(password, stored)

    monkeypatch.setattr(users_module, "password_matches", counting)
    users = Users({"anna": hash_password("secret", log2n=CHEAP)})
    assert [users.check("anna", word) for word in ("secret", "wrong", "secret", "wrong")] == [True, False, True, False]
    assert calls == ["secret", "wrong"]


@pytest.mark.parametrize(
    "content",
    [
        "- anna\n",
        "anna: secret\n",
        "anna: 5\n",
        "anna: scrypt$14$8$1$zz$00\n",
        "anna: scrypt$60$8$1$00$00\n",
        "anna: scrypt$4$8$1$000$00\n",
        "{",
        "",
    ],
)
def test_unusable_files(tmp_path: Path, content: str) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match="user file"):
        read_users(file)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_login(mechanism: str) -> None:
    login = authenticator(read_users(None))
    assert login(mechanism, response(mechanism, "guest", "guest")) == "guest"
    with pytest.raises(ConnectionException) as refused:
        login(mechanism, response(mechanism, "guest", "wrong"))
    assert refused.value.reply_code == 403


@given(mechanism=st.sampled_from(["PLAIN", "AMQPLAIN"]), answer=st.binary(max_size=40))
@settings(max_examples=200)
def test_garbage_is_refused(mechanism: str, answer: bytes) -> None:
    with pytest.raises(ConnectionException):
        authenticator(read_users(None))(mechanism, answer)
