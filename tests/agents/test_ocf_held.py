"""The held monitor: it ends when there is something to tell, and may itself be ended at any moment."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from qpidd_agent.marker import DEATH_WAITS, SCORE_WAITS

from tests.agents.ocf import TIME, Agent, ended
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

SUCCESS, NOT_RUNNING, PROMOTED = 0, 7, 8
HOUR = 7_200_000  # ms; half of it is how long a monitor may be held: longer than any test
SHORT = 3000  # ms, for the tests in which the hold ends by itself


@pytest.fixture
def primary(agent: Agent) -> Agent:
    agent("start")
    agent("promote")
    return agent


def test_a_first_monitor_is_not_held(primary: Agent) -> None:
    """Pacemaker waits for it.  That is so after each action that changes something."""
    assert primary("monitor", interval=200, timeout=HOUR).code == PROMOTED
    assert primary("demote").code == SUCCESS
    assert primary("monitor", interval=200, timeout=HOUR).code == SUCCESS
    assert primary("promote").code == SUCCESS
    assert primary("monitor", interval=200, timeout=HOUR).code == PROMOTED
    assert primary("stop").code == SUCCESS
    assert primary("start").code == SUCCESS
    assert primary("monitor", interval=200, timeout=HOUR).code == SUCCESS


@pytest.mark.parametrize("meta", [{"interval": 0}, {"interval": 200, "notify": "true"}])
def test_who_is_never_held(primary: Agent, meta: dict[str, str]) -> None:
    """A probe, and a monitor for which a notification would have to wait."""
    for _ in range(2):
        assert primary("monitor", timeout=HOUR, **meta).code == PROMOTED


def test_a_hold_ends_after_half_of_the_time(primary: Agent) -> None:
    held = primary.held(timeout=SHORT)
    assert primary.result(held).code == PROMOTED
    assert primary.result(primary.held(timeout=SHORT)).code == PROMOTED
    assert primary.calls[-1] == "100"


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_death_is_told_at_once(agent: Agent, role: str) -> None:
    """The score is gone before Pacemaker hears of it, so that it plans once."""
    agent("start")
    if role == "primary":
        agent("promote")
    held = agent.held(timeout=HOUR)
    agent.signal(signal.SIGKILL)
    found = agent.result(held)
    assert found.code == NOT_RUNNING
    assert "has died and left" in found.reason
    assert agent.calls[-1] == "-"


@pytest.mark.parametrize("on_fail", ["fence", "block", "standby", "stop"])
def test_a_death_that_shall_have_another_effect_is_the_promoted_monitors_failure(primary: Agent, on_fail: str) -> None:
    """With the score gone Pacemaker would demote, which ends this monitor, and `on-fail` would not act."""
    held = primary.held(timeout=HOUR, on_fail=on_fail)
    primary.signal(signal.SIGKILL)
    found = primary.result(held)
    assert (found.code, "the primary has failed" in found.reason) == (NOT_RUNNING, True)
    assert "-" not in primary.calls


def test_a_death_between_two_monitors_is_found_by_the_next(primary: Agent) -> None:
    primary("monitor", interval=200, timeout=HOUR)
    primary.signal(signal.SIGKILL)
    wait_for(lambda: not primary.alive, TIME, "the broker has ended")
    found = primary("monitor", interval=200, timeout=HOUR)
    assert (found.code, "has died" in found.reason) == (NOT_RUNNING, True)
    assert primary.calls[-1] == "-"


def test_a_changed_score_waits_after_a_demote(primary: Agent) -> None:
    """Pacemaker promotes another one just then, and would plan anew."""
    seen = len(primary.calls)
    since = time.monotonic()
    primary("demote")
    assert primary("monitor", interval=300).code == SUCCESS
    held = primary.held(interval=300, timeout=HOUR)
    wait_for(lambda: primary.calls[seen:], TIME, "the score is written when that is over")
    assert time.monotonic() - since > SCORE_WAITS
    assert held.poll() is None


def test_a_death_is_not_told_just_after_a_demote(primary: Agent) -> None:
    """Pacemaker would repair the dead one before it promotes another."""
    primary.signal(signal.SIGKILL)
    wait_for(lambda: not primary.alive, TIME, "the broker has ended")
    since = time.monotonic()
    primary("demote")
    assert primary("monitor", interval=300, timeout=HOUR).code == NOT_RUNNING
    assert time.monotonic() - since > DEATH_WAITS
    assert primary.calls[-1] == "-"


def test_a_probe_tells_a_death_at_once(primary: Agent) -> None:
    primary("demote")
    primary.signal(signal.SIGKILL)
    wait_for(lambda: not primary.alive, TIME, "the broker has ended")
    assert primary("monitor", interval=0).code == NOT_RUNNING


def test_a_clean_end_is_told_as_such(primary: Agent) -> None:
    held = primary.held(timeout=HOUR)
    primary.signal(signal.SIGTERM)
    found = primary.result(held)
    assert (found.code, "ended by itself" in found.reason) == (NOT_RUNNING, True)


def test_a_hung_primary_is_killed(primary: Agent) -> None:
    held = primary.held(timeout=HOUR)
    pid = primary.pid
    primary.signal(signal.SIGSTOP)
    found = primary.result(held)
    assert (found.code, "hangs: neither a beat nor an answer" in found.reason) == (NOT_RUNNING, True)
    assert ended(pid)
    assert primary.calls[-1] == "-"


def test_a_primary_that_hung_before_the_hold_is_killed(primary: Agent) -> None:
    primary("monitor", interval=200, timeout=HOUR)
    pid = primary.pid
    primary.signal(signal.SIGSTOP)
    assert primary("monitor", interval=200, timeout=HOUR).code == NOT_RUNNING
    assert ended(pid)


def test_a_hung_backup_is_no_candidate_and_lives(agent: Agent) -> None:
    """No monitor waits for it.  What it says when it is back makes it a candidate again."""
    agent("start")
    held = agent.held(timeout=HOUR)
    wait_for(lambda: agent.calls and agent.calls[-1] != "-", TIME, lambda: f"a score: {agent.calls}")
    score, seen = agent.calls[-1], len(agent.calls)
    agent.signal(signal.SIGSTOP)
    # The hold may have told the score once more before that.
    wait_for(lambda: agent.calls[-1] == "-", TIME, lambda: f"the score goes: {agent.calls}")
    gone = len(agent.calls)
    agent.signal(signal.SIGCONT)
    wait_for(lambda: agent.calls[gone:] == [score], TIME, lambda: f"the score is back: {agent.calls}")
    assert agent.calls[seen:].count("-") == 1
    assert held.poll() is None
    assert agent.alive


def test_a_hung_primary_that_is_the_last_copy_gets_time(agent: Agent) -> None:
    """No other broker could take over, and with it would go what it holds; its score stays, or it would be demoted."""
    agent.parameters["options"] = agent.options("127.0.0.1:1", safety="availability")
    agent("start")
    agent("promote")
    command = [sys.executable, "-m", "qpidd_py.cli.qpid_config", "-b", agent.address, "add", "queue", "orders"]
    subprocess.run(command, check=True, timeout=TIME, capture_output=True)
    agent.result(agent.held(timeout=SHORT))  # it has heard of it
    held = agent.spawn("monitor", interval=200, timeout=8000)
    pid = agent.pid
    agent.signal(signal.SIGSTOP)
    wait_for(lambda: "is silent, and is the last copy" in agent.log, TIME, lambda: f"seen: {agent.log}")
    assert not ended(pid)
    assert "-" not in agent.calls
    agent.signal(signal.SIGCONT)
    assert agent.result(held).code == PROMOTED
    assert not ended(pid)


def test_a_backup_that_hangs_until_the_end_is_killed(agent: Agent) -> None:
    agent("start")
    held = agent.held(timeout=SHORT)
    pid = agent.pid
    agent.signal(signal.SIGSTOP)
    assert agent.result(held).code == NOT_RUNNING
    assert ended(pid)


def test_a_hung_backup_is_killed_soon_if_a_primary_answers(make_agent: Callable[..., Agent]) -> None:
    """That one holds all that it does; else its hang may be everybody's, and it may be the last copy."""
    first, second = make_agent("first"), make_agent("second")
    for agent, other in ((first, second), (second, first)):
        agent.parameters["options"] = agent.options(other.address, safety="availability")
        agent("start")
    held, pid = second.held(timeout=HOUR), second.pid
    second.signal(signal.SIGSTOP)
    wait_for(lambda: "is silent" in second.log, TIME, "it is noticed")
    begin = time.monotonic()
    wait_for(lambda: time.monotonic() > begin + 2, TIME, "two more looks at the others")
    assert held.poll() is None, "there is no primary"
    first("promote")
    found = second.result(held)
    assert (found.code, "hangs" in found.reason) == (NOT_RUNNING, True)
    assert ended(pid) and "(unpromoted) hangs" in found.reason


