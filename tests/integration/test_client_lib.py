"""The client library against real brokers: processes that are killed, paused and restarted."""

import threading
import time

import pytest

from client_lib import Connection, Empty, Message, Returned
from demo.cluster import Cluster
from ha.qpid_cluster.main import settled
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for


class Load:
    """A sender and a receiver thread on one queue; remembers what was confirmed and what was fetched."""

    def __init__(self, addresses: str, queue: str = "load", **options) -> None:
        self.connection = Connection(addresses, heartbeat=1, connect_timeout=1.0, **options).open(20)
        self.confirmed: list[str] = []
        self.fetched: list[str | None] = []
        self.errors: list[Exception] = []
        self._stop = threading.Event()
        self.session = self.connection.session()
        self.session.declare_queue(queue, durable=True)
        self.sender = self.session.queue_sender(queue, capacity=200, on_settled=self._settled)
        self.receiver = self.session.queue_receiver(queue, capacity=100, drop_duplicates=True)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._fetch)]
        for thread in self._threads:
            thread.start()

    def _settled(self, _message: Message, message_id: str, error: Exception | None) -> None:
        if error is None:
            self.confirmed.append(message_id)
        else:
            self.errors.append(error)

    def _send(self) -> None:
        while not self._stop.wait(0.002):
            self.sender.send(b"x" * 1024, sync=False)

    def _fetch(self) -> None:
        for message in self.receiver:
            self.fetched.append(message.id)
            self.session.acknowledge(message, sync=False)

    def run_on(self, count: int = 500) -> None:
        goal = len(self.confirmed) + count
        wait_for(lambda: len(self.confirmed) >= goal, 60, f"{count} more confirms")

    def finish(self) -> None:
        """Everything sent is confirmed, in order; everything confirmed is fetched, once."""
        self._stop.set()
        self._threads[0].join(30)
        self.sender.sync(20)
        wait_for(lambda: len(set(self.fetched)) >= len(self.confirmed), 60, "all fetched")
        assert self.connection.close(5) == []
        self._threads[1].join(30)
        assert not self.errors
        assert self.confirmed == sorted(self.confirmed, key=lambda text: int(text.rpartition(":")[2]))
        assert len(self.confirmed) == len(set(self.confirmed))
        assert sorted(self.fetched, key=str) == sorted(self.confirmed)


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


def whole(cluster: Cluster) -> None:
    wait_for(lambda: settled(cluster.status()), 60, "one active, the others ready")


def promoted(cluster: Cluster, old: str) -> None:
    wait_for(lambda: cluster.primary not in ("", old), 60, "another primary")


def test_kill_and_return_twice(cluster) -> None:
    load = Load(cluster.addresses())
    for _ in range(2):
        load.run_on()
        old = cluster.primary
        cluster.command("kill", old)
        promoted(cluster, old)
        load.run_on()
        whole(cluster)
    load.finish()
    assert load.connection.failovers >= 2


@pytest.mark.slow  # tests/integration/test_client_aio.py does it, and test_failover.py with this style
def test_pause_of_the_primary(cluster) -> None:
    outages = []

    def note(event) -> None:
        if event["kind"] == "connected" and "outage_us" in event.get("attrs", {}):
            outages.append(int(event["attrs"]["outage_us"]))

    load = Load(cluster.addresses(), on_event=note)
    load.run_on()
    old = cluster.primary
    cluster.command("pause", old)
    promoted(cluster, old)
    load.run_on()
    cluster.command("start", old)
    whole(cluster)
    load.run_on()
    load.finish()
    assert outages and max(outages) < 20_000_000


def test_backups_refuse_and_name_the_primary(cluster) -> None:
    backup = next(node for node in cluster.status()["nodes"] if node["state"] == "ready")
    refusals = []
    began = time.monotonic()
    with Connection(backup["address"], on_event=lambda event: refusals.append(event)).open(30) as connection:
        assert time.monotonic() - began < 20
        assert str(connection.address) == cluster.node(cluster.primary)["address"]
    assert [event["result"] for event in refusals if event["kind"] == "connect_refused"] == ["320"]


