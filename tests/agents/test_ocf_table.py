"""Environment, action, exit code: what Pacemaker is told in each situation."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.ocf import SCRIPT, TIME, Agent, ended, write_program
from tests.support import guard
from tests.support.wait import wait_for, wait_logged

SUCCESS, GENERIC, ARGS, UNIMPLEMENTED, PERM, INSTALLED, CONFIGURED, NOT_RUNNING, PROMOTED, FAILED_PROMOTED = range(10)


# ---- wrong parameters: nothing runs


@pytest.mark.parametrize(
    ("parameters", "code", "reason"),
    [
        ({"binary": "/nonexistent/qpidd"}, INSTALLED, "/nonexistent/qpidd is missing"),
        ({"user": "nobody-of-this-name"}, INSTALLED, "user nobody-of-this-name does not exist"),
        ({"config": "/nonexistent.conf"}, INSTALLED, "configuration file /nonexistent.conf is missing"),
        ({"port": "abc"}, CONFIGURED, "parameter port: found 'abc'"),
        ({"port": "0"}, CONFIGURED, "parameter port: found '0'"),
        ({"port": "70000"}, CONFIGURED, "parameter port: found '70000'"),
        ({"data_dir": "relative"}, CONFIGURED, "parameter data_dir: found 'relative'"),
        ({"heartbeat": "soon"}, CONFIGURED, "parameter heartbeat: found 'soon'"),
        ({"options": "--broker-name 'half"}, CONFIGURED, "parameter options"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_parameters(agent: Agent, parameters: dict[str, str], code: int, reason: str) -> None:
    agent.parameters |= parameters
    for action in ("validate-all", "start", "monitor"):
        found = agent(action)
        assert (found.code, reason in found.reason) == (code, True), (action, found)
    assert agent("stop").code == SUCCESS  # a stop that fails means that the node is fenced
    assert not agent.alive


def test_validate_asks_the_broker_for_its_settings(agent: Agent) -> None:
    assert agent("validate-all").code == SUCCESS
    agent.parameters["options"] = "--no-such-option 1"
    found = agent("validate-all")
    assert (found.code, "no-such-option" in found.reason) == (ARGS, True), found


def test_options_that_the_broker_refuses_are_wrong_arguments_in_start_too(agent: Agent) -> None:
    agent.parameters["options"] = "--no-such-option 1"
    found = agent("start")
    assert (found.code, "no-such-option" in found.reason) == (ARGS, True), found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a broker of another user")
@pytest.mark.parametrize("what", ["read", "write to"])
def test_files_that_the_user_cannot_use(agent: Agent, tmp_path: Path, what: str) -> None:
    """Root can read them all: it is tested as the broker's user."""
    file, data = tmp_path / "qpidd.conf", tmp_path / "closed"
    file.write_text("log-enable=notice+\n")
    data.mkdir()
    file.chmod(0o600 if what == "read" else 0o644)
    for place in (tmp_path, *tmp_path.parents[:3]):
        if place.stat().st_mode & 0o001 == 0:
            place.chmod(0o711)
    agent.parameters |= {"user": "nobody", "config": str(file), "data_dir": str(data)}
    for action in ("validate-all", "start"):
        found = agent(action)
        assert (found.code, f"user nobody cannot {what}" in found.reason) == (PERM, True), (action, found)


def test_a_broker_that_stands_alone_is_not_promoted(agent: Agent) -> None:
    """Pacemaker would promote it again and again, since its monitors find no primary."""
    agent.parameters["options"] = "--interface 127.0.0.1"
    assert agent("start").code == SUCCESS
    found = agent("promote")
    assert (found.code, "the broker stands alone" in found.reason) == (GENERIC, True), found


def test_wrong_usage(agent: Agent) -> None:
    assert agent("make-coffee").code == UNIMPLEMENTED
    assert subprocess.run([sys.executable, "-IS", str(SCRIPT)], capture_output=True, check=False).returncode == ARGS
    assert agent("usage").code == SUCCESS


# ---- the life of a broker


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("monitor", NOT_RUNNING),
        ("stop", SUCCESS),
        ("demote", SUCCESS),
        ("promote", NOT_RUNNING),
        ("notify", SUCCESS),
        ("reload-agent", NOT_RUNNING),
        ("validate-all", SUCCESS),
    ],
)
def test_stopped(agent: Agent, action: str, code: int) -> None:
    assert agent(action).code == code


