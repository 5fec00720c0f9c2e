"""SCRAM-SHA-256: the example of RFC 7677, both clients against the server, and messages that are refused."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_lib.connecting.scram import Scram
from qpidd_py.amqp import scram
from qpidd_py.amqp.scram import ClientSide, Keys, ServerSide, make_keys
from tests.support.slow import few

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE, OURS = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={NONCE}".encode()
CHALLENGE = f"r={NONCE}{OURS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={NONCE}{OURS},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
KEYS = make_keys("pencil", SALT, 4096)
CLIENTS = pytest.mark.parametrize("client", [ClientSide, Scram])


@CLIENTS
def test_the_example_of_the_rfc(client: Any) -> None:
    mine, server = client("user", "pencil", NONCE), ServerSide(FIRST, OURS)
    assert (mine.first, server.name) == (FIRST, "user")
    assert server.challenge(KEYS) == CHALLENGE
    assert mine.answer(CHALLENGE) == FINAL
    assert server.verify(FINAL) == SIGNATURE
    assert not mine.proved
    assert mine.answer(SIGNATURE) == b"" and mine.proved


@CLIENTS
@settings(max_examples=few(30))
@given(name=st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name), password=st.text(max_size=20))
def test_any_name_and_password(client: Any, name: str, password: str) -> None:
    try:
        name.encode() + password.encode()
    except UnicodeEncodeError:
        return
    mine = client(name, password, "n1")
    if not scram.prepared(name):
        return
    server = ServerSide(mine.first, "n2")
    assert server.name == scram.prepared(name)
    final = server.verify(mine.answer(server.challenge(make_keys(password, b"salt", 4096))))
    assert final is not None and mine.answer(final) == b"" and mine.proved


def test_a_password_in_other_characters_is_the_same() -> None:
    assert make_keys("I\u00adX", SALT, 4096) == make_keys("IX", SALT, 4096), "RFC 4013, examples"
    assert make_keys("\u2168\u00a0a\u0301", SALT, 4096) == make_keys("IX \u00e1", SALT, 4096)


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"", "first message"),
        (b"n=user,r=x", "first message"),
        (b"n,,n=,r=x", "first message"),
        (b"n,,n=user,r=", "first message"),
        (b"n,,n=us=er,r=x", "first message"),
        (b"n,,m=ext,n=user,r=x", "first message"),
        (b"n,,n=us\0er,r=x", "first message"),
        (b"n,,n=user,r=x\0", "first message"),
        (b"n,a=boss,n=user,r=x", "act for another"),
        (b"n,,n=\xff\xfe,r=x", "utf-8"),
        (b"n,,n=" + b"x" * 3000 + b",r=x", "3009 octets"),
    ],
)
def test_first_messages_that_are_refused(first: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ServerSide(first, OURS)


@pytest.mark.parametrize(
    ("final", "text"),
    [
        (b"", "final message"),
        (FINAL.replace(b"c=biws", b"c=eSws"), "header"),
        (FINAL.replace(OURS.encode(), b"replayed"), "nonce"),
        (FINAL.replace(b",p=", b",x=1,q="), "final message"),
        (FINAL[:-10], "zip|padding|longer|shorter"),
        (FINAL.partition(b"p=")[0] + b"p=AAAA", "shorter|longer"),
        (FINAL + b",x=1", "final message"),
    ],
)
def test_final_messages_that_are_refused(final: bytes, text: str) -> None:
    server = ServerSide(FIRST, OURS)
    server.challenge(KEYS)
    with pytest.raises(ValueError, match=text):
        server.verify(final)


def test_an_exchange_that_was_heard_is_of_no_use() -> None:
    server = ServerSide(FIRST, "another")
    server.challenge(KEYS)
    with pytest.raises(ValueError, match="another login"):
        server.verify(FINAL)
    again = ServerSide(FIRST, OURS)
    again.challenge(KEYS._replace(stored=b"\0" * 32))
    assert again.verify(FINAL) is None


@CLIENTS
@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (b"", "challenge"),
        (CHALLENGE.replace(NONCE.encode(), b"other"), "nonce"),
        (CHALLENGE.replace(OURS.encode(), b""), "nonce"),
        (CHALLENGE.replace(b"i=4096", b"i=1"), "1 iterations, expected 4096"),
        (CHALLENGE.replace(b"i=4096", b"i=2147483647"), "2147483647 iterations"),
        (CHALLENGE + b",x=" + b"x" * 5000, "octets|challenge"),
        (b"v=" + SIGNATURE, "challenge"),
        (b"e=other-error", "challenge"),
    ],
)
def test_challenges_that_a_client_refuses(client: Any, challenge: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        client("user", "pencil", NONCE).answer(challenge)


@CLIENTS
@pytest.mark.parametrize("final", [b"", b"v=AAAA", b"e=invalid-proof", CHALLENGE])
def test_a_server_that_does_not_know_the_password_is_refused(client: Any, final: bytes) -> None:
    mine = client("user", "pencil", NONCE)
    mine.answer(CHALLENGE)
    with pytest.raises(ValueError, match="does not know the password"):
        mine.answer(final)
    assert not mine.proved


def test_keys_do_not_prove_anything() -> None:
    """Who has stolen an entry cannot log in with it, as with the stored key of a wrong client."""
    server = ServerSide(FIRST, OURS)
    server.challenge(KEYS)
    thief = ClientSide("user", KEYS.stored.hex(), NONCE)
    assert server.verify(thief.answer(CHALLENGE)) is None
    assert Keys(*KEYS) == KEYS
