"""Guessed passwords, and many honest logins at once."""

import re
import select
import time
from collections.abc import Callable
from pathlib import Path

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_method, make
from qpidd_py.amqp.constants import PROTOCOL_HEADER
from qpidd_py.config import GROUPS
from qpidd_py.options import load
from qpidd_py.security.logins import Logins
from qpidd_py.security.refusals import ADDRESSES, LINES, PERIOD, Refusals, shown
from qpidd_py.security.users import Users, hash_password, read_users
from qpidd_py.server.listener import listening_sockets
from qpidd_py.service import Service
from tests.security.peers import Raw, guessing, longest_wait, start_ok
from tests.support.process import BrokerProcess
from tests.support.wait import stays, wait_for, wait_logged

MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def user_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("users") / "users.yaml"
    file.write_text("".join(f"{name}: {hash_password(name)}\n" for name in ("anna", "ben")))
    return file


@pytest.fixture
def guarded(make_broker: MakeBroker, user_file: Path) -> BrokerProcess:
    return make_broker("--user-file", str(user_file), "--max-negotiate-time", "60s").start()


def test_guessed_passwords_delay_no_other_user(guarded: BrokerProcess) -> None:
    """Sixty guesses cost three seconds of a processor, which was three seconds in which the broker did nothing else."""
    with Raw(guarded.port) as honest, Raw(guarded.port, source="127.0.0.2") as another:
        honest.log_in("anna", "anna")
        another.begin()
        with guessing(guarded.port, 60, lambda number: f"user{number}") as guesses:
            another.finish("ben", "ben")
            answered, _, _ = select.select([peer.socket for peer in guesses], [], [], 0)
            assert len(answered) < len(guesses), "addresses take turns"
            assert longest_wait(honest, 0.5) < 2.0


def test_known_and_unknown_names_are_refused_alike(guarded: BrokerProcess) -> None:
    times = {}
    for name in ("anna", "nobody"):
        with Raw(guarded.port) as peer:
            peer.begin()
            began = time.monotonic()
            peer.send(start_ok(name, "guess"))
            close = peer.frame()
            times[name] = time.monotonic() - began
            assert isinstance(close, commands.Connection.Close) and close.reply_code == 403
    assert min(times.values()) > 0.01, f"scrypt ran for both: {times}"


def test_while_a_login_waits_nothing_more_is_read(guarded: BrokerProcess) -> None:
    with guessing(guarded.port, 30, lambda number: f"user{number}"), Raw(guarded.port) as peer:
        peer.begin()
        peer.send(start_ok("ben", "guess") + b"x" * 20_000)
        close = peer.frame()
        assert isinstance(close, commands.Connection.Close) and "ahead of an answer" in close.reply_text


def test_one_new_secret_at_a_time_is_verified(guarded: BrokerProcess) -> None:
    """Or a client fills the memory with secrets that wait for their turn, four seconds each after some wrong ones."""
    with Raw(guarded.port) as peer:
        peer.log_in("anna", "anna")
        with guessing(guarded.port, 10, lambda number: f"user{number}"):
            secret = make(commands.Connection.UpdateSecret, new_secret=b"x" * 100_000, reason="")
            peer.send(2 * encode_method(0, secret))
            close = peer.frame()
        assert isinstance(close, commands.Connection.Close) and close.reply_code == 503, close
        assert "while the one before is being verified" in close.reply_text


def test_what_was_sent_early_is_handled_after_the_login(guarded: BrokerProcess) -> None:
    early = encode_method(0, commands.Connection.TuneOk(0, 0, 0)) + encode_method(0, commands.Connection.Open())
    with Raw(guarded.port) as peer:
        peer.send(PROTOCOL_HEADER + start_ok("anna", "anna") + early)
        answers = [type(peer.frame()) for _ in range(3)]
    assert answers == [commands.Connection.Start, commands.Connection.Tune, commands.Connection.OpenOk]


def test_frames_are_small_until_limits_are_agreed(guarded: BrokerProcess) -> None:
    with Raw(guarded.port) as peer:
        peer.begin()
        peer.send(b"\1\0\0" + (20_000).to_bytes(4, "big"))
        close = peer.frame()
        assert isinstance(close, commands.Connection.Close) and close.reply_code == 501


def test_a_waiting_login_ends_with_its_time(make_broker: MakeBroker, user_file: Path) -> None:
    """Guesses of one name wait for each other; those that wait too long are closed and cost nothing."""
    broker = make_broker("--user-file", str(user_file), "--max-negotiate-time", "3s").start()
    with guessing(broker.port, 10, lambda number: "anna") as peers:
        ends = [peer.frame() for peer in peers]
    refused = [end for end in ends if isinstance(end, commands.Connection.Close) and end.reply_code == 403]
    assert 1 <= len(refused) <= 4 and all(end is None for end in ends if end not in refused)
    with Raw(broker.port, source="127.0.0.2") as peer:
        peer.log_in("anna", "anna")


