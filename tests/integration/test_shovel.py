"""`qpid-shovel` beside real clusters: what fail-overs on either side do to what it moves, and how it is steered."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from client_lib import Connection, Message
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from tests.integration.test_users import LOGIN, Users, channel
from tests.support import programs
from tests.support.certificates import Authority, needs_openssl
from tests.support.members import TIME
from tests.support.process import BrokerProcess, HeldPort
from tests.support.rabbit import rabbit_cluster
from tests.support.wait import wait_for


class Worker:
    """A `qpid-shovel` beside a broker."""

    def __init__(self, broker: BrokerProcess, folder: Path, *options: str) -> None:
        """`options` replace the address and the login."""
        self._log = folder / f"shovel-{broker.port}.log"
        where = options or ("-b", f"{LOGIN}@{broker.address}")
        command = [sys.executable, "-m", "qpidd_py.shovel.main", *where, "--timeout", "2"]
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(TIME)
        assert "Traceback" not in self.log, self.log

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIME)


@contextlib.contextmanager
def up(folder: Path, names: str = "abc", *options: str) -> Iterator[Users]:
    folder.mkdir()
    cluster = Users(folder, *options, names=names)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.close()


def url(cluster: Users) -> list[str]:
    return [f"amqp://ha:ha-password@{broker.address}" for broker in cluster.brokers.values()]


def drained(cluster: Users, queue: str, last: int) -> list[Message]:
    """All messages until the last one was seen and there is none any more."""
    found: list[Message] = []
    with Connection(url(cluster)) as connection:
        session = connection.session()
        receiver = session.receiver(queue)

        def done() -> bool:
            while (message := receiver.poll(0.2)) is not None:
                found.append(message)
                session.acknowledge(message, sync=False)
            return len({each.id for each in found}) >= last

        wait_for(done, TIME, lambda: f"{last} messages, found {len(found)}")
    return found


def shovels(cluster: Users, name: str = "a") -> list[dict[str, Any]]:
    return cluster.ask(name, "shovel.list")  # type: ignore[no-any-return]


def publish(cluster: Users, address: str, numbers: Iterable[int]) -> None:
    """Confirmed.  A queue is made where it is missing."""
    with Connection(url(cluster)) as connection:
        sender = connection.session().sender(f"{address}; {{create: always, node: {{durable: True}}}}")
        for number in numbers:
            sender.send(Message(b"%d" % number), sync=False)
        sender.sync(TIME)


def test_fail_overs_on_both_sides_lose_nothing(tmp_path: Path) -> None:
    """The destination hangs with messages on their way, the machine of the source dies, then the destination does."""
    step, window = 1000, 100
    with contextlib.ExitStack() as stack:
        source, destination = (stack.enter_context(up(tmp_path / name)) for name in ("source", "destination"))
        workers = {name: stack.enter_context(Worker(broker, tmp_path)) for name, broker in source.brokers.items()}
        value = {"src-uri": "amqp://", "src-queue": "orders", "dest-uri": url(destination), "dest-queue": "orders"}
        source.ctl("set_parameter", "shovel", "s", json.dumps({**value, "src-prefetch-count": window}))
        publish(source, "orders", range(step))
        wait_for(lambda: shovels(source)[0]["moved"] == step, TIME, lambda: str(shovels(source)))
        destination.brokers["a"].pause()
        publish(source, "orders", range(step, 2 * step))
        wait_for(lambda: shovels(source)[0]["pending"] == window, TIME, lambda: str(shovels(source)))
        workers["a"].kill()
        source.brokers["a"].kill()
        primary = source.promote_newest("b", "c")
        destination.brokers["a"].kill()
        destination.promote_newest("b", "c")
        publish(source, "orders", range(2 * step, 3 * step))
        seen: set[bytes] = set()
        for message in drained(destination, "orders", 3 * step):
            assert message.body not in seen or message.resent or message.redelivered
            seen.add(message.body)
        assert seen == {b"%d" % number for number in range(3 * step)}
        wait_for(lambda: depth(source, primary, "orders") == (0, 0), TIME, "all was acknowledged")
        wait_for(lambda: shovels(source, primary)[0]["state"] == "running", TIME, lambda: workers[primary].log)


def test_a_durable_route_misses_nothing(tmp_path: Path) -> None:
    """Its source fails over, and its worker is killed, with messages published to the exchange all the time."""
    step = 300
    with contextlib.ExitStack() as stack:
        source, here = stack.enter_context(up(tmp_path / "source")), stack.enter_context(up(tmp_path / "here", "a"))
        beside = stack.enter_context(Worker(here.brokers["a"], tmp_path))
        far = f"ha/ha-password@{','.join(broker.address for broker in source.brokers.values())}"
        near = f"{LOGIN}@{here.brokers['a'].address}"
        command = [sys.executable, "-m", "qpidd_py.cli.qpid_route", "-d", "route", "add", near, far, "amq.topic", "a.#"]
        assert programs.run(command, timeout=TIME, capture_output=True, text=True).stdout == ""
        receiving = channel(here.brokers["a"], "ha", "ha-password")
        receiving.queue_declare("arrived", durable=True)
        receiving.queue_bind("arrived", "amq.topic", "a.#")
        wait_for(lambda: shovels(here)[0]["state"] == "running", TIME, lambda: str(shovels(here)))
        publish(source, "amq.topic/a.b", range(step))
        source.brokers["a"].kill()
        source.promote_newest("b", "c")
        publish(source, "amq.topic/a.b", range(step, 2 * step))
        beside.kill()
        publish(source, "amq.topic/a.b", range(2 * step, 3 * step))
        stack.enter_context(Worker(here.brokers["a"], tmp_path))
        found = drained(here, "arrived", 3 * step)
        assert {message.body for message in found} == {b"%d" % number for number in range(3 * step)}


@needs_openssl
def test_both_ends_with_tls(tmp_path: Path) -> None:
    authority, held = Authority(tmp_path / "ca"), HeldPort()
    tls = (
        "--ssl-port",
        str(held.port),
        "--ssl-cert",
        str(authority.certificate("broker")),
        "--require-encryption",
        "yes",
    )
    place = f"127.0.0.1:{held.port}"
    with BrokerProcess(tmp_path) as broker:
        broker.stop()
        held.release()
        broker.options = [*broker.options, *tls]
        broker.start()
        trusted = ("--ssl-ca", str(authority.file), "-b", f"guest/guest@ssl:{place}")
        command = [sys.executable, "-m", "qpidd_py.cli.qpidctl", *trusted]
        with Worker(broker, tmp_path, *trusted) as beside:
            uri = f"amqps://{place}?cacertfile={authority.file}"
            value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": uri, "dest-queue": "b"}
            programs.run([*command, "set_parameter", "shovel", "s", json.dumps(value)], timeout=TIME, check=True)

            def status() -> str:
                return str(
                    programs.run([*command, "shovel_status"], timeout=TIME, capture_output=True, text=True).stdout
                )

            wait_for(lambda: f"running\t{place}\t{place}" in status(), TIME, lambda: status() + beside.log)


def depth(cluster: Users, name: str, queue: str) -> tuple[int, int]:
    (found,) = (each for each in cluster.ask(name, "queue.list") if each["name"] == queue)
    return found["ready"], found["unacked"]


# ---- one broker, and a worker beside it


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Users, Worker]]:
    folder = tmp_path_factory.mktemp("lone")
    with up(folder / "cluster", "a") as cluster, Worker(cluster.brokers["a"], folder) as beside:
        yield cluster, beside


class House:
    """Shovels within one broker."""

    def __init__(self, lone: tuple[Users, Worker], name: str) -> None:
        self.cluster, self.worker = lone
        self.name = name
        self.source, self.target = f"{name}.from", f"{name}.to"
        self.pika = channel(self.cluster.brokers["a"], "ha", "ha-password")

    def set(self, **keys: Any) -> None:
        value = {"src-uri": "amqp://", "src-queue": self.source, "dest-uri": "amqp://", "dest-queue": self.target}
        value |= {key.replace("_", "-"): each for key, each in keys.items()}
        value = {key: each for key, each in value.items() if each is not None}
        self.cluster.ctl("set_parameter", "shovel", self.name, json.dumps(value))

    def clear(self) -> None:
        self.cluster.ctl("clear_parameter", "shovel", self.name)
        words = [f"shovel {self.name}: {word}" for word in ("begins\n", "ends\n")]
        wait_for(lambda: len({self.worker.log.count(each) for each in words}) == 1, TIME, "it has ended")

    @property
    def status(self) -> dict[str, Any]:
        return next((each for each in shovels(self.cluster) if each["name"] == self.name), {})

    def comes(self, **wanted: Any) -> None:
        def found() -> bool:
            return {name: self.status.get(name) for name in wanted} == wanted

        wait_for(found, TIME, lambda: f"{wanted}: {self.status} {self.worker.log}")

    def goes(self) -> None:
        wait_for(lambda: not self.status, TIME, lambda: f"it is gone: {self.status} {self.worker.log}")

    def get(self, queue: str = "") -> tuple[pika.BasicProperties, bytes]:
        def got() -> Any:
            _, properties, body = self.pika.basic_get(queue or self.target, auto_ack=True)
            return None if properties is None else (properties, body)

        properties, body = wait_for(got, TIME, lambda: f"a message: {self.status} {self.worker.log}")
        return properties, body

    def count(self, queue: str) -> int:
        return int(self.pika.queue_declare(queue, passive=True).method.message_count)


@pytest.fixture
def house(lone: tuple[Users, Worker], request: pytest.FixtureRequest) -> Iterator[House]:
    found = House(lone, request.node.name.replace("[", ".").replace("]", ""))
    yield found
    if found.status:
        found.clear()


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_a_message_goes_on_unchanged(house: House, mode: str) -> None:
    given = pika.BasicProperties(
        content_type="text/x", headers={"a": 1, "b": b"\xff"}, priority=3, expiration="600000", app_id="we", type="t"
    )
    house.set(ack_mode=mode)
    house.comes(state="running")
    house.pika.basic_publish("", house.source, b"\x00body", given)
    properties, body = house.get()
    assert body == b"\x00body" and properties.message_id
    properties.message_id = None
    assert properties == given
    house.comes(moved=1, pending=0)
    wait_for(lambda: depth(house.cluster, "a", house.source) == (0, 0), TIME, "it is acknowledged")


def test_what_is_asked_for_is_set(house: House) -> None:
    house.set(
        dest_publish_properties={"delivery_mode": 2, "user_id": "ha"},
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_queue_args={"x-max-length": 7},
    )
    house.comes(state="running")
    house.pika.basic_publish("", house.source, b"", pika.BasicProperties(headers={"x-shovelled": [{"first": True}]}))
    properties, _ = house.get()
    assert (properties.delivery_mode, properties.user_id) == (2, "ha")
    ways = properties.headers["x-shovelled"]
    assert ways[0]["src-queue"] == house.source and ways[0]["shovel-name"] == house.name and ways[1] == {"first": True}
    assert abs(properties.headers["x-shovelled-timestamp"] - time.time()) < TIME
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="x-max-length"):
        house.pika.queue_declare(house.target, durable=True)


def test_from_exchange_to_exchange(house: House) -> None:
    house.pika.queue_declare("there")
    house.pika.queue_bind("there", "amq.direct", "a.b")
    house.set(
        src_queue=None, src_exchange="amq.topic", src_exchange_key="a.#", dest_queue=None, dest_exchange="amq.direct"
    )
    house.comes(state="running")
    house.pika.basic_publish("amq.topic", "a.b", b"with its key")
    assert house.get("there")[1] == b"with its key"
    house.clear()
    ends = {"src_queue": None, "dest_queue": None, "src_exchange": "amq.topic", "dest_exchange": "amq.direct"}
    house.set(**ends, src_exchange_key="c", src_exchange_queue="kept", dest_exchange_key="a.b")
    house.comes(state="running")
    house.clear()
    house.pika.basic_publish("amq.topic", "c", b"while it did not run")
    house.set(src_queue="kept")
    house.comes(state="running")
    assert house.get()[1] == b"while it did not run"


def test_tags_end_a_circle(house: House) -> None:
    """Two exchanges with a route to each other."""
    for name in ("one", "two"):
        house.pika.exchange_declare(name, "topic", durable=True)
        house.pika.queue_declare(f"at.{name}")
        house.pika.queue_bind(f"at.{name}", name, "#")
    other, found = House((house.cluster, house.worker), f"{house.name}.back"), []
    for each, (source, target) in ((house, ("one", "two")), (other, ("two", "one"))):
        ends = {"src_queue": None, "dest_queue": None, "src_exchange": source, "dest_exchange": target}
        each.set(**ends, src_exchange_key="#", dest_add_trace=f"by-{source}", src_exclude_traces=[f"by-{target}"])
        each.comes(state="running")
    house.pika.basic_publish("one", "k", b"from one")
    house.pika.basic_publish("two", "k", b"from two")
    for name in ("one", "two"):
        found += [(name, (house.get(f"at.{name}"))) for _ in range(2)]
    ways = sorted((name, body, (properties.headers or {}).get("x-qpid.trace")) for name, (properties, body) in found)
    there = [("one", b"from one", None), ("one", b"from two", "by-two")]
    assert ways == [*there, ("two", b"from one", "by-one"), ("two", b"from two", None)]
    house.comes(moved=1, pending=0)
    other.comes(moved=1, pending=0)
    assert house.count("at.one") == house.count("at.two") == 0
    other.clear()


@pytest.mark.parametrize("after", ["queue-length", 5])
def test_it_deletes_itself(house: House, after: Any) -> None:
    house.pika.confirm_delivery()
    house.pika.queue_declare(house.source, durable=True)
    for number in range(5):
        house.pika.basic_publish("", house.source, b"%d" % number)
    if after == 5:
        house.pika.basic_publish("", house.source, b"not this one")
    house.set(src_delete_after=after, src_prefetch_count=2)
    house.goes()
    assert [house.get()[1] for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert (house.count(house.source), house.count(house.target)) == (after == 5, 0)


def test_a_shovel_that_cannot_run_says_why_and_disturbs_no_other(house: House) -> None:
    broken: dict[str, tuple[dict[str, Any], str]] = {
        "login": ({"dest_uri": "amqp://ha:wrong@127.0.0.1:PORT"}, "AuthenticationFailure"),
        "place": ({"dest_uri": "amqp://ha:secret@127.0.0.1:1"}, "refused"),
        "uri": ({"dest_uri": "amqp://ha:secret@h?colour=5"}, "unknown parameter 'colour'"),
        "exchange": (
            {"dest_uri": "amqp://ha:ha-password@127.0.0.1:PORT", "dest_queue": None, "dest_exchange": "none"},
            "no exchange 'none'",
        ),
    }
    port = str(house.cluster.brokers["a"].port)
    others = {}
    for name, (keys, _) in broken.items():
        others[name] = other = House((house.cluster, house.worker), f"{house.name}.{name}")
        other.set(**{key: each and each.replace("PORT", port) for key, each in keys.items()})
    house.set()
    for name, (_, reason) in broken.items():
        wait_for(lambda: reason in others[name].status["reason"], TIME, lambda: f"{reason}: {others[name].status}")  # noqa: B023
        assert others[name].status["state"] != "running"
    house.comes(state="running")
    house.pika.basic_publish("", house.source, b"x")
    assert house.get()[1] == b"x"
    for other in others.values():
        other.clear()
    text = house.worker.log + json.dumps(shovels(house.cluster)) + house.cluster.ctl("shovel_status")
    assert "secret" not in text and "wrong" not in text and "ha-password" not in text
    assert "secret" not in house.cluster.brokers["a"].log


def test_what_the_destination_refuses_stays_at_the_source(house: House) -> None:
    house.pika.queue_declare(house.target, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    house.set(src_prefetch_count=3)
    house.comes(state="running")
    for number in range(3):
        house.pika.basic_publish("", house.source, b"%d" % number)
    wait_for(lambda: "Rejected" in house.status["reason"], TIME, lambda: str(house.status))
    assert [house.get()[1] for _ in range(3)] == [b"0", b"1", b"2"]


def test_a_restart_ends_a_long_delay_and_loses_nothing(house: House) -> None:
    far = f"amqp://ha:ha-password@{house.cluster.brokers['a'].address}"
    house.set(dest_uri=far, dest_queue=None, dest_exchange="later", dest_exchange_key="k", reconnect_delay=3600)
    wait_for(lambda: "no exchange 'later'" in house.status["reason"], TIME, lambda: str(house.status))
    house.pika.exchange_declare("later", "direct", durable=True)
    house.pika.queue_declare(house.target, durable=True)
    house.pika.queue_bind(house.target, "later", "k")
    house.pika.basic_publish("", house.source, b"1")
    assert house.cluster.ctl("restart_shovel", house.name) == ""
    assert house.get()[1] == b"1"
    house.comes(state="running", moved=1)
    for _ in range(3):
        house.cluster.ctl("restart_shovel", house.name)
    wait_for(lambda: house.worker.log.count(f"shovel {house.name}: begins\n") >= 3, TIME, lambda: house.worker.log)
    house.pika.basic_publish("", house.source, b"2")
    assert house.get()[1] == b"2"
    house.comes(state="running", moved=2)
    assert "no shovel 'none'" in house.cluster.ctl("restart_shovel", "none", code=1)


@pytest.fixture(scope="module")
def rabbit() -> Iterator[str]:
    """The address of a RabbitMQ."""
    with rabbit_cluster() as found:
        yield f"amqp://guest:guest@127.0.0.1:{found.ports[0]}"


def test_from_and_to_a_rabbitmq(house: House, rabbit: str) -> None:
    back = House((house.cluster, house.worker), f"{house.name}.back")
    house.set(dest_uri=rabbit)
    back.set(src_uri=rabbit, src_queue=house.target, dest_queue="home")
    back.comes(state="running")
    given = pika.BasicProperties(headers={"a": 1}, message_id="m", delivery_mode=2)
    house.pika.basic_publish("", house.source, b"there and back", given)
    assert house.get("home") == (given, b"there and back")
    back.clear()


def test_restarts_on_the_way_through_a_rabbitmq_lose_nothing(house: House, rabbit: str) -> None:
    back, number = House((house.cluster, house.worker), f"{house.name}.back"), 2000
    house.set(dest_uri=rabbit, src_prefetch_count=50)
    back.set(src_uri=rabbit, src_queue=house.target, dest_queue=f"{house.name}.home", src_prefetch_count=50)
    back.comes(state="running")
    house.pika.confirm_delivery()
    for each in range(number):
        house.pika.basic_publish("", house.source, b"%d" % each)
        if each % 400 == 100:
            house.cluster.ctl("restart_shovel", house.name if each % 800 == 100 else back.name)
    seen: set[bytes] = set()

    def all_there() -> bool:
        while True:
            _, properties, body = house.pika.basic_get(f"{house.name}.home", auto_ack=True)
            if properties is None:
                return len(seen) == number
            seen.add(body)

    wait_for(all_there, TIME, lambda: f"{number} messages, found {len(seen)}: {house.status} {back.status}")
    assert seen == {b"%d" % each for each in range(number)}
    back.clear()


def test_a_route_through_a_fanout_of_a_rabbitmq(house: House, rabbit: str) -> None:
    """Its exclusive queue goes with the connection, also when the shovel is restarted."""
    house.set(src_uri=rabbit, src_queue=None, src_exchange="amq.fanout")
    house.comes(state="running")
    there = pika.BlockingConnection(pika.URLParameters(rabbit)).channel()
    there.basic_publish("amq.fanout", "k", b"1")
    assert house.get()[1] == b"1"
    begun = house.worker.log.count(f"shovel {house.name}: begins\n")
    house.cluster.ctl("restart_shovel", house.name)
    wait_for(lambda: house.worker.log.count(f"shovel {house.name}: begins\n") > begun, TIME, lambda: house.worker.log)
    house.comes(state="running", moved=1)
    there.basic_publish("amq.fanout", "k", b"2")
    assert house.get()[1] == b"2"
    there.connection.close()


def test_who_may_see_and_set_shovels(house: House) -> None:
    value = json.dumps({"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:secret@h", "dest-queue": "b"})
    ctl = house.cluster.ctl
    ctl("add_user", "anna", "x")
    ctl("set_permissions", "anna", ".*", ".*", ".*")
    ctl("set_user_tags", "anna", "monitoring")
    parameter = ("set_parameter", "shovel", "s", value), ("list_parameters",), ("clear_parameter", "shovel", "s")
    for words in (*parameter, ("restart_shovel", "s")):
        assert "has no tag policymaker or administrator" in ctl(*words, login="anna/x", code=1)
    assert ctl("shovel_status", login="anna/x").startswith("vhost\tname\tstate")
    ctl("set_user_tags", "anna", "policymaker")
    ctl("set_parameter", "shovel", house.name, value, login="anna/x")
    ctl("set_permissions", "anna", "^mine$", "^(mine|amq.default)$", "^mine$")
    words = ("set_parameter", "shovel", "t")
    for keys, text in (
        ({"src-queue": "a"}, "read access to src-queue 'a' refused for user 'anna'"),
        ({"src-queue": None, "src-exchange": "x"}, "read access to src-exchange 'x' refused"),
        (
            {"src-uri": "amqp://h", "dest-uri": "amqp:///%2f", "dest-queue": None, "dest-exchange": "x"},
            "write access to",
        ),
        ({"src-uri": "amqp://h", "dest-uri": ["amqp://"], "dest-queue": None}, "may not write all exchanges"),
    ):
        asked = {name: each for name, each in {**json.loads(value), **keys}.items() if each is not None}
        assert text in ctl(*words, json.dumps(asked), login="anna/x", code=1)
    ctl(*words, json.dumps({**json.loads(value), "src-queue": "mine"}), login="anna/x")
    ctl("clear_parameter", "shovel", "t", login="anna/x")
    assert "secret" in ctl("list_parameters", login="anna/x")
    target = Target("127.0.0.1", house.cluster.brokers["a"].port, Login("anna", "x", ""))
    with ManagementSocket(target, Deadline(TIME)) as anna, pytest.raises(RequestRefused, match="no tag administrator"):
        anna.request("shovel.report", {"shovels": []})
    assert "federation by upstreams is not here" in ctl("set_parameter", "federation-upstream", "f", "{}", code=1)
    assert "no JSON" in ctl("set_parameter", "shovel", "s", "{", code=1)
    assert "no shovel 'none'" in ctl("clear_parameter", "shovel", "none", code=1)
    ctl("delete_user", "anna")
