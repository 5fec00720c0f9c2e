"""Back-pressure with real processes: a backup that does not read stops the publishers, and they are told why."""

import threading
from pathlib import Path

import pika

from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for

BODY = b"x" * (1 << 20)
MESSAGES = 90
"""More than may wait for one backup, and than the sockets between take."""


def publish(primary: Member, seen: list[str]) -> None:
    """Until all are confirmed; what the client was told meanwhile."""
    confirmed: list[int] = []
    with primary.channel(confirm=False) as channel:
        connection = channel.connection
        connection.add_on_connection_blocked_callback(lambda _, frame: seen.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: seen.append("unblocked"))
        channel._impl.confirm_delivery(lambda frame: confirmed.append(frame.method.delivery_tag))
        for _ in range(MESSAGES):
            channel._impl.basic_publish("", "q", BODY, pika.BasicProperties())
        wait_for(lambda: connection.process_data_events(0.05) or (confirmed and confirmed[-1] == MESSAGES), 60)


def test_a_stopped_backup_blocks_publishers_only(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2, link_heartbeat_interval="30", ha_slow_backup_timeout="120").start() as cluster:
        primary, backup = cluster.members
        with primary.channel(confirm=False) as other:
            other.queue_declare("q")
            seen: list[str] = []
            publisher = threading.Thread(target=publish, args=(primary, seen))
            backup.pause()
            publisher.start()
            reason = wait_for(lambda: primary.ask("broker.info")["blocked"], what="publishers are blocked")
            assert f"backup {backup.name}" in reason and "is slow: " in reason
            assert other.basic_get("q", auto_ack=True)[2] == BODY, "consumers are served"
            assert publisher.is_alive()
            backup.resume()
            publisher.join(90)
        assert seen[0] == reason and "unblocked" not in seen[::2] and set(seen[1::2]) == {"unblocked"}
        assert primary.ask("broker.info")["blocked"] == ""