def test_silent_connections_keep_no_client_out(make_broker: MakeBroker) -> None:
    broker = make_broker("--max-newcomers", "20").start()
    silent = [Raw(broker.port) for _ in range(20)]
    try:
        with Raw(broker.port, source="127.0.0.2") as peer:
            peer.log_in()
        wait_for(lambda: any(not _open(peer) for peer in silent), what="the oldest silent one goes")
        assert sum(map(_open, silent)) == 19

        def is_taken() -> bool:
            silent.append(Raw(broker.port))
            return stays(lambda: _open(silent[-1]), 0.2)

        wait_for(is_taken, what="there is room again, after the next tick at the latest")
        silent.append(Raw(broker.port))
        wait_for(lambda: not _open(silent[-1]), what="one more of the same address is refused")
        line = r"connection refused: from 127.0.0.1:\d+, 20 are not logged in"
        wait_for(lambda: re.search(line, broker.log), what=line)
    finally:
        for peer in silent:
            peer.close()


def _open(peer: Raw) -> bool:
    peer.socket.setblocking(False)
    try:
        return peer.socket.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_refusals_are_told_with_their_address_and_cut(guarded: BrokerProcess) -> None:
    name = "x\n" + "y" * 10_000
    with Raw(guarded.port) as peer:
        peer.begin()
        peer.send(start_ok(name, "guess"))
        assert isinstance(peer.frame(), commands.Connection.Close)
    wait_logged(guarded, "login refused")
    (line,) = [line for line in guarded.log.splitlines() if "login refused" in line]
    expected = r"warning: login refused from 127\.0\.0\.1:\d+: user 'x\\ny{62}'\.\.\. using PLAIN$"
    assert re.search(expected, line), line
    assert len(guarded.log) < 5000, "the name is nowhere else either"


def test_the_documented_filter_matches_the_lines() -> None:
    """As fail2ban reads it: <ADDR> stands for an address."""
    page = (Path(__file__).parents[2] / "docs/security.md").read_text()
    (filter_line,) = re.findall(r"^failregex = (.*)$", page, re.MULTILINE)
    pattern = re.compile(filter_line.replace("<ADDR>", r"(?P<ip>[0-9a-fA-F:.]+)"))
    refusals = Refusals()
    for now, peer, expected in ((100, "192.0.2.7:41234", "192.0.2.7"), (200, "[2001:db8::1]:80", "2001:db8::1")):
        lines = []
        for _ in range(LINES + 3):
            lines += refusals.refused(peer, f"user {shown('from 10.9.9.9:1: ')} using PLAIN", now)
        lines += refusals.period(now + PERIOD)
        assert len(lines) == LINES + 1
        for line in lines:
            found = pattern.search(f"2026-11-24 09:00:00 [Security] warning: {line}")
            assert found and found["ip"] == expected


def test_lines_about_refusals_are_bounded() -> None:
    refusals = Refusals()
    lines = [line for n in range(5000) for line in refusals.refused(f"10.0.{n % 250}.1:{n}", "user 'x'", 1.0)]
    assert len(lines) == ADDRESSES * LINES
    summed = refusals.period(1.0 + PERIOD)
    assert len(summed) == ADDRESSES + 1 and sum(int(re.findall(r"(\d+) more", line)[0]) for line in summed) == 4500


def test_guest_comes_from_this_machine_only() -> None:
    users = read_users(None)
    for peer, allowed in (("127.0.0.1:1", True), ("127.8.8.8:1", True), ("[::1]:1", True), ("192.0.2.7:1", False)):
        answers: list[str | None] = []
        Logins(users).submit(peer, "guest", "guest", answers.append, lambda: True, 0.0)
        assert answers == ["guest" if allowed else None], peer
    made: list[str | None] = []
    Logins(Users({})).submit("192.0.2.7:1", "guest", "guest", made.append, lambda: True, 0.0)
    assert made == [], "a guest of a user file would be verified like others"


def test_a_broker_without_users_that_others_reach_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidd_py.service._bind", lambda network, port: listening_sockets(("127.0.0.1",), 0, 1))
    for words, said in ((["--interface", "127.0.0.1"], 0), (["--interface", "0.0.0.0"], 1), ([], 1)):
        caplog.clear()
        Service(load(GROUPS, [*words, "--no-data-dir"], {}, "/none"), [], None, "1", 70)
        assert caplog.text.count("there is no user-file: guest/guest may log in from this machine") == said
