"""Parameters of the resource that change while a broker runs: it goes on, and so do the monitors."""

from pathlib import Path

import pytest

from tests.agents.ocf import TIME, Agent
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
