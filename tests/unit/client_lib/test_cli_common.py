"""The frame of a run: signals, pace, exit codes."""

import argparse
import logging
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_lib.cli import common, receive, send
from client_lib.cli.common import Interrupted, Pace, Signals, World
from client_lib.cli.sequence import CheckFailed
from client_lib.errors import ConnectError, Timeout, UrlError

# ---- pace


def test_pace() -> None:
    pace = Pace(10.0, 100.0)
    assert pace.wait(0, 100.0) == 0
    assert pace.wait(1, 100.0) == pytest.approx(0.1)
    assert pace.wait(5, 100.45) == pytest.approx(0.05)
    assert pace.wait(5, 200.0) == 0, "what was delayed is made up for"
    assert Pace(0.0, 100.0).wait(1000, 100.0) == 0


def test_a_long_wait_is_left_soon_after_a_signal(capfdbinary) -> None:
    times: list[float] = []
    world = World(lambda: len(times) == 3, out=None)  # type: ignore[arg-type]
    world.clock = lambda: sum(times)
    world.sleep = times.append
    world.keep_pace(Pace(0.001, 0.0), 1)
    assert times == [common.SLICE] * 3


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_is_not_ours(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Signals() as signals:
        signals.begin()
        assert not signals.stopped()
        os.kill(os.getpid(), number)
        assert signals.stopped() and signals.number == number
        assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(number) is before


def test_before_anything_has_begun_a_signal_raises() -> None:
    with Signals() as signals, pytest.raises(Interrupted, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.number == signal.SIGTERM


# ---- runs


class Connection:
    """Does at open() what `opens` says."""

    opens: Callable[[float | None], object] = staticmethod(lambda timeout: None)
    made: dict[str, Any] = {}

    def __init__(self, broker: str, **options: Any) -> None:
        if broker == "wrong:url:":
            raise UrlError("expected a port", broker, 9)
        type(self).made = {"broker": broker, **options}
        self.failovers = 7
        self.closed = 0

    def open(self, timeout: float | None) -> None:
        type(self).made["timeout"] = timeout
        type(self).opens(timeout)

    def close(self, timeout: float) -> None:
        self.closed += 1


class Work:
    """Its run() does what the test says."""

    def __init__(self, act: Callable[[], object], doubt: int = 0, complete: bool = True) -> None:
        self.act, self.doubt, self.complete = act, doubt, complete
        self.failovers = 0

    def prepare(self, connection: object) -> None:
        self.connection = connection

    def run(self) -> None:
        self.act()

    def finish(self, failovers: int) -> int:
        assert self.connection.closed == 1  # type: ignore[attr-defined]
        self.failovers = failovers
        return self.doubt


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "Connection", Connection)
    monkeypatch.setattr(Connection, "opens", staticmethod(lambda timeout: None))


def options(*words: str) -> argparse.Namespace:
    return send.make_parser().parse_args(["-a", "q", *words])


def run(work: Work, *words: str, limited: bool = True) -> int:
    return common.run("qpid-x", options(*words), lambda world: work, limited)


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def ended_by(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def test_done(capsys) -> None:
    work = Work(lambda: None)
    assert run(work) == 0 and work.failovers == 7
    assert capsys.readouterr() == ("", "")
    assert Connection.made == {
        "broker": "127.0.0.1", "client_id": f"qpid-x-{os.getpid()}", "timeout": common.FIRST_CONNECT,
    }  # fmt: skip


def test_password_in_a_file(capsys, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\nnot this line\n")
    assert run(Work(lambda: None), "-b", "me@host", "--password-file", str(file)) == 0
    assert Connection.made["broker"] == "me@host" and Connection.made["password"] == "secret"
    file.write_text("\n")
    assert run(Work(lambda: None), "--password-file", str(file)) == common.USAGE
    assert "is empty, wanted a password" in capsys.readouterr().err
    file.write_bytes(b"\xff\xfe\n")
    for wrong in (file, tmp_path, tmp_path / "none"):
        assert run(Work(lambda: None), "--password-file", str(wrong)) == common.USAGE
        assert f"--password-file: cannot read {wrong}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConnectError("gone  for\ngood"), 1, "qpid-x: ConnectError: gone for good\n"),
        (CheckFailed("gap: found 3, expected 2"), 4, "qpid-x: gap: found 3, expected 2\n"),
    ],
)
def test_errors(capsys, error: Exception, code: int, said: str) -> None:
    assert run(Work(raising(error))) == code
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(("error", "code"), [(None, 3), (ConnectError("gone"), 3), (CheckFailed("x"), 4)])
def test_messages_in_doubt(capsys, error: Exception | None, code: int) -> None:
    assert run(Work(raising(error) if error else lambda: None, doubt=12)) == code
    assert "qpid-x: 12 messages are in doubt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limited", "complete", "code"), [(True, False, 128 + 15), (True, True, 0), (False, True, 0), (False, False, 0)]
)
def test_a_signal(limited: bool, complete: bool, code: int) -> None:
    assert run(Work(ended_by(signal.SIGTERM), complete=complete), limited=limited) == code


