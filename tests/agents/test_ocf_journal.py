"""A broker that reads a deep journal: the agent lets it."""

import subprocess
import sys
from pathlib import Path

import pika

from tests.agents.ocf import ROOT, TIME, Agent, write_program
from tests.support.wait import wait_for

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
    assert "the daemon runs, and is not ready yet: check the journal" in agent.log
    assert agent.tool("status") == "recovering-journal"
    assert agent("monitor").code == 0
    assert agent("monitor", interval=10_000).code == 0
    assert agent.calls[-1] == "-", "it has no score, so it is not promoted"
    promoted = agent("promote")
    assert (promoted.code, "recovering-journal" in promoted.reason) == (1, True), promoted
    assert agent("demote").code == 0
    again = agent("start")
    assert (again.code, "runs already" in agent.log) == (0, True), again

    held = agent.held()
    hold.unlink()
    wait_for(lambda: agent.tool("status") == "joining", TIME, "the journal is read")
    wait_for(lambda: agent.calls[-1].isdigit(), TIME, lambda: f"a score: {agent.calls}")
    assert agent.result(held).code == 0
    assert agent("promote").code == 0
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