@pytest.mark.parametrize("members", ["", "no port", "ssl:127.0.0.1:1,[::1]:1", ":::,x:y:z, ,127.0.0.1:99999"])
def test_nonsense_in_the_list_of_members_kills_no_backup(agent: Agent, members: str) -> None:
    from qpidd_agent.others import primary_elsewhere
    from qpidd_agent.parameters import Parameters

    option = f"--ha-brokers-url={shlex.quote(members)}"
    parameters = Parameters({"OCF_RESKEY_config": "/nonexistent", "OCF_RESKEY_options": option})
    assert parameters.brokers == members and not primary_elsewhere(parameters)


def test_the_death_of_a_primary_is_called_so_whichever_monitor_reports_it(primary: Agent) -> None:
    """Pacemaker ends the promoted monitor in favour of the demotion."""
    primary.signal(signal.SIGKILL)
    wait_for(lambda: not primary.alive, TIME, "the broker has ended")
    assert primary("demote").code == SUCCESS
    assert "the primary has failed: process" in primary("monitor", interval=300).reason
    primary("stop")
    primary("start")
    primary.signal(signal.SIGKILL)
    wait_for(lambda: not primary.alive, TIME, "the broker has ended")
    assert "the primary" not in primary("monitor", interval=300).reason


def test_a_new_role_is_told_at_once(agent: Agent) -> None:
    """Whatever changed it: what Pacemaker believes is wrong."""
    agent("start")
    held = agent.held(timeout=HOUR)
    agent.tool("promote", "--cluster-manager")
    assert agent.result(held).code == PROMOTED
    held = agent.held(timeout=HOUR)
    agent.tool("demote", "--cluster-manager")
    assert agent.result(held).code == SUCCESS


