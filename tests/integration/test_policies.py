"""Policies in a cluster: set with qpidctl, in force on the next primary, and back after a restart of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest

from tests.integration.test_users import Users, channel, restarted
from tests.support.members import TIME
from tests.support.wait import wait_for


def bodies(source: Any, queue: str) -> list[bytes]:
    """All that is ready, which is gone then."""
    found = []
    while (got := source.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


@pytest.mark.parametrize("journal", ["no", "yes"])
def test_a_policy_over_a_fail_over_and_a_restart(tmp_path: Path, journal: str) -> None:
    cluster = Users(tmp_path, "--journal", journal)
    try:
        cluster.up()
        source = channel(cluster.brokers["a"], "ha", "ha-password")
        source.confirm_delivery()
        source.queue_declare("q", durable=True)
        for number in range(5):
            source.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        cluster.ctl("set_policy", "p", "^q", '{"max-length": 3, "dead-letter-exchange": "amq.fanout"}')
        cluster.ctl("set_operator_policy", "o", "", '{"max-length": 2}')
        assert "no JSON" in cluster.ctl("set_policy", "p", "^q", "{", code=1)
        assert "ha-mode" in cluster.ctl("set_policy", "p", "^q", '{"ha-mode": "all"}', code=1)
        cluster.brokers["a"].kill()
        assert cluster.promote_newest("b", "c") in ("b", "c")
        if journal == "yes":
            restarted(cluster)
        name = next(name for name, state in cluster.states().items() if state in ("active", "recovering"))
        wait_for(lambda: cluster.states()[name] == "active", TIME, lambda: str(cluster.states()))
        columns = ("name", "policy", "operator_policy", "effective")
        effect = "[x-dead-letter-exchange=amq.fanout, x-max-length=2]"
        heads, row = "\t".join(columns), f"q\tp\to\t{effect}"
        assert cluster.ctl("list_queues", *columns, name=name) == f"{heads}\n{row}\n"
        source = channel(cluster.brokers[name], "ha", "ha-password")
        source.confirm_delivery()
        source.basic_publish("", "q", b"5")
        assert bodies(source, "q") == [b"4", b"5"]
        cluster.ctl("clear_policy", "p", name=name)
        cluster.ctl("clear_operator_policy", "o", name=name)
        assert cluster.ctl("list_policies", "-p", "/", name=name).count("\n") == 1
        for number in range(4):
            source.basic_publish("", "q", b"%d" % number)
        assert len(bodies(source, "q")) == 4
    finally:
        cluster.close()


def test_a_time_to_live_by_a_policy(tmp_path: Path) -> None:
    cluster = Users(tmp_path, names="a")
    try:
        cluster.up()
        source = channel(cluster.brokers["a"], "ha", "ha-password")
        source.queue_declare("q", durable=True, arguments={"x-message-ttl": 600_000})
        source.confirm_delivery()
        source.basic_publish("", "q", b"old")
        cluster.ctl("set_policy", "p", "^q", '{"message-ttl": 100}')
        source.basic_publish("", "q", b"new")
        wait_for(lambda: not source.queue_declare("q", passive=True).method.message_count, TIME, "both have expired")
    finally:
        cluster.close()
