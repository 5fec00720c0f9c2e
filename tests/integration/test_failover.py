"""Fail-over with real processes under load: whatever dies or hangs, no confirmed message is lost.

The clients are those of the demo, each a process of its own; the count is Jepsen's (testkit/judge.py).
"""

from functools import partial

import pytest

from demo.cluster import Clients, Cluster, wait_for
from demo.events import read
from ha.qpid_cluster.main import settled
from testkit.library_events import LibraryHistory


class Lab:
    """A cluster with clients."""

    def __init__(self, directory):
        self.cluster = Cluster(directory)
        self.cluster.up()
        self.clients = Clients(directory, self.cluster.addresses())
        self.directory = directory

    def load(self, style="plain", queues=2, rate=150.0, consumers=True):
        for number in range(1, queues + 1):
            if consumers:
                self.clients.start("consumer", style, f"c{number}", f"q{number}")
            self.clients.start("producer", style, f"p{number}", f"q{number}", rate)
        wait_for("progress", lambda: self.moved_since(0), 60)
        self.run_on(500)

    def moved_since(self, moment):
        self.clients.check()
        return len(self.clients.served_since(moment)) == len(self.clients.all)

    def run_on(self, messages, timeout=30):
        """Until so many more messages are confirmed."""
        goal = self.clients.total("producer") + messages
        self.clients.check()
        wait_for(f"{messages} more confirms", lambda: self.clients.total("producer") >= goal, timeout)

    def settled(self, timeout=25):
        wait_for("one active, the others ready", lambda: settled(self.cluster.status()), timeout, 0.05)

    def new_primary(self, old, timeout=15):
        def found():
            name = self.cluster.primary
            return name if name not in ("", old) else None

        return wait_for("another primary", found, timeout)

    def inflict(self, command, node, **arguments):
        return self.cluster.command(command, node, **arguments)

    def served_after(self, moment, timeout=30):
        wait_for("every client is served again", lambda: self.moved_since(moment), timeout)

    def verdict(self):
        self.clients.stop("producer", 40)
        if not self.clients.of("consumer"):
            for queue in sorted({client.queue for client in self.clients.all}):
                self.clients.start("consumer", "plain", f"drain-{queue}", queue)
            wait_for("the drain to begin", lambda: all(
                self.clients.board.read(c.slot).done for c in self.clients.of("consumer")), 60)  # fmt: skip
        self.clients.stop("consumer", 60)
        found = LibraryHistory().add(read(self.directory / "events")).verdict()
        assert found.valid, found
        assert found.confirmed > 0
        return found


@pytest.fixture
def lab(tmp_path):
    found = None
    try:
        found = Lab(tmp_path)
        yield found
    finally:
        if found is not None:
            found.clients.kill()
            found.cluster.down()


def silent(lab, name):
    return lab.cluster.node(name)["silent"] > 0.3


def runs(lab, name):
    return lab.cluster.node(name)["process"] != "down"


@pytest.mark.slow  # test_two_failovers_in_a_row does it twice
def test_kill_9_of_the_primary(lab):
    lab.load()
    moment = lab.inflict("kill", "node1")
    lab.new_primary("node1")
    lab.served_after(moment)
    lab.settled()
    lab.run_on(300)
    lab.verdict()


@pytest.mark.slow
def test_kill_9_of_a_backup(lab):
    lab.load()
    moment = lab.inflict("kill", "node2")
    lab.served_after(moment)
    wait_for("its restart", lambda: lab.cluster.node("node2")["starts"] == 2, 60)
    lab.settled()
    lab.run_on(300)
    assert lab.cluster.primary == "node1"
    found = lab.verdict()
    assert found.duplicated == 0


def test_pause_of_the_primary(lab):
    lab.load(style="library")
    moment = lab.inflict("pause", "node1")
    lab.new_primary("node1")
    lab.served_after(moment)
    lab.run_on(300)
    lab.inflict("start", "node1")
    lab.settled()
    lab.run_on(300)
    assert lab.cluster.node("node1")["starts"] == 1
    lab.verdict()


@pytest.mark.slow
def test_pause_of_a_backup(lab):
    lab.load()
    moment = lab.inflict("pause", "node3")
    lab.served_after(moment)
    lab.run_on(600)
    lab.inflict("start", "node3")
    lab.settled()
    lab.run_on(300)
    assert lab.cluster.primary == "node1"
    found = lab.verdict()
    assert found.duplicated == 0


@pytest.mark.slow
def test_a_short_pause_of_every_broker_in_turn(lab):
    """Shorter than the supervisor's patience: no broker is replaced, nothing is lost."""
    lab.load()
    for name in ("node1", "node2", "node3"):
        moment = lab.inflict("pause", name)
        wait_for("0.3 s of pause", partial(silent, lab, name), 60)
        lab.inflict("start", name)
        lab.served_after(moment)
        lab.run_on(100)
    lab.settled()
    lab.verdict()


def test_a_backup_returns_with_part_of_the_data_and_takes_over(lab):
    """Frozen in the middle, it holds the first messages; after its return it has to serve all of them alone."""
    lab.load(consumers=False, queues=2, rate=600.0)
    lab.inflict("pause", "node3")
    lab.run_on(1500)
    lab.inflict("start", "node3")
    lab.settled()
    lab.run_on(300)
    lab.inflict("kill", "node2", hold=True)
    wait_for("node2 down", lambda: lab.cluster.node("node2")["process"] == "down", 60)
    moment = lab.inflict("kill", "node1", hold=True)
    assert lab.new_primary("node1") == "node3"
    lab.served_after(moment)
    lab.verdict()


@pytest.mark.slow
def test_a_restarted_broker_copies_everything_and_takes_over(lab):
    lab.load(consumers=False, queues=2, rate=600.0)
    lab.inflict("kill", "node3")
    wait_for("its restart", lambda: lab.cluster.node("node3")["starts"] == 2, 60)
    lab.settled()
    lab.inflict("kill", "node2", hold=True)
    wait_for("node2 down", lambda: lab.cluster.node("node2")["process"] == "down", 60)
    moment = lab.inflict("kill", "node1", hold=True)
    assert lab.new_primary("node1") == "node3"
    lab.served_after(moment)
    lab.verdict()


def test_two_failovers_in_a_row(lab):
    """The second primary dies as soon as it is promoted, long before the first is back."""
    lab.load()
    lab.inflict("kill", "node1", hold=True)
    second = lab.new_primary("node1")
    moment = lab.inflict("kill", second, hold=True)
    third = lab.new_primary(second)
    assert third not in ("node1", second)
    lab.served_after(moment)
    lab.inflict("start", "node1")
    lab.inflict("start", second)
    lab.settled()
    lab.run_on(300)
    lab.verdict()


@pytest.mark.slow
def test_failover_back_and_forth(lab):
    lab.load()
    for _ in range(3):
        old = lab.cluster.primary
        moment = lab.inflict("kill", old)
        lab.new_primary(old)
        lab.served_after(moment)
        wait_for("its restart", partial(runs, lab, old), 60)
        lab.settled()
    lab.verdict()
