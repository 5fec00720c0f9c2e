"""SCRAM-SHA-256: who may log in with it, what is told about names, and exchanges that are broken off or broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pamqp.commands as commands
import pytest

from client_lib import AuthenticationFailure, Connection
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.amqp.codec import encode_method, make
from qpidd_py.amqp.sasl import Attempt
from qpidd_py.amqp.scram import ClientSide, ServerSide
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.security.logins import DELAYS, Logins
from qpidd_py.security.scram import keys_of, scram_entry
from qpidd_py.security.users import Users, hash_password, password_matches, usable
from qpidd_py.security.verifier import Verifier
from tests.security.peers import CLOSES, Raw
from tests.support.process import BrokerProcess
from tests.support.slow import few
from tests.support.wait import wait_for, wait_logged

SCRAM = "SCRAM-SHA-256"
ANNA = scram_entry("anna's", b"salt" * 4, 4096)
BEN = hash_password("ben's", b"salt" * 4, 4)
TIME = 60.0


# ---- entries


def test_an_entry_is_one_password_for_both_ways() -> None:
    assert usable(ANNA) and password_matches("anna's", ANNA) and not password_matches("ann's", ANNA)
    keys = keys_of(ANNA)
    assert keys is not None and ServerSide(b"n,,n=anna,r=x", "y").challenge(keys).endswith(b"i=4096")


@pytest.mark.parametrize(
    "broken",
    [
        ANNA[:-1],
        ANNA + "00",
        ANNA.replace("$4096$", "$4095$"),
        ANNA.replace("$4096$", "$99999999$"),
        ANNA.replace(":", "$"),
        ANNA.upper(),
        "scram-sha-256$4096$$:",
    ],
)
def test_broken_entries_are_refused(broken: str) -> None:
    assert not usable(broken)


def test_it_is_offered_while_somebody_has_an_entry() -> None:
    users = Users({"ben": BEN})
    assert not users.has_scram
    users.keep("anna", ANNA)
    assert users.has_scram
    users.keep("anna", None)
    assert not users.has_scram
    assert users.keys("anna")[2] is False, "the last one has gone after the offer"


def test_names_cannot_be_found_out() -> None:
    """A name without an entry for SCRAM has a salt that stays, after a restart and on another broker, as others do."""
    brokers = [Users({"anna": ANNA, "carl": scram_entry("x", b"salz" * 4, 5000), "ben": BEN}) for _ in range(2)]
    for name in ("nobody", "ben", "bén", "x" * 255):
        (_, one, own), (_, other, _) = (users.keys(name) for users in brokers)
        assert one == other and not own and len(one.salt) == 16 and one.iterations in (4096, 5000)
    same = [brokers[0].keys(spelled)[1] for spelled in ("caf\u00e9", "cafe\u0301")]
    assert same[0] == same[1], "as for a user that there is"
    brokers[0].replace({"anna": ANNA, "dora": BEN, "carl": scram_entry("x", b"salz" * 4, 5000)})
    assert brokers[0].keys("nobody") == brokers[1].keys("nobody"), "other users do not change it"
    costs = {brokers[0].stored(f"nobody{number}").rpartition("$")[0].count("$") for number in range(50)}
    assert costs and all(usable(brokers[0].stored(f"nobody{number}")) for number in range(50)), "PLAIN costs as much"


def test_an_entry_of_another_version_lets_nobody_in() -> None:
    """It comes with the settings of the cluster, and must not end the broker."""
    users = Users({"carl": ANNA})
    for stored in ("scram-sha-256$x$y$z", "scram-sha-256", ANNA.replace("$4096$", "$4095$")):
        users.keep("anna", stored)
        assert users.keys("anna")[2] is False
        assert not password_matches("anna's", users.stored("anna"))
        assert all(usable(users.stored(f"nobody{number}")) for number in range(20))


def test_wrong_proofs_wait_as_wrong_passwords_do() -> None:
    logins, answers = Logins(Users({"anna": ANNA})), []

    def prove(right: bool, now: float) -> None:
        logins.submit_proof("10.0.0.1:1", "anna", right, answers.append, lambda: True, now)
        assert list(logins.run(now)) == [], "no thread is needed"

    prove(False, 0.0)
    assert answers == [None], "the first one"
    prove(False, 0.1)
    assert answers == [None] and logins.due == DELAYS[0]
    prove(True, 0.1)
    assert answers == [None, "anna"], "others are not slowed"
    list(logins.run(DELAYS[0]))
    assert answers == [None, "anna", None]
    logins.submit("10.0.0.1:2", "anna", "guess", answers.append, lambda: True, 0.5)
    assert not list(logins.run(0.5)) and logins.due == DELAYS[0] + DELAYS[1], "PLAIN has the same delay"


class Loop:
    """Time that stands still; what is to be called later."""

    def __init__(self) -> None:
        self.later: list[float] = []

    def time(self) -> float:
        return 0.0

    def call_at(self, when: float, *_: Any) -> asyncio.Handle:
        self.later.append(when)
        return asyncio.Handle(print, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("password", "changed", "accepted"),
    [("anna's", ANNA, True), ("wrong", ANNA, False), ("anna's", BEN, False), ("anna's", None, False)],
    ids=["right", "wrong", "another entry meanwhile", "deleted meanwhile"],
)
def test_only_a_right_proof_is_accepted_at_once(password: str, changed: str | None, accepted: bool) -> None:
    users, loop, answers, asked = Users({"carl": ANNA}), Loop(), [], []
    users.keep("anna", ANNA)
    verifier = Verifier(users, loop, lambda work: work())  # type: ignore[arg-type]
    client = ClientSide("anna", password, "nonce")
    verifier(Attempt("10.0.0.1:1", SCRAM, client.first, ask=lambda *each: asked.append(each)), answers.append)
    users.keep("anna", changed)
    challenge, answered = asked.pop()
    answered(client.answer(challenge))
    if accepted:
        signature, answered = asked.pop()
        assert client.answer(signature) == b"" and not answers
        answered(b"")
    assert (answers, bool(loop.later)) == (["anna"] if accepted else [], not accepted), "a wrong one waits for its turn"
    verifier.close()


# ---- a broker


@pytest.fixture
def guarded(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> BrokerProcess:
    (tmp_path / "users.yaml").write_text(f'anna: "{ANNA}"\nben: "{BEN}"\n')
    return make_broker("--user-file", str(tmp_path / "users.yaml"), "--max-negotiate-time", "5s").start()


def connect(broker: BrokerProcess, user: str, password: str, mechanisms: str = SCRAM) -> None:
    options: dict[str, Any] = {"reconnect": False, "sasl_mechanisms": mechanisms}
    Connection.establish(broker.address, username=user, password=password, **options).close()


def test_logins(guarded: BrokerProcess) -> None:
    connect(guarded, "anna", "anna's")
    connect(guarded, "anna", "anna's", "PLAIN")
    connect(guarded, "ben", "ben's", "PLAIN")
    for user, password in (("anna", "wrong"), ("ben", "ben's"), ("nobody", ""), ("anna", "")):
        with pytest.raises(AuthenticationFailure):
            connect(guarded, user, password)
    target = Target("127.0.0.1", guarded.port, Login("anna", "anna's", SCRAM))
    with ManagementSocket(target, Deadline(TIME)) as connection:
        assert connection.request("user.self", {})["name"] == "anna"
    wait_logged(guarded, "user 'ben' using SCRAM-SHA-256", "user 'nobody' using SCRAM-SHA-256")


def started(peer: Raw, first: bytes) -> Any:
    peer.begin()
    start_ok = make(commands.Connection.StartOk, client_properties=CLOSES, mechanism=SCRAM, response=first, locale="en")
    peer.send(encode_method(0, start_ok))
    return peer.frame()


def answered(peer: Raw, response: bytes) -> Any:
    peer.send(encode_method(0, commands.Connection.SecureOk(response.decode("latin-1"))))
    return peer.frame()


def challenge_of(frame: Any) -> bytes:
    assert isinstance(frame, commands.Connection.Secure), frame
    return str(frame.challenge).encode()


def assert_refused(frame: Any, code: int = 403) -> None:
    assert isinstance(frame, commands.Connection.Close) and frame.reply_code == code, frame


def test_broken_exchanges(guarded: BrokerProcess) -> None:
    for first in (b"p=tls-unique,,n=anna,r=x", b"n,,n=\xff,r=x", b"n,,n=anna,r=" + b"x" * 9000, b"n,a=ben,n=anna,r=x"):
        with Raw(guarded.port) as peer:
            assert_refused(started(peer, first))
    heard = []
    for tampered in (b"", b"x", b"c=biws,r=x,p=AAAA"):
        with Raw(guarded.port) as peer:
            heard.append(challenge_of(started(peer, b"n,,n=anna,r=same")))
            assert_refused(answered(peer, tampered))
    assert len(set(heard)) == 3, "the broker's nonce is another one each time"
    with Raw(guarded.port) as peer:  # open before the proof
        challenge_of(started(peer, b"n,,n=anna,r=x"))
        peer.send(encode_method(0, commands.Connection.TuneOk(0, 0, 0)))
        assert_refused(peer.frame(), 503)
    with Raw(guarded.port) as peer:  # the proof is right; the end is not
        client = ClientSide("anna", "anna's", "nonce")
        signature = challenge_of(answered(peer, client.answer(challenge_of(started(peer, client.first)))))
        assert client.answer(signature) == b""
        assert_refused(answered(peer, b"more"))
    with Raw(guarded.port) as peer:  # the first message comes after an empty start-ok
        client = ClientSide("anna", "anna's", "nonce")
        assert challenge_of(started(peer, b"")) == b""
        final = client.answer(challenge_of(answered(peer, client.first)))
        client.answer(challenge_of(answered(peer, final)))
        assert isinstance(answered(peer, b""), commands.Connection.Tune)
        peer.send(encode_method(0, commands.Connection.TuneOk(0, 0, 0)))
        peer.send(encode_method(0, commands.Connection.Open()))
        assert isinstance(peer.frame(), commands.Connection.OpenOk)
        peer.send(encode_method(0, commands.Connection.UpdateSecret("anna's", "")))
        assert isinstance(peer.frame(), commands.Connection.UpdateSecretOk)
        peer.send(encode_method(0, commands.Connection.UpdateSecret("wrong", "")))
        assert_refused(peer.frame(), 530)


def test_a_storm_of_half_done_exchanges(guarded: BrokerProcess) -> None:
    """They cost no verification, delay nobody, and end with their time."""
    number = few(1000)
    peers = [Raw(guarded.port) for _ in range(number)]
    try:
        for each, peer in enumerate(peers):
            challenge_of(started(peer, f"n,,n=user{each},r=x".encode()))
        connect(guarded, "anna", "anna's")
        wait_for(lambda: all(peer.frame() is None for peer in peers), what="they are closed")
        connect(guarded, "anna", "anna's")
    finally:
        for peer in peers:
            peer.close()
