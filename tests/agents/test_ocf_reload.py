"""Parameters of the resource that change while a broker runs: it goes on, and so do the monitors."""

import os
import signal
from pathlib import Path

import pytest

from tests.agents.ocf import TIME, Agent, write_program
from tests.support.wait import wait_for, wait_logged

SUCCESS, NOT_RUNNING, PROMOTED = 0, 7, 8


@pytest.fixture
def primary(agent: Agent) -> Agent:
    assert agent("start").code == SUCCESS
    assert agent("promote").code == SUCCESS
    return agent


CHANGES: list[dict[str, str]] = [
    {"heartbeat": "2s"},
    {"heartbeat": "soon"},
    {"port": "abc"},
    {"port": "1"},
    {"data_dir": "/nonexistent/elsewhere"},
    {"user": "nobody-of-this-name"},
    {"config": "/nonexistent.conf"},
    {"binary": "/nonexistent/qpidd"},
    {"options": "--no-such-option 1"},
    {"options": "--broker-name 'half"},
]


def test_a_changed_parameter_stops_nothing_even_if_it_is_wrong(primary: Agent) -> None:
    """A failure of all instances makes Pacemaker restart all of them, and nobody keeps the messages."""
    pid, before = primary.pid, dict(primary.parameters)
    for changed in CHANGES:
        primary.parameters = {**before, **changed}
        found = {action: primary(action).code for action in ("reload-agent", "monitor", "demote", "promote")}
        assert found == {"reload-agent": SUCCESS, "monitor": PROMOTED, "demote": SUCCESS, "promote": SUCCESS}, changed
        assert primary("monitor", interval=200).code == PROMOTED, changed
    assert primary.pid == pid and primary.alive
    assert primary("stop").code == SUCCESS, "it is found where it is"
    assert not primary.alive
    primary.parameters = before
    assert primary("monitor").code == NOT_RUNNING


def test_the_next_start_takes_the_new_parameters(primary: Agent, tmp_path: Path) -> None:
    primary.parameters |= {"data_dir": str(tmp_path / "new")}
    assert primary("reload-agent").code == SUCCESS
    assert primary("stop").code == SUCCESS
    assert primary("start").code == SUCCESS
    assert (tmp_path / "new" / "lock").exists()
    assert primary("monitor").code == SUCCESS


def test_a_changed_configuration_file_is_read(agent: Agent, tmp_path: Path) -> None:
    """The login of the file counts for the agent from the next start, as for the broker."""
    file = tmp_path / "qpidd.conf"
    text = f"port={agent.port}\nha-username=ha\nha-password=secret\nlog-enable=notice+\n"
    file.write_text(text)
    agent.parameters |= {"config": str(file), "port": None}
    assert agent("start").code == SUCCESS
    assert agent("promote").code == SUCCESS
    file.write_text(text.replace("secret", "changed"))
    assert agent("reload-agent").code == SUCCESS
    wait_for(lambda: "SIGHUP" in (tmp_path / "broker.log").read_text(), TIME, "it has read the file")
    assert agent("monitor").code == PROMOTED


def test_a_refused_change_is_logged(primary: Agent) -> None:
    primary.parameters["options"] = "--no-such-option 1"
    assert primary("reload-agent").code == SUCCESS
    wait_logged(primary, "no-such-option", "the next start will fail")


def test_a_login_is_kept_from_other_users(primary: Agent) -> None:
    assert (primary.rsctmp / "qpidd-broker.started").stat().st_mode & 0o777 == 0o600


# ---- Pacemaker calls no `reload-agent` on a node whose last action was a demote


READS = "reads its configuration"
MISSED = "changed, and not reloaded by Pacemaker: "


def monitors(agent: Agent, times: int = 3) -> None:
    """A series without the held ones: each is the first."""
    for _ in range(times):
        for marker in agent.rsctmp.glob("*.monitor-*"):
            marker.unlink()
        assert agent("monitor", interval=300).code == PROMOTED


def test_a_monitor_applies_what_was_not_reloaded_once(primary: Agent, tmp_path: Path) -> None:
    monitors(primary)
    assert MISSED not in primary.log, "nothing has changed"
    primary.parameters |= {"heartbeat": "2s", "options": f"{primary.parameters['options']} --broker-name other"}
    pid = primary.pid
    monitors(primary)
    assert primary.log.count(f"{MISSED}heartbeat, options") == primary.log.count(READS) == 1
    wait_for(lambda: "SIGHUP" in (tmp_path / "broker.log").read_text(), TIME, "it has read the file")
    assert primary.pid == pid
    del primary.parameters["heartbeat"]
    monitors(primary)
    assert primary.log.count(f"{MISSED}heartbeat\n") == 1, "back again is a change, too"


def test_a_held_monitor_ends_with_the_change_and_the_next_is_held(primary: Agent) -> None:
    """The first one of the new series applies it, though the marker of the old one may still be there."""
    assert primary("monitor", interval=300).code == PROMOTED
    primary.parameters["heartbeat"] = "2s"
    assert primary("monitor", interval=300).code == PROMOTED, "it is not held after the checks"
    wait_logged(primary, READS)
    assert primary.held(interval=300).poll() is None


