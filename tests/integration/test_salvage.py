"""Salvage with real brokers: an overtaken primary comes back with confirmed messages that the cluster lacks."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.cli.client_socket import ConnectionClosed, Deadline, ManagementSocket, Target
from tests.support import programs
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for, wait_logged

TIMEOUT = 60.0


class Pair:
    """Two brokers, a and b, or more."""

    def __init__(self, directory: Path, safety: str, names: str = "ab") -> None:
        self.brokers = [BrokerProcess(directory, name=name) for name in names]
        url = ",".join(broker.address for broker in self.brokers)
        options = ["--ha-cluster", "yes", "--ha-brokers-url", url, "--ha-replicate", "all", "--ha-safety", safety]
        options += ["--ha-username", "guest", "--ha-password", "guest", "--link-heartbeat-interval", "0.2"]
        for broker in self.brokers:
            broker.options = options

    def __getitem__(self, name: str) -> BrokerProcess:
        return next(broker for broker in self.brokers if broker.name == name)

    def ask(self, name: str, method: str, **arguments: Any) -> Any:
        with ManagementSocket(Target("127.0.0.1", self[name].port), Deadline(TIMEOUT)) as connection:
            return connection.request(method, arguments)

    def promote(self, name: str, **arguments: Any) -> None:
        self.ask(name, "ha.promote", **arguments)

    def in_state(self, name: str, state: str) -> None:
        wait_for(lambda: self.state(name) == state, TIMEOUT, lambda: f"{name} {state}\n{self[name].log}")

    def state(self, name: str) -> str:
        try:
            return str(self.ask(name, "ha.status")["state"])
        except ConnectionClosed:
            return "not asked"  # a broker that steps down closes connections that are just being opened

    def members(self, name: str) -> int:
        return len(self.ask(name, "ha.query")["in_sync"]["members"])

    def contents(self, name: str, queue: str) -> list[str]:
        return [message["body"] for message in self.ask(name, "queue.peek", queue=queue, limit=1000)]

    def qpid_ha(self, name: str, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "ha.qpid_ha.main", "salvage", *arguments, "-b", self[name].address]
        result = programs.run(command, capture_output=True, text=True, timeout=60)
        assert result.stderr == ""
        return result.returncode, result.stdout

    def listed(self) -> list[dict[str, Any]]:
        """The files of each broker."""
        found: list[dict[str, Any]] = json.loads(self.qpid_ha("b", "list", "--all", "--json")[1])
        return found

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        return self[name].events(kind)


@contextmanager
def formed(directory: Path, safety: str, names: str = "ab") -> Iterator[Pair]:
    pair = Pair(directory, safety, names)
    try:
        for broker in pair.brokers:
            broker.start()
        pair.promote("a")
        for name in names[1:]:
            pair.in_state(name, "ready")
        yield pair
    finally:
        for broker in pair.brokers:
            broker.close()


@pytest.fixture(params=["availability", "manager"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with formed(tmp_path, request.param) as found:
        yield found


def publish(broker: BrokerProcess, queues: tuple[str, ...], numbers: range) -> None:
    """Every message is confirmed when this returns."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in queues:
            channel.queue_declare(queue, durable=True)
        for number in numbers:
            properties = pika.BasicProperties(message_id=f"id{number}", headers={"n": number}, delivery_mode=2)
            for queue in queues:
                channel.basic_publish("", queue, b"m%d" % number, properties, mandatory=True)


def overtake(pair: Pair) -> None:
    """a confirms m5 to m9 alone, because b stands still; then a stands still, and b goes on without them."""
    publish(pair["a"], ("orders", "other"), range(5))
    pair["b"].pause()
    wait_for(lambda: pair.members("a") == 1, TIMEOUT, "a goes on alone")
    publish(pair["a"], ("orders", "other"), range(5, 10))
    pair["a"].pause()
    pair["b"].resume()
    pair.promote("b", force=True)
    assert pair.contents("b", "orders") == ["m0", "m1", "m2", "m3", "m4"]


def drained(broker: BrokerProcess, queue: str) -> list[tuple[bytes, pika.BasicProperties]]:
    found = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append((got[2], got[1]))
    return found