def test_the_whole_life(agent: Agent) -> None:
    """start, promote, demote, stop, each twice: they are idempotent, and a monitor tells where we are."""
    for action, code in (("start", SUCCESS), ("promote", PROMOTED), ("demote", SUCCESS), ("stop", NOT_RUNNING)):
        for _ in range(2):
            assert agent(action).code == SUCCESS, action
            assert agent("monitor").code == code, action
            assert agent("notify").code == SUCCESS
    assert not (agent.data_dir / "lock").exists()
    assert list(agent.rsctmp.iterdir()) == []


def may_lower_oom_score() -> bool:
    return subprocess.run(["sh", "-c", "echo -500 >/proc/self/oom_score_adj"], stderr=-3, check=False).returncode == 0


@pytest.mark.skipif(not may_lower_oom_score(), reason="needs the right to lower oom_score_adj")
def test_memory_pressure_takes_other_processes_first(agent: Agent) -> None:
    agent("start")
    assert int(Path(f"/proc/{agent.pid}/oom_score_adj").read_text()) == -500


def test_start_never_promotes(agent: Agent) -> None:
    agent("start")
    assert agent.tool("status") == "joining"


def test_a_crash_leaves_nothing_that_hinders(agent: Agent) -> None:
    agent("start")
    agent.signal(signal.SIGKILL)
    wait_for(lambda: not agent.alive, TIME, "the broker has ended")
    assert agent("monitor").code == NOT_RUNNING
    assert agent("demote").code == SUCCESS
    assert agent("promote").code == NOT_RUNNING
    assert agent("start").code == SUCCESS
    assert agent("monitor").code == SUCCESS


# ---- a broker that is ill


def test_hung(agent: Agent) -> None:
    """Asking it would take half of Pacemaker's time; that it is stopped can be seen."""
    agent("start")
    agent.signal(signal.SIGSTOP)
    for action in ("monitor", "promote", "demote"):
        found = agent(action)
        assert (found.code, "stopped by a signal" in found.reason) == (GENERIC, True), (action, found)
    pid = agent.pid
    assert agent("stop").code == SUCCESS
    assert ended(pid)
    wait_logged(agent, "it hangs")


def test_hung_primary(agent: Agent) -> None:
    """That it was promoted is known from the monitor before."""
    agent("start")
    agent("promote")
    assert agent("monitor", interval=200).code == PROMOTED
    agent.signal(signal.SIGSTOP)
    (agent.rsctmp / "qpidd-broker.monitor-0.2").write_text(f"{agent.pid} 8 0 {time.monotonic()}")
    assert agent("monitor", interval=200, notify="true").code == FAILED_PROMOTED