def test_after_reload_agent_no_monitor_does_it_again(primary: Agent) -> None:
    primary.parameters["heartbeat"] = "2s"
    assert primary("reload-agent").code == SUCCESS
    monitors(primary)
    assert MISSED not in primary.log and primary.log.count(READS) == 1


def test_a_refused_change_is_said_once_and_fails_no_monitor(primary: Agent) -> None:
    primary.parameters["options"] = "--no-such-option 1"
    monitors(primary)
    assert primary.log.count("the next start will fail") == 1
    assert READS not in primary.log and primary.alive


def test_a_check_that_hangs_fails_no_monitor(primary: Agent, tmp_path: Path) -> None:
    write_program(tmp_path / "bin" / "qpidd", "exec sleep 3600")
    primary.parameters["heartbeat"] = "2s"
    assert primary("monitor", interval=300, timeout=6000).code == PROMOTED
    wait_logged(primary, "changed parameters are not checked")
    monitors(primary, 1)
    assert primary.log.count(READS) == 1


def test_a_probe_and_a_start_apply_nothing(primary: Agent) -> None:
    primary.parameters["heartbeat"] = "2s"
    assert primary("monitor").code == PROMOTED
    assert READS not in primary.log
    assert primary("stop").code == SUCCESS
    assert not list(primary.rsctmp.glob("*applied*"))
    assert primary("start").code == SUCCESS
    assert primary("monitor", interval=300).code == SUCCESS
    assert MISSED not in primary.log, "it was started with this"


def test_a_monitor_of_a_stopped_broker_applies_nothing(agent: Agent) -> None:
    agent.parameters["options"] = "--no-such-option 1"
    assert agent("monitor", interval=300).code == NOT_RUNNING
    assert not agent.rsctmp.joinpath("qpidd-broker.applied").exists()


def test_without_a_note_the_parameters_of_now_are_taken_for_applied(primary: Agent) -> None:
    """An earlier version of the agent has started the broker, and was replaced while it runs."""
    note = primary.rsctmp / "qpidd-broker.applied"
    note.unlink()
    primary.parameters["heartbeat"] = "2s"
    monitors(primary, 1)
    assert MISSED not in primary.log and note.stat().st_mode & 0o777 == 0o600
    primary.parameters["heartbeat"] = "3s"
    monitors(primary)
    assert primary.log.count(MISSED) == 1


def test_a_note_that_cannot_be_written_stops_the_change_and_no_monitor(primary: Agent) -> None:
    """Otherwise each monitor would begin again.  When there is room, it is done."""
    blocked = primary.rsctmp / "qpidd-broker.applied-next"
    blocked.mkdir()
    primary.parameters["heartbeat"] = "2s"
    monitors(primary)
    wait_logged(primary, "changed parameters are not applied (heartbeat)")
    assert READS not in primary.log
    assert primary.held(interval=300).poll() is None, "it is held as ever"
    blocked.rmdir()
    monitors(primary)
    assert primary.log.count(READS) == 1


@pytest.mark.parametrize("name", ["applied", "applied-next"])
def test_a_note_that_cannot_be_read_fails_nothing(primary: Agent, name: str) -> None:
    path = primary.rsctmp / f"qpidd-broker.{name}"
    path.unlink(missing_ok=True)
    path.mkdir()
    primary.parameters["heartbeat"] = "2s"
    assert primary("reload-agent").code == SUCCESS
    monitors(primary)
    assert primary("stop").code == SUCCESS


def test_an_interrupted_monitor_leaves_the_change_to_the_next(primary: Agent, tmp_path: Path) -> None:
    """Pacemaker ends it and its children by SIGKILL, for a promote."""
    program = tmp_path / "bin" / "qpidd"
    before, began = program.read_text(), tmp_path / "began"
    write_program(program, f"touch {began}; exec sleep 3600")
    primary.parameters["heartbeat"] = "2s"
    monitor = primary.spawn("monitor", interval=300)
    wait_for(began.exists, TIME, "the checks have begun")
    os.killpg(monitor.pid, signal.SIGKILL)
    program.write_text(before)
    monitors(primary)
    assert primary.log.count(READS) == 1


def test_many_calls_at_once_fail_nothing(primary: Agent) -> None:
    primary.parameters["heartbeat"] = "2s"
    calls = [primary.spawn("monitor", interval=interval) for interval in (200, 300, 400)]
    calls.append(primary.spawn("reload-agent"))
    assert [primary.result(call).code for call in calls] == [PROMOTED, PROMOTED, PROMOTED, SUCCESS]
    seen = primary.log.count(READS)
    monitors(primary)
    assert primary.log.count(READS) == seen


def test_a_full_disk_delays_the_change(primary: Agent) -> None:
    full = primary.rsctmp / "qpidd-broker.applied-next"
    full.symlink_to("/dev/full")
    primary.parameters["heartbeat"] = "2s"
    monitors(primary)
    assert READS not in primary.log
    full.unlink()
    monitors(primary)
    assert primary.log.count(READS) == 1