def test_a_signal_while_connecting(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Connection, "opens", staticmethod(lambda timeout: ended_by(signal.SIGINT)()))
    work = Work(raising(AssertionError("nothing to do")))
    work.connection = argparse.Namespace(closed=1)
    assert run(work) == 128 + 2


def test_no_broker_takes_us(monkeypatch, capsys) -> None:
    text = "not connected within 10 s; last: node1:5672: no such name"
    monkeypatch.setattr(Connection, "opens", staticmethod(lambda timeout: raising(Timeout(text))()))
    work = Work(lambda: None)
    work.connection = argparse.Namespace(closed=1)
    assert run(work) == 1
    assert f"qpid-x: ConnectError: {text}; {{reconnect:true}} tries for ever" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["{reconnect:true}", "{reconnect-limit:3}", "{reconnect_timeout:60}"])
def test_options_of_reconnecting_decide_how_long(given: str) -> None:
    run(Work(lambda: None), "--connection-options", given)
    assert Connection.made["timeout"] is None


def test_options_of_the_connection(tmp_path) -> None:
    log = tmp_path / "events"
    run(
        Work(lambda: None), "-b", "n1,n2", "--connection-options", "{heartbeat:5,client-id:me}", "--event-log", str(log)
    )
    assert Connection.made == {
        "broker": "n1,n2", "heartbeat": 5, "client_id": "me", "event_log": str(log), "timeout": common.FIRST_CONNECT,
    }  # fmt: skip
    assert log.is_file(), "one file, whatever its name"


def test_wrong_url_and_file(tmp_path, capsys) -> None:
    assert run(Work(lambda: None), "-b", "wrong:url:") == 2
    assert capsys.readouterr().err == "qpid-x: error: expected a port at character 9: 'wrong:url:'\n"
    assert run(Work(lambda: None), "--event-log", str(tmp_path / "no" / "file")) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_failover_updates_have_no_effect_and_say_so(capsys) -> None:
    assert run(Work(lambda: None), "--failover-updates") == 0
    assert "--failover-updates has no effect" in capsys.readouterr().err


def test_losses_are_said_and_errors_only_once(capsys) -> None:
    def act() -> None:
        logger = logging.getLogger("client_lib")
        logger.info("connected")
        logger.warning("lost node1")
        logger.error("reconnecting is off")
        raise ConnectError("reconnecting is off")

    assert run(Work(act)) == 1
    assert capsys.readouterr().err == "lost node1\nqpid-x: ConnectError: reconnecting is off\n"
    assert logging.getLogger("client_lib").handlers == []


@pytest.mark.parametrize("main", [send.main, receive.main])
def test_wrong_options(main, capsys) -> None:
    for words in (["-a", "q", "--capacity", "0"], [], ["-a", "q", "--cap", "1"], ["-a", "q", "more"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "argument --capacity: found '0', expected messages, a whole number" in said
    assert "the following arguments are required: -a/--address" in said and "unrecognized arguments: more" in said


@pytest.mark.parametrize("module", [send, receive])
def test_help_names_the_exit_codes_and_gives_examples(module, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and "exit codes:" in said
    for line in said.partition("examples:\n")[2].splitlines():
        words = line.partition(f"{module.PROGRAM} ")[2]
        module.make_parser().parse_args(shlex.split(words))
