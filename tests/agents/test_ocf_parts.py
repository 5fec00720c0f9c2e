"""The pure parts of the agent: scores, messages, when a silent broker counts as hung."""

from pathlib import Path

import pytest
from qpidd_agent import actions
from qpidd_agent.marker import died_as_primary
from qpidd_agent.ocf import Failure, Operation
from qpidd_agent.parameters import Parameters, seconds
from qpidd_agent.score import Standing, code, parse, score
from qpidd_agent.watch import Watch


@pytest.mark.parametrize(
    ("state", "given", "written"),
    [
        ("active", "1000", "1000"),
        ("ready", "100", "100"),
        ("joining", "10", "10"),
        ("joining", "0", "0"),
        ("ready", "", ""),
        ("catchup", "", "-INFINITY"),
        ("catchup", "8", "8"),  # after a total failure a half-filled broker may be the best copy that is left
        ("ready", "-INFINITY", "-INFINITY"),
        ("ready", "much", ""),
        ("active", None, "100"),
        ("recovering", None, "100"),
        ("ready", None, "100"),
        ("joining", None, "5"),
        ("catchup", None, "-INFINITY"),
        ("standalone", None, ""),
        ("unheard-of", None, ""),
    ],
)
def test_what_is_written_as_score(state: str, given: str | None, written: str) -> None:
    assert score(state, given) == written


@pytest.mark.parametrize(
    ("state", "answer"),
    [("active", 8), ("recovering", 8), ("ready", 0), ("catchup", 0), ("joining", 0), ("standalone", 0), ("?", 1)],
)
def test_what_a_monitor_answers(state: str, answer: int) -> None:
    assert code(state) == answer


def test_a_message_changes_what_it_names() -> None:
    standing = Standing("ready", "100", last=True)
    standing = standing.told(parse(b"WATCHDOG=1\nX_QPID_STATE=active\nnonsense\n\xff"))
    assert (standing.state, standing.score, standing.last) == ("active", "100", True)
    standing = standing.told({"X_QPID_LAST": "", "X_QPID_SCORE": "", "X_QPID_STATE": "catchup"})
    assert (standing.promoted, standing.score, standing.last) == (False, "-INFINITY", False)


# ---- when does a silent broker count as hung?


def test_a_primary_hangs_after_the_silence() -> None:
    watch = Watch(0.0, hold=10.0, silence=1.0)
    assert [watch.hangs(now) for now in (0.5, 0.99, 1.0)] == [False, False, True]
    watch.sign(0.75)
    assert not watch.hangs(1.5)
    assert watch.hangs(1.75)


def test_patience_lasts_until_the_end() -> None:
    watch = Watch(0.0, hold=10.0, silence=1.0)
    watch.patient = True
    assert watch.silent(5.0)
    assert not watch.hangs(9.9)
    assert watch.hangs(10.0)


def test_patience_does_not_make_short_holds_hasty() -> None:
    watch = Watch(0.0, hold=0.1, silence=1.0)
    watch.patient = True
    assert not watch.hangs(0.9)
    assert watch.hangs(1.0)


def test_a_primary_elsewhere_is_looked_for_after_two_silences() -> None:
    watch = Watch(0.0, hold=10.0, silence=1.0)
    watch.sign(0.25)
    moments = (1.0, 2.24, 2.25, 2.5, 3.25, 3.5)
    assert [now for now in moments if watch.ask_others(now)] == [2.25, 3.25]
    assert watch.sleep(3.5) == pytest.approx(0.75)
    watch.sign(3.5)
    assert not watch.ask_others(5.4)


def test_a_hold_is_not_over_in_a_silence() -> None:
    """The next monitor would count from nothing."""
    watch = Watch(0.0, hold=10.0, silence=1.0)
    watch.sign(9.6)
    assert watch.over(10.0)
    assert not Watch(0.0, hold=10.0, silence=1.0).over(10.0)