def test_an_overtaken_primary_keeps_what_it_had_confirmed_and_gives_it_back(pair: Pair) -> None:
    overtake(pair)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", pair["b"].port)) as connection:
        connection.channel().queue_delete("other")
    pair["a"].resume()
    pair.in_state("a", "ready")
    assert pair.contents("a", "orders") == ["m0", "m1", "m2", "m3", "m4"]

    (event,) = pair.events("a", "salvage")
    name = event["attrs"]["file"]
    # m0 to m4 of the deleted queue were in b's log: they are gone because somebody wanted that.
    assert (event["attrs"]["count"], event["attrs"]["confirmed"]) == ("10", "10")
    wait_logged(pair["a"], f"10 messages that b does not have are put aside in {name}")
    assert (pair["a"].data_dir / "salvage" / name).exists()

    code, out = pair.qpid_ha("a", "list")
    assert code == 0
    assert name in out
    assert all(len(line) <= 80 for line in out.splitlines())
    shown = json.loads(pair.qpid_ha("a", "show", name, "--json")[1])
    for queue in ("orders", "other"):
        assert [m["body"] for m in shown["messages"] if m["queue"] == queue] == ["m5", "m6", "m7", "m8", "m9"]
    code, out = pair.qpid_ha("a", "show", name)
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())

    code, out = pair.qpid_ha("a", "restore", name)
    assert out.splitlines() == [
        "5 messages restored",
        "5 stay in the file, queue other: no such queue at the primary",
    ]
    assert code == 1
    assert len(pair.contents("b", "orders")) == 10
    wait_for(lambda: len(pair.contents("a", "orders")) == 10, TIMEOUT, "the restored messages")
    publish(pair["b"], ("other",), range(0))
    assert pair.qpid_ha("a", "restore", name) == (0, "5 messages restored, 5 were before\n")
    assert pair.qpid_ha("a", "restore", name) == (0, "0 messages restored, 10 were before\n")

    found = drained(pair["b"], "orders")
    assert [body for body, _ in found] == [b"m%d" % number for number in range(10)]
    for number, (_, properties) in enumerate(found):
        recovered = properties.headers.pop("x-recovered", None)
        assert (properties.headers, properties.message_id) == ({"n": number}, f"id{number}")
        assert properties.delivery_mode == 2
        assert (recovered is not None) == (number >= 5)
        if recovered:
            assert recovered["broker"] == "a"
            assert recovered["id"].startswith("1.")
    assert len(drained(pair["b"], "other")) == 5

    assert pair.qpid_ha("a", "discard", name, "--yes") == (
        0,
        f"{name} is discarded, with 0 messages that were not restored\n",
    )
    assert json.loads(pair.qpid_ha("a", "list", "--json")[1])["files"] == []
    assert list((pair["a"].data_dir / "salvage").iterdir()) == []


def test_a_full_disk_keeps_the_broker_out_until_there_is_room(pair: Pair) -> None:
    overtake(pair)
    # Not a directory: nothing can be written there.
    (pair["a"].data_dir / "salvage").write_text("in the way")
    pair["a"].resume()
    wait_for(lambda: pair.events("a", "salvage"), TIMEOUT, "a refuses to join")
    assert pair.events("a", "salvage")[0]["result"] == "failed"
    wait_for(lambda: "cannot be written to a salvage file" in pair.ask("a", "ha.query")["advice"], what="the advice")
    pair.in_state("a", "catchup")
    assert len(pair.contents("a", "orders")) == 10
    (pair["a"].data_dir / "salvage").unlink()
    pair.in_state("a", "ready")
    (file,) = json.loads(pair.qpid_ha("a", "list", "--json")[1])["files"]
    assert (file["found"], file["complete"], file["primary"]) == (10, True, "b")


