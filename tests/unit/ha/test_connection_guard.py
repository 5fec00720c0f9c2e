"""Who may open which kind of connection: no combination of properties gets around `ha-username`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.shell.connection_guard import admit, limited_link

LINK = {"id": "other", "epoch": 1}
BACKUP, ADMIN, REPLICA = "qpid.ha-backup", "qpid.ha-admin", "qpid.ha-replica"


def node(primary: bool = True, username: str = "ha") -> Any:
    role = SimpleNamespace(isolation_text=lambda: "", refusal_text=lambda client: f"a backup, client {client}")
    state, settings = SimpleNamespace(is_primary=primary), SimpleNamespace(username=username)
    local = SimpleNamespace(id="me", instance="1", member="a", state=state, settings=settings, closed=lambda: "")
    return SimpleNamespace(role=role, local=local)


LINKS: list[dict[str, Any]] = [
    {BACKUP: LINK},
    {BACKUP: LINK, ADMIN: 1},
    {BACKUP: LINK, ADMIN: True, REPLICA: {}},
    {BACKUP: None},
    {BACKUP: ""},
    {BACKUP: None, ADMIN: 1},
]


@pytest.mark.parametrize("properties", LINKS)
def test_a_backup_is_the_user_of_ha_username(properties: dict[str, Any]) -> None:
    refusal = admit(node(), properties, "bob")
    assert refusal is not None and (refusal.code, refusal.text) == (
        403,
        "ACCESS_REFUSED - bob is not the user of ha-username",
    )
    assert admit(node(), properties, "ha") is None
    assert admit(node(username=""), properties, "bob") is None


@pytest.mark.parametrize("properties", [*LINKS, {REPLICA: {}}, {REPLICA: None, ADMIN: 1}])
def test_a_backup_takes_no_links(properties: dict[str, Any]) -> None:
    refusal = admit(node(primary=False), properties, "ha")
    assert refusal is not None and (refusal.code, refusal.text) == (320, "a backup, client False")


def test_administrators_are_admitted_everywhere_and_clients_by_a_primary() -> None:
    assert admit(node(primary=False), {ADMIN: 1}, "bob") is None
    assert admit(node(), {}, "bob") is None
    refusal = admit(node(primary=False), {}, "bob")
    assert refusal is not None and refusal.text == "a backup, client True"


@pytest.mark.parametrize("properties", [*LINKS, {REPLICA: {}}, {REPLICA: None}, {REPLICA: {}, ADMIN: 1}])
def test_limited_rights_are_enough_for_no_link(properties: dict[str, Any]) -> None:
    refusal = limited_link(properties, "reader")
    assert refusal is not None and refusal.code == 403 and "'reader' has limited rights" in refusal.text


def test_limited_rights_are_enough_for_a_client() -> None:
    assert limited_link({}, "reader") is None and limited_link({ADMIN: 1}, "reader") is None
