"""A broker that reads a deep journal: the agent lets it."""

import subprocess
import sys
from pathlib import Path

import pika

from tests.agents.ocf import ROOT, TIME, Agent, write_program
from tests.support.certificates import Authority, needs_openssl
from tests.support.process import HeldPort
from tests.support.wait import wait_for, wait_logged

SOURCE = ROOT / "tests" / "acceptance" / "disk_faults.c"


def reading_slowly(agent: Agent) -> Path:
    """While the file `hold-read` is in the folder, a broker does not come further with its journal."""
    library, faults = agent.directory / "faults.so", agent.directory / "faults"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    faults.mkdir()
    line = f'LD_PRELOAD={library} FAULTS={faults} exec {sys.executable} -m qpidd_py "$@"'
    write_program(agent.directory / "bin" / "qpidd", line)
    return faults / "hold-read"


def test_a_broker_that_reads_its_journal_has_started(agent: Agent) -> None:
    hold = reading_slowly(agent)
    agent.parameters["options"] = f"{agent.options()} --journal yes --journal-segment-size 1M"
    assert agent("start").code == 0
    assert agent("promote").code == 0
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", agent.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", b"1", pika.BasicProperties(delivery_mode=2))
    assert agent("stop").code == 0

    hold.touch()
    assert agent("start", timeout=8000).code == 0, agent.log
    wait_logged(agent, "the daemon runs, and is not ready yet: check the journal")
    assert agent.tool("status") == "recovering-journal"
    assert agent("monitor").code == 0
    assert agent("monitor", interval=10_000).code == 0
    assert agent.calls[-1] == "-", "it has no score, so it is not promoted"
    promoted = agent("promote")
    assert (promoted.code, "recovering-journal" in promoted.reason) == (1, True), promoted
    assert agent("demote").code == 0
    assert agent("start").code == 0
    wait_logged(agent, "runs already")

    held = agent.held(timeout=20_000)
    hold.unlink()
    wait_for(lambda: agent.tool("status") == "joining", TIME, "the journal is read")
    wait_for(lambda: agent.calls[-1].isdigit(), TIME, lambda: f"a score: {agent.calls}")
    assert agent.result(held).code == 0
    assert agent("promote").code == 0
    assert agent("stop").code == 0


@needs_openssl
def test_a_broker_that_reads_its_journal_knows_the_agents_certificate(tmp_path: Path) -> None:
    """Its authority is that of the brokers, not that of the clients."""
    authority, held = Authority(tmp_path / "authority"), HeldPort()
    lines = ["require-encryption=yes", f"ssl-port={held.port}", f"ha-ssl-ca={authority.file}", "ha-username=qpid-ha"]
    lines += [f"ssl-cert={authority.certificate('qpid-ha')}", "ha-cluster=yes", "ha-safety=manager", "ha-registry=none"]
    lines += ["interface=127.0.0.1", f"ha-brokers-url=ssl:127.0.0.1:{held.port}", "log-to-stderr=no"]
    lines += ["ha-mechanism=EXTERNAL", "journal=yes", "journal-segment-size=1M"]
    config = tmp_path / "qpidd.conf"
    config.write_text("\n".join(lines) + "\n")
    with Agent(tmp_path / "agent", options="", config=str(config)) as agent:
        hold = reading_slowly(agent)
        assert agent("start").code == 0
        assert agent("promote").code == 0
        assert agent("stop").code == 0
        hold.touch()
        assert agent("start", timeout=8000).code == 0, agent.log
        assert agent("monitor").code == 0
        hold.unlink()
        assert agent("stop").code == 0


def test_a_broker_that_reads_its_journal_is_stopped(agent: Agent) -> None:
    hold = reading_slowly(agent)
    agent.parameters["options"] = f"{agent.options()} --journal yes --journal-segment-size 1M"
    assert agent("start").code == 0
    assert agent("promote").code == 0
    assert agent("stop").code == 0
    hold.touch()
    assert agent("start", timeout=8000).code == 0, agent.log
    stop = agent.spawn("stop")
    hold.unlink()
    assert agent.result(stop).code == 0
    assert agent("monitor").code == 7
