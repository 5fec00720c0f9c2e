"""Users and password hashes."""

import subprocess
import sys
from pathlib import Path

import pytest

from qpidd_py.errors import ConfigError
from qpidd_py.security.users import Users, hash_password, password_matches, read_users

CHEAP = 4  # log2 of scrypt's cost


def verified(users: Users, name: str, password: str) -> bool:
    return users.verified(name, users.digest(name, password))


def test_a_hash_matches_its_password_only() -> None:
    stored = hash_password("sésame", log2n=CHEAP)
    assert password_matches("sésame", stored)
    assert not password_matches("sesame", stored)
    assert stored != hash_password("sésame", log2n=CHEAP), "salted"


def test_without_a_file_there_is_guest() -> None:
    users = read_users(None)
    assert verified(users, "guest", "guest")
    assert not verified(users, "guest", "")
    assert not verified(users, "root", "guest")


def test_a_broker_without_a_file_does_not_load_its_reader() -> None:
    """It would cost time at each start."""
    program = "import sys, ha.plugin, qpidd_py.__main__, qpidd_py.service; sys.exit('yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_user_file(tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(f"anna: {hash_password('secret', log2n=CHEAP)}\n")
    users = read_users(file)
    assert "anna" in users and "guest" not in users
    assert password_matches("secret", users.stored("anna"))
    assert not verified(users, "anna", "secret"), "it was not compared yet"
    assert users.remember("anna", users.digest("anna", "secret"), users.stored("anna"))
    assert verified(users, "anna", "secret") and not verified(users, "anna", "other")
    users.add("ha", "link")
    assert verified(users, "ha", "link")


def test_another_file_keeps_those_whose_hash_is_the_same() -> None:
    old = {name: hash_password(name, log2n=CHEAP) for name in ("anna", "ben")}
    users = Users(old)
    for name in old:
        users.remember(name, users.digest(name, name), old[name])
    users.replace({"anna": old["anna"], "ben": hash_password("new", log2n=CHEAP)})
    assert verified(users, "anna", "anna")
    assert not verified(users, "ben", "ben")
    assert not users.remember("ben", users.digest("ben", "ben"), old["ben"]), "verified under the old hash"
    assert not verified(users, "ben", "ben")


def test_an_unknown_name_costs_what_a_known_one_costs() -> None:
    users = Users({"anna": hash_password("x", log2n=CHEAP), "ben": hash_password("x", log2n=CHEAP)})
    for name in ("nobody", "", "x" * 1000):
        unknown, known = users.stored(name).split("$"), users.stored("anna").split("$")
        assert unknown[:4] == known[:4]
        assert len(unknown[4]) == len(known[4]) and len(unknown[5]) == len(known[5])
        assert not password_matches("x", users.stored(name))


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
        "[" * 5000,
        "",
    ],
)
def test_unusable_files(tmp_path: Path, content: str) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match="user file"):
        read_users(file)


# ---- what a primary tells its backups


def brokers(*names: str) -> tuple[Users, Users]:
    """Two with the same user file; every password is the user's name."""
    hashes = {name: hash_password(name, log2n=1) for name in names}
    return Users(hashes), Users(hashes)


def remember(users: Users, name: str) -> None:
    assert users.remember(name, users.digest(name, name), users.stored(name))


def test_a_backup_learns_what_its_primary_has_verified() -> None:
    primary, backup = brokers("anna", "ben")
    remember(primary, "anna")
    told, digests = primary.news((0, 0), 10)
    assert list(digests) == ["anna"]
    backup.learn(digests)
    assert verified(backup, "anna", "anna")
    assert not verified(backup, "anna", "ben") and not verified(backup, "ben", "ben")
    assert primary.news(told, 10) == (told, {}), "told once"
    assert list(backup.news((0, 0), 10)[1]) == ["anna"], "it is told on by the next primary"


def test_news_come_in_parts_and_again_after_a_change_of_the_file() -> None:
    primary, _ = brokers("anna", "ben", "carl")
    for name in ("carl", "anna", "ben"):
        remember(primary, name)
    told, digests = primary.news((0, 0), 2)
    assert list(digests) == ["carl", "anna"]
    told, digests = primary.news(told, 2)
    assert list(digests) == ["ben"]
    primary.replace({"anna": primary.stored("anna"), "ben": hash_password("ben", log2n=1)})
    assert list(primary.news(told, 10)[1]) == ["anna"], "what is still right; ben has another hash"


def test_a_digest_under_another_hash_matches_nothing() -> None:
    primary, _ = brokers("anna")
    _, backup = brokers("anna")
    remember(primary, "anna")
    backup.learn(primary.news((0, 0), 10)[1])
    assert not verified(backup, "anna", "anna"), "another salt"
    remember(backup, "anna")
    assert verified(backup, "anna", "anna"), "what it verifies itself counts"
    backup.learn({"anna": bytes(32)})
    assert verified(backup, "anna", "anna"), "and stays"


def test_what_is_learned_is_bounded_by_the_file() -> None:
    _, backup = brokers("anna")
    backup.add("ha", "link")
    backup.learn({name: backup.digest(name, name) for name in ("anna", "ha", "nobody", "")})
    assert not verified(backup, "nobody", "nobody") and not verified(backup, "ha", "ha")
    assert list(backup.news((0, 0), 10)[1]) == ["anna"]
    backup.replace({})
    assert not verified(backup, "anna", "anna")
    assert backup.news((0, 0), 10)[1] == {}


def test_a_user_of_this_process_only_is_told_to_nobody() -> None:
    primary, _ = brokers("ha")
    primary.add("ha", "link")
    remember(primary, "ha")
    assert primary.news((0, 0), 10)[1] == {}


def test_what_is_told_does_not_grow_with_what_is_verified_again() -> None:
    primary, _ = brokers("anna")
    for number in range(100):
        primary.remember("anna", primary.digest("anna", str(number)), primary.stored("anna"))
    assert len(primary.news((0, 0), 1000)[1]) == 1 and primary.news((0, 0), 1000)[0][1] <= 2
