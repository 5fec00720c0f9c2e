"""A broker that takes nothing but TLS, under the agent: started, promoted, asked, also with EXTERNAL."""

import select
import time
from pathlib import Path

import pytest
from qpidd_agent.ear import Question
from qpidd_agent.parameters import Parameters

from tests.agents.ocf import Agent
from tests.support.certificates import Authority, needs_openssl
from tests.support.process import HeldPort

pytestmark = needs_openssl


@pytest.mark.parametrize("login", ["ha-password=secret", "ha-mechanism=EXTERNAL"])
def test_a_broker_that_takes_only_tls(tmp_path: Path, login: str) -> None:
    authority, held = Authority(tmp_path / "authority"), HeldPort()
    lines = ["require-encryption=yes", f"ssl-port={held.port}", f"ssl-ca={authority.file}", "ha-username=qpid-ha"]
    lines += [login]
    lines += [f"ssl-cert={authority.certificate('qpid-ha')}", "ha-cluster=yes", "ha-safety=manager", "ha-registry=none"]
    lines += ["interface=127.0.0.1", f"ha-brokers-url=ssl:127.0.0.1:{held.port}", "log-to-stderr=no"]
    config = tmp_path / "qpidd.conf"
    config.write_text("\n".join(lines) + "\n")
    agent = Agent(tmp_path / "agent", options="", config=str(config))
    try:
        assert agent("start").code == 0
        assert agent("monitor").code == 0
        assert agent("promote").code == 0
        assert agent("monitor").code == 8
        assert heard(Question(Parameters(agent.environment())))
        assert agent("stop").code == 0
    finally:
        agent.close()


def heard(question: Question) -> bool:
    """It answers the question in time."""
    end = time.monotonic() + 10.0
    while (found := question.look()) is None and time.monotonic() < end:
        select.select([question.descriptor], [], [], 0.1)
    question.close()
    return bool(found)