def test_a_monitor_that_stood_still_does_not_judge() -> None:
    watch = Watch(0.0, hold=10.0, silence=1.0)
    watch.woke(0.5, planned=0.5)
    watch.woke(4.0, planned=0.5)  # the machine was paused
    assert not watch.hangs(4.9)
    watch.woke(4.5, planned=0.5)
    assert watch.hangs(5.0)


def test_it_sleeps_until_something_is_due() -> None:
    watch = Watch(0.0, hold=10.0, silence=1.0)
    assert watch.sleep(0.0) == pytest.approx(0.5)
    assert watch.sleep(0.5) == pytest.approx(0.5)
    watch.sign(9.7)
    assert watch.sleep(9.8) == pytest.approx(0.2)
    assert watch.sleep(30.0) > 0


# ---- parameters


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1s", 1.0),
        ("500ms", 0.5),
        ("2", 2.0),
        ("250000us", 0.25),
        ("2min", 120.0),
        ("-1s", 0.0),
        ("soon", 0.0),
        ("", 0),
    ],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "option",
    [
        "--ha-brokers-url a:1,b:2",
        "--ha-brokers-url=a:1,b:2",
        "--port 1 --ha-brokers-url a:1,b:2 -x",
        "--ha-brokers-url='a:1,b:2'",
        '--broker-name "my --ha-brokers-url d:4" --ha-brokers-url "a:1,b:2"',
        "--ha-brokers-url d:4 --ha-brokers-url a:1,b:2",
    ],
)
def test_the_members_may_be_given_with_the_options(option: str, tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text("ha-brokers-url=c:3\n")
    assert Parameters({"OCF_RESKEY_config": str(file)}).brokers == "c:3"
    assert Parameters({"OCF_RESKEY_config": str(file), "OCF_RESKEY_options": option}).brokers == "a:1,b:2"


def test_an_operation_is_read_from_the_environment() -> None:
    found = Operation("monitor", {"OCF_RESKEY_CRM_meta_interval": "200", "OCF_RESKEY_CRM_meta_timeout": "20000"})
    assert (found.interval, found.timeout, found.half, found.notified) == (0.2, 20.0, 10.0, False)
    assert Operation("stop", {}).half == 0.0


def test_what_no_parameter_and_no_file_says() -> None:
    found = Parameters({"OCF_RESKEY_config": "/nonexistent"})
    assert (found.port, found.data_dir, found.user, found.host) == ("5672", "/var/lib/qpidd", "qpidd", "127.0.0.1")
    assert (found.login, found.silence) == (("guest", "guest"), 1.0)


class Dying:
    """A broker that holds its lock for a moment more, and `when` it is asked so often has ended."""

    pid, stopped = 7, False

    def __init__(self, when: int) -> None:
        self.left = when

    def wait(self, _seconds: float) -> bool:
        self.left -= 1
        return self.left == 0


def silent(*_: object) -> None:
    raise Failure(1, "connection refused")


@pytest.mark.parametrize("when", [1, 2])
def test_a_primary_that_dies_while_it_is_demoted_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """Its lock is free a moment after its end: it is found, and does not answer."""
    monkeypatch.setattr(actions, "find", lambda _parameters: Dying(when))
    for name in ("order", "ask_standing"):
        monkeypatch.setattr(actions, name, silent)
    operation = Operation("demote", {"HA_RSCTMP": str(tmp_path)})
    assert actions.demote(Parameters({}), operation) == 0
    assert died_as_primary(operation)


def test_one_that_lives_and_does_not_answer_is_not_demoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "find", lambda _parameters: Dying(99))
    for name in ("order", "ask_standing"):
        monkeypatch.setattr(actions, name, silent)
    operation = Operation("demote", {"HA_RSCTMP": str(tmp_path)})
    with pytest.raises(Failure, match="connection refused"):
        actions.demote(Parameters({}), operation)
    assert not died_as_primary(operation)