def test_who_has_become_primary_itself_restores_to_itself(pair: Pair) -> None:
    overtake(pair)
    pair["a"].resume()
    pair.in_state("a", "ready")
    pair["b"].kill()
    pair.promote("a", force=True)
    (file,) = json.loads(pair.qpid_ha("a", "list", "--all", "--json")[1])[0]["files"]
    untold = f"not informed: {pair['b'].address}; files there may hold the same messages, not marked as restored"
    assert pair.qpid_ha("a", "restore", file["file"]) == (0, f"10 messages restored\n{untold}\n")
    assert pair.contents("a", "orders") == pair.contents("a", "other") == [f"m{number}" for number in range(10)]


def test_what_two_brokers_have_put_aside_comes_back_once(tmp_path: Path) -> None:
    """c has what a confirms, b has not; then b is promoted over both."""
    with formed(tmp_path, "availability", "abc") as trio:
        publish(trio["a"], ("orders",), range(5))
        trio["b"].pause()
        wait_for(lambda: trio.members("a") == 2, TIMEOUT, "a goes on without b")
        publish(trio["a"], ("orders",), range(5, 10))
        trio["c"].pause()
        trio["a"].pause()
        trio["b"].resume()
        trio.promote("b", force=True)
        for name in "ac":
            trio[name].resume()
        wait_for(lambda: all(trio.events(name, "salvage") for name in "ac"), TIMEOUT, "both files")
        files = [file for answer in trio.listed() for file in answer["files"]]
        assert [(file["broker"], file["found"], file["restored"]) for file in files] == [("a", 5, 0), ("c", 5, 0)]
        grades = [trio.events(name, "salvage")[0]["attrs"] for name in "ac"]
        assert (grades[0]["confirmed"], grades[1]["acknowledged"]) == ("5", "5")
        assert trio.qpid_ha("c", "restore", files[1]["file"]) == (0, "5 messages restored\n")
        assert [file["restored"] for answer in trio.listed() for file in answer["files"]] == [5, 5]
        assert trio.qpid_ha("a", "restore", files[0]["file"]) == (0, "0 messages restored, 5 were before\n")
        assert trio.contents("b", "orders") == [f"m{number}" for number in range(10)]


def test_an_ordinary_fail_over_puts_nothing_aside(pair: Pair) -> None:
    publish(pair["a"], ("orders",), range(10))
    pair["a"].pause()
    pair.promote("b", force=True)
    drained(pair["b"], "orders")
    pair["a"].resume()
    pair.in_state("a", "ready")
    wait_for(lambda: pair.contents("a", "orders") == [], TIMEOUT, "the dequeues")
    assert pair.events("a", "salvage") == []
    assert json.loads(pair.qpid_ha("a", "list", "--json")[1])["files"] == []


LATER = {"x-delayed-type": "direct"}


def delay(broker: BrokerProcess, bodies: list[bytes]) -> None:
    """Every message is confirmed when this returns, and waits for an hour."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for exchange in ("later", "never"):
            channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=LATER)
        for body in bodies:
            properties = pika.BasicProperties(headers={"x-delay": 3_600_000}, delivery_mode=2)
            for exchange in ("later", "never"):
                channel.basic_publish(exchange, "key", body, properties)


def delayed(pair: Pair, name: str) -> dict[str, int]:
    return {row["name"]: row["delayed"] for row in pair.ask(name, "exchange.list") if "delayed" in row}


def test_what_waits_for_its_time_is_put_aside_and_waits_again_when_it_is_restored(tmp_path: Path) -> None:
    with formed(tmp_path, "availability") as pair:
        delay(pair["a"], [b"both"])
        pair["b"].pause()
        wait_for(lambda: pair.members("a") == 1, TIMEOUT, "a goes on alone")
        delay(pair["a"], [b"one", b"two"])
        pair["a"].pause()
        pair["b"].resume()
        pair.promote("b", force=True)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", pair["b"].port)) as connection:
            connection.channel().exchange_delete("never")
        pair["a"].resume()
        pair.in_state("a", "ready")
        (event,) = pair.events("a", "salvage")
        assert event["attrs"]["count"] == "4"
        code, text = pair.qpid_ha("a", "restore", event["attrs"]["file"])
        assert (code, "2 stay in the file, queue amq.delayed.never: no such exchange" in text) == (1, True), text
        assert delayed(pair, "b") == {"later": 3}
