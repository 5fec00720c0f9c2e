"""A primary tells its backups which passwords are right."""

from __future__ import annotations

import json

import pytest

from ha.model.logins import MOST, decode_logins, encode_logins
from ha.model.protocol import Kind
from qpidd_py.errors import LinkError
from qpidd_py.security.users import Users, hash_password
from tests.unit.ha.world import World

HASHES = {name: hash_password(name, log2n=1) for name in ("anna", "ben")}


def verify(users: Users, name: str) -> None:
    assert users.remember(name, users.digest(name, name), users.stored(name))


def knows(users: Users, name: str) -> bool:
    return users.verified(name, users.digest(name, name))


@pytest.fixture
def world() -> World:
    world = World("abc")
    for name in "ab":
        world[name].node.local.logins = Users(HASHES)
    return world


def users_of(world: World, name: str) -> Users:
    users = world[name].node.local.logins
    assert isinstance(users, Users)
    return users


def test_before_and_after_it_joined(world: World) -> None:
    verify(users_of(world, "a"), "anna")
    world.cluster()
    world.until(lambda: knows(users_of(world, "b"), "anna"))
    verify(users_of(world, "a"), "ben")
    world.until(lambda: knows(users_of(world, "b"), "ben"))


def test_one_that_did_not_ask_is_told_nothing(world: World) -> None:
    """An older version would close the link."""
    world.cluster()
    verify(users_of(world, "a"), "anna")
    world.until(lambda: knows(users_of(world, "b"), "anna"))
    told = {link.peer_host.name for link in world["a"].links if Kind.LOGINS in link.frames}
    assert told == {"b"}


def test_many_come_in_frames_of_some() -> None:
    world = World("ab")
    hashes = dict.fromkeys(map(str, range(3 * MOST + 5)), "scrypt$1$8$1$00$00")
    for name in "ab":
        world[name].node.local.logins = Users(hashes)
    for name in hashes:
        verify(users_of(world, "a"), name)
    world.cluster()
    world.until(lambda: all(knows(users_of(world, "b"), name) for name in hashes))


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a":1}', b'{"a":"zz"}', b'{"a":"00"}', b'{"a":null}', b"\xff"])
def test_a_malformed_frame_costs_the_link(body: bytes) -> None:
    with pytest.raises(LinkError):
        decode_logins(body)


def test_names_are_any_text() -> None:
    digests = {"": bytes(32), "ä\n\x00": b"x" * 32, "q" * 1000: bytes(range(32))}
    assert decode_logins(encode_logins(digests)) == digests
    assert json.loads(encode_logins(digests)), "what others can read, too"
