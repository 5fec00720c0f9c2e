"""The agent imports nothing of ours, so tests see to it that both speak the same words; and its metadata is valid."""

import json
import os
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from qpidd_agent import process, score
from qpidd_agent.actions import ACTIONS
from qpidd_agent.beats import BEATS_IN_SILENCE
from qpidd_agent.ear import HEADER
from qpidd_agent.metadata import metadata
from qpidd_agent.ocf import Failure, Operation
from qpidd_agent.parameters import DEFAULTS, Parameters
from qpidd_agent.tool import ask_standing, request

from ha.model.settings import HaSettings
from ha.model.status import EXPECTATIONS, RECOVERING_JOURNAL, State
from ha.qpid_ha.parser import COMMANDS
from qpidd_py import doorman
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.amqp.management_client import ManagementClient
from qpidd_py.config import GROUPS
from qpidd_py.options import option_name
from qpidd_py.process import lock_path
from qpidd_py.server import notify
from tests.agents.ocf import ROOT, SCRIPT, Agent
from tests.support.system import needs

SCHEMA = "/usr/share/pcs/data/ocf-1.1.rng"
DTD = Path("/usr/share/resource-agents/ra-api-1.dtd")


# ---- words and exit codes


def test_states() -> None:
    words = {RECOVERING_JOURNAL, *(state.value for state in State)}
    assert set(score.CODES) == words == set(score.BY_STATE)
    assert EXPECTATIONS["primary"] == score.PRIMARY
    assert EXPECTATIONS["backup"] == score.BACKUP
    assert State.STANDALONE.value == score.STANDALONE
    assert score.RECOVERING_JOURNAL == RECOVERING_JOURNAL == doorman.RECOVERING_JOURNAL
    assert score.score(RECOVERING_JOURNAL, "") == "", "it is not promoted, and may be as soon as it has a score"


def test_the_agent_asks_as_the_tool_does(agent: Agent) -> None:
    """The agent saves an interpreter by asking itself; answers and refusals are those that `qpid-ha` prints."""
    agent("start")
    parameters, operation = Parameters(agent.environment()), Operation("monitor", {})
    tool = json.loads(agent.tool("status", "--json"))
    found = ask_standing(parameters, operation)
    assert (found.state, found.score) == (tool["status"], str(tool["score"]))
    assert {"promote", "demote"} == {name for name, command in COMMANDS.items() if command.manager}
    with pytest.raises(Failure, match="unknown method"):
        request(parameters, operation, "ha.nonsense")


def test_a_login_that_is_not_taken(agent: Agent) -> None:
    agent("start")
    parameters = Parameters(agent.environment())
    parameters.login = ("guest", "wrong")
    with pytest.raises(Failure, match="403 ACCESS_REFUSED"):
        request(parameters, Operation("monitor", {}), "ha.status")


def test_only_who_may_steer_steers(agent: Agent) -> None:
    """The configuration file has the login; without it there is a refusal, as for everybody else."""
    file = agent.directory / "qpidd.conf"
    file.write_text("ha-username=boss\nha-password=secret\n")
    agent.parameters |= {"config": str(file)}
    assert agent("start").code == 0
    assert agent("promote").code == 0
    assert agent("monitor").code == 8
    parameters = Parameters(agent.environment())
    parameters.login = ("guest", "guest")
    with pytest.raises(Failure):
        request(parameters, Operation("demote", {}), "ha.demote")


def test_options_of_the_broker() -> None:
    import dataclasses

    known = {option_name(item.name) for group in (*GROUPS, HaSettings) for item in dataclasses.fields(group)}
    assert {"daemon", "wait", "data-dir", "port", "check", "interface", "ha-username"} <= known


def test_lock_and_beats() -> None:
    assert lock_path(Path("/data")).name == Path(agent_lock("/data")).name
    assert notify.BEATS == BEATS_IN_SILENCE
    assert ManagementClient(Login()).take_output().startswith(HEADER)


def agent_lock(data_dir: str) -> str:
    return Parameters({"OCF_RESKEY_data_dir": data_dir, "OCF_RESKEY_config": "/nonexistent"}).lock


def test_every_answer_of_the_tool_has_state_and_score(agent: Agent) -> None:
    agent("start")
    found = json.loads(agent.tool("status", "--json"))
    assert found["status"] in score.CODES
    assert found["score"] is None or isinstance(found["score"], int)


