"""`qpidd-journal export` of queues of special kinds, and what `qpid-ha restore` makes of it in an empty cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from qpidd_py.amqp.codec import make
from qpidd_py.cli.qpidd_journal import main as qpidd_journal
from tests.support.members import Members
from tests.support.process import BrokerProcess
from tests.support.three_ways import Client

Exchange, Queue = commands.Exchange, commands.Queue
HOUR = 3_600_000
KINDS: dict[str, dict[str, Any]] = {
    "values": {"qpid.last_value_queue_key": "key"},
    "groups": {"qpid.group_header_key": "key", "qpid.shared_msg_group": 1},
    "priorities": {"x-max-priority": 5},
    "once": {"x-message-deduplication": True, "x-deduplication-key": "key"},
    "locked": {"x-single-active-consumer": True, "x-fencing-token": True},
    "quorum": {"x-queue-type": "quorum", "qpid.replicate": "all", "x-delivery-limit": 3},
    "timed": {"x-message-ttl": HOUR},
    "ring": {"qpid.max_count": 2, "qpid.policy_type": "ring"},
}
LEFT = {**{queue: [b"a1", b"b1", b"a2"] for queue in KINDS}, "values": [b"b1", b"a2"], "once": [b"a1", b"b1"]}
LEFT |= {"ring": [b"b1", b"a2"], "priorities": [b"a2", b"b1", b"a1"]}
"""What is there of a1, b1 and a2, whose priorities grow."""


class Kept(Client):
    persistent = True


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Members]:
    members = Members(tmp_path, names="ab")
    try:
        members.up()
        yield members
    finally:
        members.close()


def filled(port: int) -> None:
    client = Kept(port)
    client.open()
    for queue, arguments in KINDS.items():
        client.declare(queue, arguments=arguments)
    flags = {"ticket": 0, "passive": False, "auto_delete": False, "internal": False, "nowait": False}
    kind = {"exchange_type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    assert isinstance(
        client.ask(make(Exchange.Declare, exchange="later", durable=True, **kind, **flags)), Exchange.DeclareOk
    )
    client.call(1, Queue.Bind(queue="timed", exchange="later", routing_key="timed"), Queue.BindOk)
    client.confirming()
    for queue in KINDS:
        for priority, body in enumerate((b"a1", b"b1", b"a2")):
            assert client.confirmed(body, queue=queue, headers={"key": body[:1].decode()}, priority=priority) == [True]
    assert client.confirmed(b"due", queue="timed", exchange="later", headers={"x-delay": HOUR}) == [True]
    client.close()


def test_what_is_exported_can_be_restored(tmp_path: Path, cluster: Members) -> None:
    file = tmp_path / "all.jsonl"
    with BrokerProcess(tmp_path, "--journal", "yes") as broker:
        filled(broker.port)
        broker.kill()
        assert qpidd_journal(["export", str(broker.data_dir / "journal"), "--output", str(file)]) == 0
    cluster.tool("restore", str(file))
    cluster.settled("a")
    cluster.brokers["a"].kill()
    cluster.tool("promote", "--cluster-manager", name="b")
    client = Kept(cluster.brokers["b"].port)
    client.open()
    for queue, arguments in KINDS.items():
        assert isinstance(client.declare(queue, arguments=arguments), Queue.DeclareOk), queue
    found = {queue: client.bodies(queue) for queue in KINDS if queue != "locked"}
    assert found == {queue: bodies for queue, bodies in LEFT.items() if queue != "locked"}
    assert client.count("locked") == 3
    delayed = {row["name"]: row["delayed"] for row in cluster.ask("b", "exchange.list") if row["name"] == "later"}
    assert delayed == {"later": 1}
