"""A backup that cannot keep up, with real brokers: it slows publishers, is dropped by rule, and comes back."""

import contextlib
import threading

import pika
import pytest

from qpidd_py.cli.client_socket import BrokerError
from tests.support.process import BrokerProcess, HeldPort
from tests.support.slow_proxy import SlowProxy
from tests.support.wait import wait_for

MIB = 1 << 20


def member(broker, name):
    found = [shown for shown in broker.request("ha.query")["members"] if shown["name"] == name]
    return found[0] if found else {}


def publish(broker, count):
    """So many messages of 1 MiB, and a small one that is confirmed."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    for _ in range(count):
        channel.basic_publish("", "q", bytes(MIB))
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"the last one")
    connection.close()


@pytest.fixture
def pair(tmp_path):
    """A primary that its backup reaches through a proxy only."""
    with contextlib.ExitStack() as stack:
        ports = [HeldPort() for _ in range(2)]
        for held in ports:
            stack.callback(held.release)
        proxy = stack.enter_context(SlowProxy(ports[0].port))
        url = f"{proxy.address},127.0.0.1:{ports[1].port}"
        options = ["--ha-cluster", "yes", "--ha-brokers-url", url, "--ha-replicate", "all"]
        options += ["--ha-slow-backup-timeout", "3", "--max-message-size", "8M"]
        brokers = []
        for name, held in zip(("primary", "backup"), ports, strict=True):
            broker = BrokerProcess(tmp_path, *options, name=name, port=held.port)
            stack.callback(broker.close)
            brokers.append(broker.start())
        promoted = []

        def promote():
            with contextlib.suppress(BrokerError):
                promoted.append(brokers[0].request("ha.promote"))
            return promoted

        wait_for(promote, what="promotion")
        wait_for(lambda: member(brokers[0], "backup").get("state") == "ready", what="the backup is ready")
        yield *brokers, proxy


def test_a_slow_backup_is_dropped_and_rejoins(pair):
    primary, backup, proxy = pair
    proxy.rate = MIB
    publisher = threading.Thread(target=publish, args=(primary, 80), daemon=True)
    publisher.start()
    seen = {}

    def look():
        seen.update(member(primary, "backup"))
        return seen.get("backlog", 0) > 60 * MIB

    wait_for(look, what="a backlog")
    assert seen["lag"]["octets"] > 50 * MIB
    assert seen["lag"]["positions"] > 50
    assert seen["lag"]["seconds"] > 0
    wait_for(lambda: "too slow" in primary.log, 60, lambda: primary.log)
    wait_for(lambda: "backup is no longer in-sync" in primary.log, 60, lambda: primary.log)
    publisher.join(20)
    assert not publisher.is_alive()
    proxy.rate = None
    wait_for(lambda: member(primary, "backup").get("state") == "ready", 60, lambda: primary.log)
    assert [queue["messages"] for queue in backup.request("queue.list")] == [81]
