"""What tests of the scripts do to a node."""

from __future__ import annotations

import pika

from tests.rgmanager.node import PASSWORD, USER, Node

BOTH = ("qpidd", "qpidd-primary")


def clustered(node: Node, *others: str, **options: str) -> Node:
    """A member of a cluster with addresses where no process listens, or with `others`."""
    url = ",".join((node.address, *(others or ("127.0.0.1:1",))))
    settings = {"ha_cluster": "yes", "ha_brokers_url": url, "ha_replicate": "all", "link_heartbeat_interval": "0.5"}
    settings |= {"ha_safety": "manager", "ha_registry": "none", "ha_username": USER, "ha_password": PASSWORD}
    node.configure(**{**settings, **options})
    node.set(QPID_HA_OPTIONS=f"--config {node.config} --timeout 5", QPID_PROMOTE_WAIT="0", QPID_WAIT="10")
    return node


def ok(node: Node, script: str, action: str, *words: str) -> str:
    """What the script says; it has to succeed."""
    code, text = node.call(script, action, *words)
    assert code == 0, text
    return text


def published(node: Node) -> None:
    """A replicated queue with a confirmed message in it."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"kept", pika.BasicProperties(delivery_mode=2), mandatory=True)


def stale(node: Node, content: str) -> Node:
    """A pid file that no process holds."""
    node.data_dir.mkdir()
    (node.data_dir / "lock").write_text(content)
    return node
