"""A real broker with a journal: killed, stopped, on a full disk, on a damaged journal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import psutil
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from ha.salvage.lines import decode_record
from qpidd_py.cli.qpidd_journal import main as qpidd_journal
from qpidd_py.store.archive import decode_message
from qpidd_py.store.archive_file import ArchiveFile
from tests.acceptance.disks import SmallDisk
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for, wait_logged

Capture = pytest.CaptureFixture[str]
PERSISTENT = pika.BasicProperties(delivery_mode=2)
SMALL = ("--journal", "yes", "--journal-segment-size", "1M")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, *SMALL)
    try:
        yield broker.start()
    finally:
        broker.close()


@contextmanager
def connect(broker: BrokerProcess, **options: object) -> Iterator[pika.BlockingConnection]:
    """Closed at the end, if the broker lives."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **options))
    yield connection
    with suppress(pika.exceptions.AMQPError):
        connection.close()


@contextmanager
def orders(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    """A channel with confirms, and the queue `orders`."""
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        yield channel


def publish(channel: BlockingChannel, first: int, count: int, size: int = 100) -> None:
    """Each is confirmed when this returns."""
    for number in range(first, first + count):
        channel.basic_publish("", "orders", b"%d %s" % (number, b"x" * size), PERSISTENT)


def taken(broker: BrokerProcess) -> list[int]:
    """The numbers of all messages in the queue, which stay in it."""
    with connect(broker) as connection:
        channel = connection.channel()
        found = []
        while (body := channel.basic_get("orders")[2]) is not None:
            found.append(int(body.split()[0]))
        return found


def kill(broker: BrokerProcess) -> None:
    broker.signal(signal.SIGKILL)
    broker.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_what_was_confirmed_is_there_after_a_restart(broker: BrokerProcess, number: signal.Signals) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("news", "topic", durable=True)
        channel.queue_declare("orders", durable=True, arguments={"x-max-length": 1000})
        channel.queue_bind("orders", "news", "a.*")
        channel.queue_declare("passing")
        publish(channel, 0, 20)
        channel.basic_publish("news", "a.b", b"20 routed", PERSISTENT)
        for _ in range(5):
            channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
        publish(channel, 21, 1)  # confirmed, so the acknowledgements before it are on disk
        channel.basic_get("orders")
        broker.signal(number)
        broker.wait()
    broker.start()
    assert taken(broker) == list(range(5, 22))
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={"x-max-length": 1000})
        assert channel.basic_get("orders")[0].redelivered
        channel.basic_publish("news", "a.c", b"22 again", PERSISTENT)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'passing'"):
            channel.queue_declare("passing", passive=True)
    assert taken(broker)[-1] == 22


def test_kills_one_after_the_other_lose_nothing(broker: BrokerProcess) -> None:
    published = 0
    for _ in range(4):
        with orders(broker) as channel:
            publish(channel, published, 40, 20_000)
            published += 40
            shown = broker.request("broker.info")["journal"]
            assert shown["octets"] > 40 * 20_000 and (shown["behind"], shown["waiting"], shown["full"]) == (0, 0, False)
            kill(broker)
        broker.start()
        assert taken(broker) == list(range(published))


def test_space_is_used_again(broker: BrokerProcess) -> None:
    """One message stays; much more than the journal may take comes and goes."""
    with orders(broker) as channel:
        publish(channel, 0, 1)
        channel.connection.channel().basic_get("orders")
        for number in range(1, 21):
            publish(channel, number, 1, 1_000_000)
            channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
        publish(channel, 21, 1)
        folder = broker.data_dir / "journal"
        wait_for(lambda: sum(file.stat().st_size for file in folder.iterdir()) < 12 << 20)
        kill(broker)
    broker.start()
    assert taken(broker) == [0, 21]


