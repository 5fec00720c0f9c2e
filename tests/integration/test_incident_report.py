"""A real fail-over and its report: what the logs tell is what the application saw with its own clock."""

import json
import threading
import time
from itertools import pairwise

import pytest

from client_lib import Connection, Empty, Message
from client_lib.connecting.incoming import Incoming
from client_lib.connecting.transport import Transport
from demo import morning_after
from demo.cluster import Cluster
from tests.support.wait import wait_for

QUEUE = "work"
ACK = b"\x00\x3c\x00\x50"  # class and method of basic.ack
OPEN_OK = b"\x00\x0a\x00\x29"  # and of connection.open-ok


def micro():
    return time.monotonic_ns() // 1000


class Wire:
    """When the library's threads handed octets to its sockets and got some: however long a busy machine makes them
    wait, what the library notes about a publish or a confirm lies between these moments and the application's."""

    def __init__(self, patch):
        self.written, self.acked, self.opened = [], [], []
        write, read = Transport.write, Incoming.feed

        def noting_write(transport, data):
            write(transport, data)
            self.written.append((micro(), data))

        def noting_read(incoming, data):
            if ACK in data:
                self.acked.append(micro())
            if OPEN_OK in data:
                self.opened.append(micro())
            read(incoming, data)

        patch.setattr(Transport, "write", noting_write)
        patch.setattr(Incoming, "feed", noting_read)

    def left(self, id):
        """When the message had been handed to a socket for the first time."""
        return next(moment for moment, data in self.written if id.encode() in data)

    def first_ack(self, since):
        return min(moment for moment in self.acked if moment > since)

    def back(self, begin, why, error):
        """When the wait from `begin` on ended.  If the library had sent all that it was given, and that was confirmed,
        it waited for its connection only."""
        if "confirm" in why:
            return self.first_ack(begin + error)
        return min(moment for moment in self.opened if moment > begin)


class Application:
    """A producer and a consumer that note when they called the library and when it called them."""

    def __init__(self, addresses, directory, wire):
        self.wire = wire
        self.addresses, self.directory = addresses, directory
        self.called, self.settled, self.received = {}, {}, []
        self.enough, self.over = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.produce, self.consume)]
        for thread in self.threads:
            thread.start()

    def connect(self, name):
        return Connection(self.addresses, heartbeat=1, client_id=name, event_log=str(self.directory), cluster="demo")

    def produce(self):
        with self.connect("p") as connection:
            session = connection.session()
            session.declare_queue(QUEUE, durable=True)
            sender = session.sender(QUEUE, capacity=500, on_settled=self.on_settled)
            while not self.enough.wait(0.002):
                id = f"p:{len(self.called) + 1}"
                self.called[id] = micro()
                sender.send(Message(b"x", id=id), sync=False)
            sender.close()

    def on_settled(self, _message, id, error):
        if error is None:
            self.settled[id] = micro()

    def consume(self):
        with self.connect("c") as connection:
            session = connection.session()
            session.declare_queue(QUEUE, durable=True)
            receiver = session.receiver(QUEUE, capacity=100)
            while not self.over.is_set():
                try:
                    message = receiver.fetch(timeout=0.1)
                except Empty:
                    continue
                session.acknowledge(message, sync=False)
                self.received.append(str(message.id))
            session.sync(timeout=10.0)
            session.events.fact("drain_end", queue=QUEUE, result="ok")

    def waits_since(self, moment, shortest):
        """When the waits of at least `shortest` began that overlap the one from `moment` on: the report calls them one
        outage.  On a busy machine the last message before the kill may wait that long, too."""
        for id, called in reversed(self.called.items()):
            answered = self.settled.get(id, moment)
            if called < moment <= answered and answered - called >= shortest:
                moment = called
        return moment

    def served(self, since):
        return any(moment > since for moment in self.settled.values())

    def finish(self):
        self.enough.set()
        self.threads[0].join(30.0)
        wait_for(lambda: self.settled.keys() <= set(self.received), 60, "everything is received")
        self.over.set()
        self.threads[1].join(30.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(what the application saw, killed node, moment of the kill, moment of the promotion, report.json, incident)"""
    directory = tmp_path_factory.mktemp("failover")
    cluster = Cluster(directory)
    patch = pytest.MonkeyPatch()
    try:
        cluster.up()
        application = Application(cluster.addresses(), directory / "events", Wire(patch))
        wait_for(lambda: len(application.settled) > 300, 60, "the load is steady")
        victim = cluster.primary
        killed = cluster.command("kill", victim)
        wait_for(lambda: cluster.primary not in ("", victim), 60, "another primary")
        wait_for(lambda: application.served(micro() - 100_000), 60, "served again")
        wait_for(lambda: cluster.node(victim).get("state") == "ready", 60, "all backups are back")
        application.finish()
        successor = cluster.primary
    finally:
        patch.undo()
        cluster.down()
    logs = [directory / "events", *sorted(directory.glob("node*/events")), *sorted(directory.glob("*.log"))]
    overview = morning_after.report(logs, directory / "report", "--engine", "duckdb", "--shortest", "5ms")
    return application, victim, successor, killed, overview, directory / "report"


def test_the_fail_over_is_found(run):
    _, victim, successor, killed, overview, out = run
    (found,) = [row for row in overview["incidents"] if row["failover"]]
    assert (found["type"], found["old_primary"], found["new_primary"]) == ("kill", victim, successor)
    assert found["dual"] in (None, "excluded")
    incident = json.loads((out / f"incident-{found['number']}.json").read_text())
    phases = {row["phase"]: row for row in incident["phases"]}
    wall = time.time_ns() // 1000 - micro()
    assert abs(phases["detection"]["begin"] - wall - killed) < 1_000_000, phases["detection"]
    assert (out / "report.html").stat().st_size > 10_000


def test_the_outage_is_what_the_application_measured(run):
    application, _, _, killed, _, out = run
    incident = json.loads((out / "incident-1.json").read_text())
    # The largest: a pause between the two readings makes it too small.
    wall = max(time.time_ns() // 1000 - micro() for _ in range(50))
    rows = [row for row in incident["outages"] if row["client_id"] == "p"]
    mine = [(row["ts_begin"] - wall, row["ts_end"] - wall, row["why"]) for row in rows]
    begin, end, why = max((row for row in mine if row[1] > killed), key=lambda row: row[1] - row[0])
    seen = min(pairwise(sorted(application.settled.values())), key=lambda gap: abs(gap[1] - end))
    called, first = min((called, id) for id, called in application.called.items() if seen[0] < application.settled[id])
    error = 5_000  # the target of the analysis, and the shortest outage that `run` asks for
    began = application.waits_since(called, error)
    assert min(began, killed) - error <= begin <= max(application.wire.left(first), seen[0]) + error
    assert application.wire.back(begin, why, error) - error <= end <= seen[1] + error


def test_the_messages_are_those_that_the_application_counted(run):
    application, _, _, _, overview, out = run
    total = overview["messages"]["total"]
    assert (total["attempts"], total["confirmed"]) == (len(application.called), len(application.settled))
    assert (total["lost"], total["unaccounted"], total["unexpected"]) == (0, 0, 0)
    assert total["duplicated"] == len(application.received) - len(set(application.received))
    assert morning_after.check(out, "--max-lost", "0", "--max-unaccounted", "0", "--no-dual-primary") == []
    assert morning_after.check(out, "--max-outage", "1ms")  # it can fail