@contextmanager
def impostor(agent: Agent, *, deaf: bool = False, environment: dict[str, str] | None = None) -> Iterator[int]:
    """A process that holds the lock, but answers no client; `deaf`: SIGTERM does not end it either."""
    agent.data_dir.mkdir(exist_ok=True)
    code = (
        "import fcntl, os, signal, sys\n"
        f"{'signal.signal(signal.SIGTERM, signal.SIG_IGN)' if deaf else ''}\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(os.getpid(), file=file, flush=True)\n"
        "print('locked', flush=True)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-c", code, str(agent.data_dir / "lock")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_half_started(agent: Agent) -> None:
    with impostor(agent) as pid:
        for action in ("monitor", "start", "promote"):
            found = agent(action)
            assert (found.code, "ConnectionRefusedError" in found.reason) == (GENERIC, True), (action, found)
        assert agent("stop").code == SUCCESS
        assert ended(pid)


def test_stop_ends_a_broker_that_does_not_beat(agent: Agent) -> None:
    """It was started so that it beats, and is silent: no monitor waits for half of Pacemaker's time, an hour here."""
    variables = {"NOTIFY_SOCKET": str(agent.rsctmp / "qpidd-broker.notify"), "WATCHDOG_USEC": "200000"}
    with impostor(agent, deaf=True, environment=variables) as pid:
        assert agent("stop", timeout=7_200_000).code == SUCCESS
        assert ended(pid)
    wait_logged(agent, "it hangs")


def test_stop_ends_a_broker_of_somebody_else_when_half_of_the_time_is_over(agent: Agent) -> None:
    with impostor(agent, deaf=True) as pid:
        assert agent("stop", timeout=1000).code == SUCCESS
        assert ended(pid)
    wait_logged(agent, "within 0.5 s, half of the time")


def test_of_another_user(agent: Agent) -> None:
    agent("start")
    (agent.rsctmp / "qpidd-broker.started").unlink()  # somebody else has started it
    agent.parameters["user"] = "nobody"
    for action in ("monitor", "start"):
        found = agent(action)
        assert (found.code, "(nobody)" in found.reason) == (GENERIC, True), (action, found)
    assert agent("stop").code == SUCCESS
    assert agent("monitor").code == NOT_RUNNING


def test_port_taken(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", agent.port)):
        found = agent("start")
    assert (found.code, "in use" in found.reason) == (GENERIC, True), found
    assert agent("monitor").code == NOT_RUNNING


def test_lock_without_a_process(agent: Agent) -> None:
    """A file with a pid that somebody else has now is no broker; nor is one that another program locks for a moment."""
    agent.data_dir.mkdir()
    (agent.data_dir / "lock").write_text(f"{os.getpid()}\n")
    assert agent("monitor").code == NOT_RUNNING
    assert agent("stop").code == SUCCESS
    with open(agent.data_dir / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert agent("monitor").code == NOT_RUNNING


# ---- promotion that is refused, a stop that is refused


def test_a_refused_promotion_is_told_with_its_reason(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent("a")
    agent.parameters["options"] = agent.options("127.0.0.1:1", "127.0.0.1:2", safety="quorum")
    agent("start")
    found = agent("promote")
    assert found.code == GENERIC
    assert found.reason.startswith("promote: not promoted: ")
    wait_logged(agent, found.reason.removeprefix("promote: "))
    assert agent("monitor").code == SUCCESS


def test_a_stop_is_told_twice_to_the_last_primary(agent: Agent) -> None:
    """Pacemaker's order counts for more than the broker's caution; what is lost is in the log."""
    agent.parameters["options"] = agent.options("127.0.0.1:1", safety="availability")
    agent("start")
    assert agent("promote").code == SUCCESS
    command = [sys.executable, "-m", "qpidd_py.cli.qpid_config", "-b", agent.address, "add", "queue", "orders"]
    subprocess.run(command, check=True, timeout=TIME, capture_output=True)
    pid = agent.pid
    assert agent("stop").code == SUCCESS
    assert ended(pid)
    wait_logged(agent, "refuses to stop, and is told again")
    assert "SIGKILL" not in agent.log


# ---- as whom, with what


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a broker is started as another user")
def test_the_broker_gets_its_user_and_its_environment(agent: Agent) -> None:
    """A false broker writes down who it is and what it was given."""
    report = agent.data_dir / "report"
    line = f"case $* in *--daemon*) id -un >{report}; id -gn >>{report}; pwd >>{report}; env >>{report};; esac; exit 1"
    write_program(agent.directory / "bin" / "qpidd", line)
    for folder in (agent.directory, *agent.directory.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)  # so that no other user gets to it
    agent.parameters["user"] = "nobody"
    agent("start")
    user, _, directory, *variables = report.read_text().splitlines()
    names = {variable.partition("=")[0] for variable in variables}
    assert (user, directory) == ("nobody", "/")
    assert {"HOME", "PATH", "NOTIFY_SOCKET", "WATCHDOG_USEC"} <= names
    assert not {name for name in names if name.startswith(("OCF_", "HA_"))}
    assert agent.data_dir.owner() == "nobody"


def test_settings_come_from_the_file_when_parameters_are_silent(agent: Agent) -> None:
    file = agent.directory / "qpidd.conf"
    file.write_text(f"# port=1\nport={agent.port}\ninterface=127.0.0.1\ndata-dir={agent.data_dir}\n")
    agent.parameters |= {"config": str(file), "port": None, "data_dir": None, "options": None}
    assert agent("start").code == SUCCESS
    assert agent.alive
    assert agent("monitor").code == SUCCESS
    assert agent("stop").code == SUCCESS


def test_a_broker_belongs_to_the_test_run_that_started_it(agent: Agent) -> None:
    """The guard ends it when the run is killed."""
    agent("start")
    assert all(agent.pid in guard.members(run) for run in os.environ[guard.VARIABLE].split())
