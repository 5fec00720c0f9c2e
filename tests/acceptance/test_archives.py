"""`qpid-ha backup` and `restore` with real clusters: what an administrator does with them, and what goes wrong."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pika
import pytest

from ha.qpid_ha.archive import TEXT
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.store.archive_file import ArchiveFile
from tests.acceptance.cluster import Cluster, Member
from tests.support import programs
from tests.support.wait import wait_for

DURABLE = pika.BasicProperties(delivery_mode=2)


def qpid_ha(member: Member, *words: str, code: int = 0) -> str:
    """Standard output."""
    command = [sys.executable, "-m", "ha.qpid_ha.main", *words, "-b", member.address]
    done = programs.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return str(done.stdout)


def waiting(file: Path, queue: str) -> list[dict[str, Any]]:
    return [value for value in ArchiveFile(file).values() if value.get("queue") == queue and "body" in value]


def fill(cluster: Cluster) -> None:
    with cluster.channel() as channel:
        channel.exchange_declare("news", "topic", durable=True, arguments={"alternate-exchange": "rest"})
        channel.exchange_declare("rest", "fanout", durable=True)
        channel.exchange_bind("rest", "news", "lost.#")
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("urgent", durable=True, arguments={"x-max-priority": 5, "x-max-length": 100})
        channel.queue_declare("mine", exclusive=True)
        channel.queue_bind("orders", "news", "order.*", arguments={"note": "kept"})
        channel.queue_bind("urgent", "rest")
        for number in range(20):
            told = pika.BasicProperties(delivery_mode=2, headers={"number": number}, message_id=f"m{number}")
            channel.basic_publish("news", f"order.{number}", b"\xff%d" % number, told, mandatory=True)
        for number in range(6):
            channel.basic_publish("", "urgent", b"%d" % number, pika.BasicProperties(priority=number % 3))
        channel.basic_publish("", "mine", b"not kept")
        for _ in range(3):
            channel.basic_get("orders")  # handed out: they come again


def taken(member: Member, queue: str) -> list[tuple[str, str, bool, bytes, Any]]:
    found = []
    with member.channel() as channel:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            method, properties, body = got
            found.append((method.exchange, method.routing_key, method.redelivered, body, properties.headers))
    return found


def test_what_is_backed_up_is_restored(tmp_path: Path) -> None:
    """Also what does not fit into one request, as a whole or by itself.  After a fail-over all says redelivered."""
    file, large = tmp_path / "all.jsonl", [bytes([number]) * (TEXT // 3) for number in range(6)] + [b"x" * 3 * TEXT]
    with Cluster(tmp_path / "old", size=2).start() as old:
        fill(old)
        with old.channel() as channel:
            channel.queue_declare("large", durable=True)
            for body in large:
                channel.basic_publish("", "large", body, DURABLE, mandatory=True)
        told = qpid_ha(old.backups[0], "backup", str(file), "--messages")
        assert told.startswith(f"{file}: 8 objects and 33 messages at position 1.")
        assert file.stat().st_mode & 0o777 == 0o600 and list(tmp_path.glob(".all*")) == []
        expected = {queue: taken(old.primary, queue) for queue in ("orders", "urgent")}
        assert "is not empty: it has queue '" in qpid_ha(old.primary, "restore", str(file), code=1)
    with Cluster(tmp_path / "new", size=2).start() as new:
        shown = json.loads(qpid_ha(new.backups[0], "restore", str(file), "--json"))
        assert (shown["messages"], shown["objects"], shown["again"]) == (33, 8, False)
        assert sorted(new.primary.queues()) == ["large", "orders", "urgent"]
        new.fail_over()
        assert [found[3] for found in taken(new.primary, "large")] == large
        marked = {queue: [(*found[:2], True, *found[3:]) for found in each] for queue, each in expected.items()}
        assert {queue: taken(new.primary, queue) for queue in ("orders", "urgent")} == marked
        assert expected["orders"][0] == ("news", "order.0", True, b"\xff0", {"number": 0})
        assert [found[2] for found in expected["orders"]] == [True] * 3 + [False] * 17
        with new.channel() as channel:
            channel.basic_publish("news", "order.new", b"new", DURABLE, mandatory=True)
            channel.basic_publish("news", "elsewhere", b"new", DURABLE, mandatory=True)
        assert [found[3] for found in taken(new.primary, "urgent")] == [b"new"]


class Traffic(threading.Thread):
    """Publishes numbers and takes them again, always some behind."""

    def __init__(self, member: Member) -> None:
        super().__init__(daemon=True)
        self._member = member
        self.published = self.taken = 0
        self.stop = False
        self.start()

    def run(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError), self._member.channel() as channel:
            while not self.stop:
                channel.basic_publish("", "orders", b"%d" % self.published, DURABLE)
                self.published += 1
                if self.published - self.taken > 400:
                    channel.basic_get("orders", auto_ack=True)
                    self.taken += 1


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_backup_under_load_is_of_one_moment(cluster: Cluster, tmp_path: Path, role: str) -> None:
    primary, backup, *_ = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("orders", durable=True)
        channel.queue_purge("orders")
    traffic = Traffic(primary)
    wait_for(lambda: traffic.taken > 10, 60, "traffic")
    for _ in range(3):
        file = tmp_path / "busy.jsonl"
        before = traffic.published, traffic.taken
        qpid_ha(primary if role == "primary" else backup, "backup", str(file), "--messages")
        after = traffic.published, traffic.taken
        ids = [int(base64_text(message["body"])) for message in waiting(file, "orders")]
        assert ids == list(range(ids[0], ids[-1] + 1)), "nothing is missing in between"
        assert before[1] <= ids[0] <= after[1] + 1 and before[0] - 1 <= ids[-1] <= after[0]
    traffic.stop = True
    traffic.join()


def base64_text(text: str) -> str:
    return base64.b64decode(text).decode()


def test_an_interrupted_restore_is_not_seen_and_begins_again(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    with Cluster(tmp_path, size=3).start() as cluster:
        fill(cluster)
        qpid_ha(cluster.primary, "backup", str(file), "--messages")
        with cluster.channel() as channel:
            for name in ("orders", "urgent"):
                channel.queue_delete(name)
            for name in ("news", "rest"):
                channel.exchange_delete(name)
        old = cluster.primary
        with cluster.channel() as channel, ManagementSocket(Target("127.0.0.1", old.port), Deadline(20)) as broker:
            begun = broker.request("ha.restore", {"action": "begin"})
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
                channel.connection.process_data_events(10)
            text = "".join(line.decode() for line in list(ArchiveFile(file).lines())[:15])
            counts = broker.request("ha.restore", {"action": "lines", "id": begun["id"], "text": text})
            assert counts == {"objects": 7, "messages": 8}
        cluster.fail_over()
        with pytest.raises(pika.exceptions.AMQPError, match="restore was interrupted"):
            cluster.primary.connect()
        assert "restore was interrupted" in qpid_ha(cluster.primary, "status", "-v")
        with pytest.raises(RequestRefused, match="begin again"):
            cluster.primary.ask("ha.restore", action="lines", id=begun["id"], text=text)
        assert "was deleted before" in qpid_ha(cluster.primary, "restore", str(file))
        assert len(taken(cluster.primary, "orders")) == 20
        assert sorted(cluster.primary.queues()) == ["orders", "urgent"]


def test_an_interrupted_restore_can_be_abandoned(tmp_path: Path) -> None:
    with Cluster(tmp_path, size=1).start() as cluster:
        cluster.primary.ask("ha.restore", action="begin")
        assert "clients are admitted" in qpid_ha(cluster.primary, "restore", "--abandon")
        assert cluster.primary.queues() == {} and "no restore" in qpid_ha(cluster.primary, "restore", "--abandon")
        cluster.primary.connect().close()