def test_topology_and_returns(cluster) -> None:
    with Connection(cluster.addresses(), heartbeat=1) as connection:
        session = connection.session()
        queue = session.declare_queue(exclusive=True)
        session.declare_exchange("test.topic", "topic")
        session.bind_queue(queue, "test.topic", "a.#")
        receiver = session.receiver(queue)
        sender = session.queue_sender(exchange="test.topic", mandatory=True)
        for number in range(2):
            sender.send(Message(str(number), subject="a.b"), timeout=30)
            message = receiver.fetch(30)
            assert (message.content, message.subject) == (str(number), "a.b")
            session.acknowledge(message, sync=False)
            with pytest.raises(Returned):
                sender.send(Message("lost", subject="b"), timeout=30)
            if number == 0:
                old = cluster.primary
                cluster.command("kill", old)
                promoted(cluster, old)
        with pytest.raises(Empty):
            receiver.fetch(0.1)
        session.delete_exchange("test.topic")


def test_a_paused_broker_is_left_while_idle(tmp_path) -> None:
    first, second = BrokerProcess(tmp_path, name="first"), BrokerProcess(tmp_path, name="second")
    with first, second, Connection([first.address, second.address], heartbeat=1, connect_timeout=1.0) as connection:
        session = connection.session()
        queue = session.declare_queue("q", durable=True)
        receiver = session.receiver(queue)
        used = first if str(connection.address) == first.address else second  # the first one may have been slow
        used.pause()
        began = time.monotonic()
        wait_for(lambda: connection.failovers == 1 and connection.is_connected)
        assert time.monotonic() - began < 20
        session.sender(queue).send("here", timeout=30)
        assert receiver.fetch(30).content == "here"
        used.resume()


def test_a_broker_that_returns_on_its_port(tmp_path) -> None:
    with BrokerProcess(tmp_path) as broker, Connection(broker.address, heartbeat=1) as connection:
        session = connection.session()
        sender = session.sender(session.declare_queue("q", durable=True))
        sender.send("before", timeout=30)
        broker.kill()
        message_id = sender.send("after", sync=False)
        assert sender.unsettled() == 1
        broker.start()
        sender.sync(20)
        receiver = session.receiver("q")
        while (message := receiver.fetch(30)).id != message_id:
            session.acknowledge(message, sync=False)
        session.acknowledge(message, sync=False)
        session.sync(30)


def test_close_of_a_connection_to_a_paused_broker(tmp_path) -> None:
    with BrokerProcess(tmp_path) as broker:
        connection = Connection(broker.address, heartbeat=30).open(30)
        sender = connection.session().queue_sender("nowhere")
        broker.pause()
        message = Message("in doubt")
        sender.send(message, sync=False)
        began = time.monotonic()
        assert connection.close(0.5) == [message]
        assert time.monotonic() - began < 20


def test_exchanges_are_bound_to_exchanges_and_unbound(tmp_path) -> None:
    with BrokerProcess(tmp_path) as broker, Connection(broker.address, heartbeat=1) as connection:
        session = connection.session()
        for exchange in ("source", "destination"):
            session.declare_exchange(exchange, "fanout")
        queue = session.declare_queue()
        session.bind_queue(queue, "destination")
        session.bind_exchange("destination", "source")
        sender = session.queue_sender(exchange="source", mandatory=True)
        sender.send("through both", timeout=30)
        message = session.get(queue, timeout=30)
        assert message is not None and message.content == "through both"
        session.unbind_exchange("destination", "source")
        with pytest.raises(Returned):
            sender.send("nowhere", timeout=30)
        session.unbind_queue(queue, "destination")
        assert session.purge_queue(queue) == 0
        session.delete_queue(queue)