def test_counts_of_returns_come_back(broker: BrokerProcess, capsys: Capture) -> None:
    """What was out at the kill has come back once more, what waited has not."""
    with orders(broker) as channel:
        channel.queue_declare("tries", durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(2):
            channel.basic_publish("", "tries", b"m", PERSISTENT)
        for _ in range(3):
            channel.basic_nack(channel.basic_get("tries")[0].delivery_tag)
        channel.basic_get("tries")
        channel.basic_nack(channel.basic_get("tries")[0].delivery_tag)
        publish(channel, 0, 1)  # when this is confirmed, what came before is on the disk
        kill(broker)
    assert qpidd_journal(["dump", str(broker.data_dir / "journal")]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counted = [run["count"] for item in found if item["operation"] == "returned" for run in item["counts"]]
    assert counted[:1] == [1] and max(counted) == 3
    broker.start()
    with orders(broker) as channel:
        counts = [channel.basic_get("tries")[1].headers["x-delivery-count"] for _ in range(2)]
    assert counts == [4, 1]


def test_two_classes_come_back(broker: BrokerProcess) -> None:
    """Each in its order, with what was out, from the journal's segments and from what is carried into new ones."""
    with orders(broker) as channel:
        channel.queue_declare("classes", durable=True, arguments={"x-queue-type": "quorum"})
        for body, priority in (("n0", 0), ("n1", 4), ("n2", 0), ("h0", 5), ("h1", 9), ("h2", 5), ("h3", 5)):
            properties = pika.BasicProperties(delivery_mode=2, priority=priority)
            channel.basic_publish("", "classes", body.encode(), properties)
        assert [channel.basic_get("classes")[2] for _ in range(4)] == [b"h0", b"h1", b"n0", b"h2"]
        for number in range(1, 31):  # more than the journal may take
            publish(channel, number, 1, 1_000_000)
            channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
        publish(channel, 0, 1)
        kill(broker)
    broker.start()
    with orders(broker) as channel:
        found = [channel.basic_get("classes") for _ in range(7)]
    wanted = [(b"h0", 1), (b"h1", 1), (b"n0", 1), (b"h2", 1), (b"h3", 0), (b"n1", 0), (b"n2", 0)]
    assert [(body, properties.headers["x-delivery-count"]) for _, properties, body in found] == wanted
    assert [method.redelivered for method, _, _ in found] == [count > 0 for _, count in wanted]


def test_a_damaged_journal_is_refused_and_repaired(broker: BrokerProcess, capsys: Capture) -> None:
    with orders(broker) as channel:
        publish(channel, 0, 30)
        kill(broker)
    folder = broker.data_dir / "journal"
    segment = folder / "0000000000000001.journal"
    assert qpidd_journal(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("whole: 3")
    octets = segment.read_bytes()
    at = octets.index(b"20 xxx")
    segment.write_bytes(octets[:at] + b"!" + octets[at + 1 :])
    assert qpidd_journal(["verify", "--json", str(folder)]) == 1
    assert "were on disk and are damaged" in json.loads(capsys.readouterr().out)["damage"]
    broker.spawn()
    assert broker.wait() == 1
    wait_logged(broker, "cannot be used: 0000000000000001.journal, octet")
    repaired = folder.with_name("repaired")
    assert qpidd_journal(["repair", str(folder), "--to", str(repaired)]) == 1
    assert "frames written to" in capsys.readouterr().out
    assert qpidd_journal(["repair", str(folder), "--to", str(repaired)]) == 1
    assert "exists; expected a folder that does not" in capsys.readouterr().out
    folder.rename(folder.with_name("damaged"))
    repaired.rename(folder)
    broker.start()
    assert taken(broker) == list(range(20))


def test_the_tool_shows_segments_and_operations(broker: BrokerProcess, capsys: Capture) -> None:
    with orders(broker) as channel:
        publish(channel, 0, 2)
        channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
        publish(channel, 2, 1)
        kill(broker)
    folder = str(broker.data_dir / "journal")
    assert qpidd_journal(["dump", folder]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = Counter(item["operation"] for item in found)
    assert (counts["snapshot"], counts["config"], counts["enqueue"], counts["dequeue"]) == (1, 1, 3, 1)
    assert qpidd_journal(["inspect", folder]) == 0
    assert "0000000000000001.journal" in capsys.readouterr().out
    assert qpidd_journal(["inspect", "--json", folder]) == 0
    assert json.loads(capsys.readouterr().out)["damage"] == ""
    assert qpidd_journal(["verify", f"{folder}/none"]) == 1
    assert "is no folder" in capsys.readouterr().out


def test_the_tool_exports_what_waits(broker: BrokerProcess, capsys: Capture, tmp_path: Path) -> None:
    with orders(broker) as channel:
        channel.exchange_declare("news", "topic", durable=True)
        channel.queue_bind("orders", "news", "weather.#")
        publish(channel, 0, 3)
        channel.basic_publish("news", "weather.today", b"rain", pika.BasicProperties(delivery_mode=2, headers={"a": 1}))
        channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
        channel.basic_get("orders")
        publish(channel, 3, 1)
        kill(broker)
    folder, file = str(broker.data_dir / "journal"), tmp_path / "all.jsonl"
    assert qpidd_journal(["export", folder]) == 0
    shown = capsys.readouterr()
    assert "4 messages and 3 objects" in shown.err
    assert qpidd_journal(["export", folder, "--output", str(file)]) == 0
    assert file.read_text().splitlines()[1:-1] == shown.out.splitlines()[1:-1]
    assert file.stat().st_mode & 0o777 == 0o600
    archive = ArchiveFile(file)
    lines = [line for line in archive.lines() if b'"body"' in line]
    found = [decode_message(json.loads(line)) for line in lines]
    assert [(each.exchange, each.routing_key, each.body.split()[0]) for each in found] == [
        (b"", b"orders", b"1"),
        (b"", b"orders", b"2"),
        (b"news", b"weather.today", b"rain"),
        (b"", b"orders", b"3"),
    ]
    assert [each.redelivered for each in found] == [True, False, False, False]
    assert json.loads(lines[2])["properties"] == {"headers": {"a": 1}, "delivery_mode": 2}
    records = [decode_record(line) for line in lines]  # as of a salvage file
    assert [(record.id, record.body) for record in records] == [(each.id, each.body) for each in found]
    capsys.readouterr()
    (tmp_path / "notes").write_text("mine")
    assert qpidd_journal(["export", folder, "--output", str(tmp_path / "notes")]) == 1
    assert "exists and is not an archive" in capsys.readouterr().out and (tmp_path / "notes").read_text() == "mine"


def test_the_tool_does_not_look_at_what_is_being_written(broker: BrokerProcess, capsys: Capture) -> None:
    assert qpidd_journal(["verify", str(broker.data_dir / "journal")]) == 1
    assert f"the broker with pid {broker.pid} writes" in capsys.readouterr().out


def test_a_folder_that_is_gone_ends_the_broker(broker: BrokerProcess) -> None:
    """The next segment cannot be made; nothing is confirmed that only memory has."""
    with orders(broker) as channel, suppress(pika.exceptions.AMQPError):
        shutil.rmtree(broker.data_dir / "journal")
        for number in range(100):
            publish(channel, number, 1, 100_000)
    assert broker.wait() == 4
    wait_logged(broker, "cannot be written: [Errno 2] No such file or directory")


SLOW_DISK = "import os, time; sync = os.fdatasync; os.fdatasync = lambda fd: (time.sleep(0.5), sync(fd)); "


def test_a_slow_disk_does_not_fill_memory(tmp_path: Path) -> None:
    """A publisher that waits for no confirm sends much more than may wait for a disk that takes half a second."""

    class WithSlowDisk(BrokerProcess):
        def command(self) -> list[str]:
            words = super().command()
            run = f"{SLOW_DISK}from qpidd_py.__main__ import main; raise SystemExit(main({words[3:]!r}))"
            return [words[0], "-c", run]

    with WithSlowDisk(tmp_path, "--journal", "yes") as broker, connect(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-max-length": 10})
        before, most = psutil.Process(broker.pid).memory_info().rss, 0
        for _ in range(400):
            channel.basic_publish("", "orders", bytes(1_000_000), PERSISTENT)
            most = max(most, psutil.Process(broker.pid).memory_info().rss)
        assert most - before < 300 << 20


WAITING_DISK = (
    "import os, time; from qpidd_py.store.writer import Writer; commit = Writer.commit; "
    "wait = lambda: [time.sleep(0.01) for _ in iter(lambda: os.path.exists({path!r}), False)]; "
    "Writer.commit = lambda *work, **how: (wait(), commit(*work, **how))[1]; "
)


def test_a_member_takes_part_when_its_disk_has_its_name(tmp_path: Path) -> None:
    """While the disk hangs at the start, it is no member yet.  It can be stopped, and a signal to reload is kept."""
    flag = tmp_path / "hangs"

    class WithDisk(BrokerProcess):
        def command(self) -> list[str]:
            words = super().command()
            run = f"{WAITING_DISK.format(path=str(flag))}from qpidd_py.__main__ import main; "
            return [words[0], "-c", f"{run}raise SystemExit(main({words[3:]!r}))"]

    others = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    with WithDisk(tmp_path, *SMALL, "--ha-cluster", "yes", "--ha-brokers-url", others) as broker:
        broker.stop()
        for ends in (True, False):
            flag.touch()
            broker.spawn()
            wait_logged(broker, "does not answer; this broker takes part when it does")
            assert "Broker running on" not in broker.log
            os.kill(broker.pid, signal.SIGTERM if ends else signal.SIGHUP)
            if ends:
                assert broker.wait() == 0
        assert "SIGHUP" not in broker.log
        flag.unlink()
        wait_logged(broker, "Broker running on")
        wait_logged(broker, "SIGHUP: log rules, user file and certificates are read")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: root only")
def test_a_member_takes_part_though_its_disk_takes_no_segment(tmp_path: Path) -> None:
    """Its name is not on disk, since nothing can be; consumers can be served all the same."""
    others = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    options = (*SMALL, "--disk-free-limit", "0", "--ha-cluster", "yes", "--ha-brokers-url", others)
    broker = BrokerProcess(tmp_path, *options)
    disk = SmallDisk(broker.data_dir, 8 << 20)
    try:
        broker.start().stop()
        for spare in (broker.data_dir / "journal").glob("spare*"):
            spare.unlink()
        left = shutil.disk_usage(broker.data_dir).free
        (broker.data_dir / "filler").write_bytes(bytes(left - (300 << 10)))
        broker.start()
        wait_logged(broker, "the disk of the journal is full")
        (broker.data_dir / "filler").unlink()
        wait_logged(broker, "the disk of the journal has space again")
    finally:
        broker.close()
        disk.close()


def test_a_journal_that_is_not_read_is_a_warning(broker: BrokerProcess) -> None:
    broker.close()
    broker.options = ()
    broker.start()
    wait_logged(broker, "there is a journal in")


def test_a_member_of_a_cluster_refuses_the_journal_of_a_broker_outside(broker: BrokerProcess) -> None:
    """Its history is that of no cluster."""
    with orders(broker) as channel:
        publish(channel, 0, 10)
    broker.stop()
    command = [sys.executable, "-m", "qpidd_py", "--port", "0", "--data-dir", str(broker.data_dir)]
    command += [*SMALL, "--ha-cluster", "yes", "--ha-brokers-url", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "was written by a broker outside a cluster" in done.stderr and "or an empty folder" in done.stderr


@pytest.mark.parametrize("sync", ["os", "interval:50"])
def test_a_journal_that_syncs_later_outlives_the_process(tmp_path: Path, sync: str) -> None:
    broker = BrokerProcess(tmp_path, *SMALL, "--journal-sync", sync)
    try:
        with orders(broker.start()) as channel:
            publish(channel, 0, 50)
            broker.kill()
        with orders(broker.start()) as channel:
            assert channel.queue_declare("orders", passive=True).method.message_count == 50
    finally:
        broker.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: root only")
@pytest.mark.parametrize(
    ("limit", "reason"), [("0", "the disk of the journal is full"), ("4M", "less than 4 MiB (disk-free-limit)")]
)
def test_a_full_disk_blocks_publishers_and_is_used_again(tmp_path: Path, limit: str, reason: str) -> None:
    """On a file system of 6 MiB of its own: three segments, and one that is reserved."""

    class OnSmallDisk(BrokerProcess):
        def command(self) -> list[str]:
            words = " ".join(super().command())
            mount = f"mount -t tmpfs -o size=6m none {self.data_dir} && exec {words}"
            return ["unshare", "-m", "sh", "-c", mount]

    broker = OnSmallDisk(tmp_path, *SMALL, "--disk-free-limit", limit)
    broker.data_dir.mkdir()
    try:
        broker.start()
        with connect(broker, blocked_connection_timeout=60) as connection:
            _fill_and_drain(broker, connection, reason)
        assert taken(broker)[-1] == 1000
        assert broker.running
    finally:
        broker.close()


def _fill_and_drain(broker: BrokerProcess, connection: pika.BlockingConnection, reason: str) -> None:
    told: list[str] = []
    # On the adapter: the blocking connection's publish would wait until a blocked broker reads on.
    connection._impl.add_on_connection_blocked_callback(lambda _, method: told.append(method.method.reason))
    connection._impl.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    for number in range(80):
        channel._impl.basic_publish("", "orders", b"%d %s" % (number, b"x" * 100_000), PERSISTENT)
        connection.process_data_events(0.05)  # the reserve is small, too
        if told:
            break
    wait_for(lambda: connection.process_data_events(0.1) or told)
    assert reason in told[0]
    with connect(broker) as other:
        consumer = other.channel()
        while consumer.basic_get("orders", auto_ack=True)[0] is not None:
            pass
    wait_for(lambda: connection.process_data_events(0.1) or "unblocked" in told)
    channel.confirm_delivery()
    publish(channel, 1000, 1)
