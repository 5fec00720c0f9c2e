"""A pair of brokers with fencing and Pacemaker's registry: its set is on record before it is in force, however late the
other node is fenced, and whatever an administrator does to the record."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pika
import pytest

from ha.model.membership import HaState
from ha.registry.view import decode, encode, parse, query
from ha.registry.worker import newest
from tests.pacemaker.cluster import LOGIN, PORT, Cluster, Setup, running
from tests.support.wait import wait_for

ATTRIBUTE: Final = "qpid-ha-state-lab"
TIME: Final = 30.0
FENCE_DELAY: Final = 6.0
"""Seconds that a slow fence device takes; the brokers' own patience (0.5 s interval, 2 s wait) is over before."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    setup = Setup(nodes=2, fencing=True, safety="manager", registry="pacemaker")
    yield from running(setup, tmp_path_factory.mktemp("pair"))


def recorded(pair: Cluster, seen_by: str) -> HaState | None:
    """The entry with the newest set, as that node has it; None when there is none."""
    answer = pair.node(seen_by).run("cibadmin", "--query", "--no-children", "--xpath", query(ATTRIBUTE))
    states = newest(decode(parse(answer.stdout).values, ATTRIBUTE)) if answer.returncode == 0 else ()
    return max(states, key=lambda state: state.in_sync.key, default=None)


def in_force(pair: Cluster, name: str) -> tuple[int, set[str]]:
    """Version and members of the set of a primary; (0, none) when it does not answer."""
    found = (pair.ask(name, "ha.query") or {}).get("in_sync")
    return (found["version"], {member["name"] for member in found["members"]}) if found else (0, set())


def on_record(pair: Cluster, name: str) -> tuple[int, set[str]]:
    state = recorded(pair, name)
    return (state.in_sync.version, {member.name for member in state.in_sync.members}) if state else (0, set())


class Publisher:
    """Publishes to one broker, from its own node, and notes when each message was confirmed."""

    def __init__(self, pair: Cluster, name: str) -> None:
        self.confirmed: list[float] = []
        self._stopped = threading.Event()
        self._node = pair.node(name)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        credentials = pika.PlainCredentials(LOGIN.user, LOGIN.password)
        parameters = pika.ConnectionParameters(self._node.address, PORT, credentials=credentials, heartbeat=0)
        with self._node.inside():
            connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        try:
            while not self._stopped.wait(0.01):
                channel.basic_publish("", "q", b"x")
                self.confirmed.append(time.monotonic())
        except (pika.exceptions.AMQPError, OSError):
            pass  # its node was fenced, or it was deposed

    @contextmanager
    def running(self) -> Iterator[Publisher]:
        self._thread.start()
        try:
            wait_for(lambda: self.confirmed, TIME, "a first confirm")
            yield self
        finally:
            self._stopped.set()
            self._thread.join(TIME)

    def longest_pause(self) -> float:
        times = [*self.confirmed, time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def check_record(pair: Cluster, primary: str) -> tuple[int, set[str]]:
    """What is in force is on record; asked in this order, since the record may grow meanwhile."""
    version, members = in_force(pair, primary)
    assert on_record(pair, primary)[0] >= version, (version, members)
    return version, members


def test_the_set_is_on_record_before_it_is_in_force(pair: Cluster) -> None:
    primary, (backup,) = pair.primary(), pair.backups()
    first, _ = check_record(pair, primary)
    with Publisher(pair, primary).running() as publisher:
        pair.killer(backup, signal.SIGKILL)()

        def smaller_and_larger() -> bool:
            version, members = check_record(pair, primary)
            return version >= first + 2 and members == {primary, backup}

        wait_for(smaller_and_larger, TIME, "the backup was dropped, and is back", poll=0.02)
        print(f"backup killed: longest pause of a publisher {1000 * publisher.longest_pause():.0f} ms")
    pair.calm()


def told(pair: Cluster, name: str) -> list[str]:
    return [line for line in pair.broker_log(name) if "the registry has forgotten our in-sync set" in line]


@pytest.mark.parametrize("content", ["nothing", "an older one"])
def test_a_registry_that_has_forgotten_is_written_again(pair: Cluster, content: str) -> None:
    primary = pair.primary()
    before, lines, spoilt = recorded(pair, primary), len(told(pair, primary)), 0
    assert before is not None

    def noticed() -> bool:
        """A write that was under way may undo it before the broker has looked: then once more."""
        nonlocal spoilt
        if len(told(pair, primary)) > lines:
            return True
        if recorded(pair, primary) == before:
            spoilt += 1
            if content == "nothing":
                pair.on_any("cibadmin", "--delete-all", "--force", "--xpath", f"//nvpair[@name='{ATTRIBUTE}']")
            else:
                older = encode(HaState(before.id))
                pair.on_any("crm_attribute", "--node", primary, "--name", ATTRIBUTE, "--update", older)
        return False

    wait_for(noticed, TIME, "the line")
    wait_for(lambda: recorded(pair, primary) == before, TIME, "written again")
    assert len(told(pair, primary)) - lines <= spoilt


def test_a_backup_whose_node_dies_is_dropped_when_that_is_fenced(pair: Cluster) -> None:
    primary, (backup,) = pair.primary(), pair.backups()
    with Publisher(pair, primary).running() as publisher:
        pair.node(backup).kill_init()
        wait_for(lambda: check_record(pair, primary)[1] == {primary}, TIME, "it goes on alone", poll=0.05)
        count = len(publisher.confirmed)
        wait_for(lambda: len(publisher.confirmed) > count + 10, TIME, "confirms go on")
        print(f"backup's node killed: longest pause of a publisher {publisher.longest_pause():.2f} s")
    pair.ready()


def slow_down(pair: Cluster) -> None:
    """All fence devices."""
    devices = [name for name in pair.on_any("crm_resource", "--list-raw").split() if name.startswith("fenc")]
    assert devices
    delay = ("--set-parameter", "pcmk_delay_base", "--parameter-value", f"{FENCE_DELAY:g}s")
    for name in devices:
        pair.on_any("crm_resource", "--resource", name, *delay)
    pair.lab.settled()


def test_a_primary_that_is_cut_off_waits_for_a_slow_fence_device(pair: Cluster) -> None:
    """Both halves of a pair have quorum, so nothing but the fencing says who may go on."""
    primary, (backup,) = pair.primary(), pair.backups()
    slow_down(pair)
    with Publisher(pair, primary).running() as publisher:
        pair.lab.cut(primary)
        began = time.monotonic()
        while pair.node(primary).running and pair.node(backup).running:
            sets = {name: in_force(pair, name)[1] for name in (primary, backup)}
            if not (pair.node(primary).running and pair.node(backup).running):
                break  # asked while one was being fenced
            assert {primary} != sets[primary], f"alone {time.monotonic() - began:.1f} s after the cut: {sets}"
            assert pair.states()[backup] != "active", pair.states()
        took = time.monotonic() - began
        alone = [moment for moment in publisher.confirmed if began + 0.5 < moment < began + took - 0.2]
    assert took > FENCE_DELAY, "the device is slow"
    assert alone == [], "confirmed while both lived"
    survivor = next(name for name in (primary, backup) if pair.node(name).running)
    wait_for(lambda: in_force(pair, survivor)[1] == {survivor}, TIME, "the survivor goes on", poll=0.05)
    check_record(pair, survivor)
    print(f"fenced after {took:.1f} s; {survivor} goes on after {time.monotonic() - began:.1f} s")