def test_a_refusal_is_one_line_on_standard_output(agent: Agent) -> None:
    """With exit code 1: the line becomes the exit reason."""
    agent.parameters["options"] = agent.options("127.0.0.1:1", "127.0.0.1:2", safety="quorum")
    agent("start")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        agent.tool("promote", "--cluster-manager")
    assert refused.value.returncode == 1
    assert refused.value.output.startswith("RequestRefused: ")
    assert len(refused.value.output.splitlines()) == 1


# ---- the program itself


def test_the_script_is_a_program_of_the_systems_python() -> None:
    assert SCRIPT.stat().st_mode & stat.S_IXUSR
    assert SCRIPT.read_text().splitlines()[0] == "#!/usr/bin/python3 -IS"


def test_it_loads_nothing_that_is_slow() -> None:
    """A monitor is called all the time; neither these nor anything of ours may creep in."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import qpidd_agent.actions; print(*sys.modules)"
    command = [sys.executable, "-IS", "-c", code, str(SCRIPT.parent)]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    slow = {"typing", "re", "enum", "json", "subprocess", "socket", "signal", "logging", "asyncio", "dataclasses"}
    assert not loaded & slow
    assert not {name for name in loaded if name.partition(".")[0] in ("qpidd_py", "ha", "client_lib")}


def test_no_time_limit_of_its_own() -> None:
    """What waits gets its time from Pacemaker; `LOOK` is how often a stop looks for a refusal.  `limit` is what is left
    until a deadline, and deadlines are parts of Pacemaker's timeout."""
    sources = "".join(path.read_text() for path in sorted((SCRIPT.parent / "qpidd_agent").glob("*.py")))
    assert "sleep(" not in sources.replace("_watch.sleep(", "").replace("def sleep(", "")
    assert "timeout=" not in sources.replace('timeout="', "").replace("timeout=limit,", "")
    assert process.LOOK < 0.1


# ---- metadata


def test_metadata_names_every_parameter_with_its_default() -> None:
    tree = ElementTree.fromstring(metadata())
    found = {item.attrib["name"]: item.find("content").attrib.get("default", "") for item in tree.iter("parameter")}
    assert found == DEFAULTS


def test_metadata_names_every_action() -> None:
    tree = ElementTree.fromstring(metadata())
    named = {item.attrib["name"] for item in tree.iter("action")}
    assert named == {*ACTIONS, "meta-data"}
    roles = {item.attrib["role"] for item in tree.iter("action") if item.attrib["name"] == "monitor"}
    assert roles == {"Promoted", "Unpromoted"}


def lint(*options: str, directory: Path) -> subprocess.CompletedProcess[str]:
    file = directory / "metadata.xml"
    file.write_text(subprocess.run([SCRIPT, "meta-data"], capture_output=True, text=True, check=True).stdout)
    command = ["xmllint", "--noout", "--nonet", *options, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs("xmllint", str(DTD))
def test_metadata_is_valid_by_the_dtd(tmp_path: Path) -> None:
    done = lint("--path", str(DTD.parent), "--valid", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@needs("xmllint", SCHEMA)
def test_metadata_is_valid_by_the_schema(tmp_path: Path) -> None:
    done = lint("--path", str(DTD.parent), "--relaxng", SCHEMA, directory=tmp_path)
    assert done.returncode == 0, done.stderr


@needs("xmllint", SCHEMA)
def test_the_check_of_the_metadata_finds_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "broken.xml"
    file.write_text(metadata().replace('reloadable="1"', 'reloadable="maybe"'))
    command = ["xmllint", "--noout", "--nonet", "--relaxng", SCHEMA, str(file)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_a_changed_parameter_is_no_reason_to_restart_all_brokers() -> None:
    """Else Pacemaker restarts all instances at the same time."""
    tree = ElementTree.fromstring(metadata())
    assert tree.findtext("version") == "1.1", "older agents have another action, and other attributes"
    assert {item.attrib.get("reloadable") for item in tree.iter("parameter")} == {"1"}
    assert "reload-agent" in {item.attrib["name"] for item in tree.iter("action")}


def test_it_is_found_next_to_the_script_and_where_it_is_installed(tmp_path: Path) -> None:
    """As the Makefile installs it: the script in resource.d, the package in lib."""
    script, package = tmp_path / "resource.d" / "qpid" / "qpidd", tmp_path / "lib" / "qpid" / "agent"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    shutil.copytree(ROOT / "resource_agents" / "ocf" / "qpidd_agent", package / "qpidd_agent")
    environment = {**os.environ, "OCF_ROOT": str(tmp_path)}
    done = subprocess.run([script, "meta-data"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == metadata() + "\n"