def test_a_monitor_that_was_ended_leaves_nothing_that_matters(primary: Agent) -> None:
    """Pacemaker ends it when it has other plans.  The next one begins a new series."""
    held = primary.held(timeout=HOUR)
    os.killpg(held.pid, signal.SIGKILL)
    held.communicate()
    assert primary("monitor", interval=200, timeout=HOUR).code == PROMOTED  # not held
    assert primary.result(primary.held(timeout=SHORT)).code == PROMOTED
    assert primary("stop").code == SUCCESS
    assert list(primary.rsctmp.iterdir()) == []


def test_who_cannot_hear_the_beats_asks(primary: Agent) -> None:
    """Another listener has taken the socket: the broker answers on its port, and is not killed for its silence."""
    held = primary.held(timeout=SHORT)
    path = primary.rsctmp / "qpidd-broker.notify"
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        assert primary.result(held).code == PROMOTED
    assert primary.alive


def test_no_other_process_can_beat_for_a_broker(primary: Agent) -> None:
    """The kernel says who has sent."""
    held = primary.held(timeout=HOUR)
    pid = primary.pid
    primary.signal(signal.SIGSTOP)
    code = (
        "import socket, sys, time\n"
        "sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "while True:\n"
        "    sock.sendto(b'WATCHDOG=1\\nX_QPID_STATE=active\\n', sys.argv[1])\n"
        "    time.sleep(0.05)\n"
    )
    command = [sys.executable, "-c", code, str(primary.rsctmp / "qpidd-broker.notify")]
    liar = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        assert primary.result(held).code == NOT_RUNNING
    finally:
        liar.kill()
        liar.wait()
    assert ended(pid)


def test_a_broker_that_somebody_else_has_started(agent: Agent, tmp_path: Path) -> None:
    """It does not beat for us: its death is noticed at once, the rest by asking."""
    with BrokerProcess(
        tmp_path, *str(agent.parameters["options"]).split()[2:], name="other", port=agent.port
    ) as broker:
        agent.parameters["data_dir"] = str(broker.data_dir)
        for _ in range(2):
            assert agent("monitor", interval=200, timeout=HOUR).code == SUCCESS
        held = agent.spawn("monitor", interval=200, timeout=HOUR)
        broker.kill()
        assert agent.result(held).code == NOT_RUNNING


def test_only_the_broker_may_write_to_the_socket(primary: Agent) -> None:
    held = primary.held()
    found = (primary.rsctmp / "qpidd-broker.notify").stat()
    assert found.st_mode & 0o777 == 0o660 and found.st_gid == os.stat(f"/proc/{primary.pid}").st_gid
    assert held.poll() is None
