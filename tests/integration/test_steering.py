"""Real brokers under an administrator's hands: forced promotion, controlled stops, authorization, tables."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client_lib import Connection
from tests.support.members import TIME, Members
from tests.support.wait import wait_for, wait_logged

Make = Callable[..., Members]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Members] = []

    def make(*options: str, **others: Any) -> Members:
        made.append(Members(tmp_path, *options, **others))
        made[0].up()
        return made[0]

    yield make
    for members in made:
        members.close()


def fill(members: Members, count: int = 10, queue: str = "q") -> None:
    with Connection(members.url) as connection:
        session = connection.session()
        session.declare_queue(queue, durable=True)
        sender = session.sender(queue)
        for number in range(count):
            sender.send(str(number), sync=False)
        sender.sync(TIME)


def lose_backups(members: Members) -> None:
    for name in "bc":
        members.brokers[name].kill()
    wait_for(lambda: len(members.ask("a", "ha.query")["in_sync"]["members"]) == 1, TIME, "the set of one")


# ---- controlled stop


def test_a_primary_with_a_backup_in_sync_stops(make: Make) -> None:
    members = make()
    fill(members)
    assert members.brokers["a"].stop() == 0


def test_the_last_broker_refuses_the_first_signal_and_obeys_the_second(make: Make) -> None:
    members = make()
    fill(members)
    lose_backups(members)
    last = members.brokers["a"]
    last.signal(signal.SIGTERM)
    wait_for(lambda: "SIGTERM is refused" in last.log, TIME, lambda: last.log)
    line = next(line for line in last.log.splitlines() if "SIGTERM is refused" in line)
    assert "error" in line
    assert "a is primary, and no backup is in sync: 1 queues with 10 messages would be lost" in line
    assert members.tool("status") == "active\n"
    wait_for(lambda: [event["result"] for event in last.events("stop_request")] == ["refused"], what="the event")
    assert last.stop() == 0


def test_quit_tells_why_it_was_refused(make: Make) -> None:
    members = make()
    fill(members)
    lose_backups(members)
    last = members.brokers["a"]
    command = [sys.executable, "-m", "qpidd_py", "--quit", "--data-dir", str(last.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"qpidd: process {last.pid} refuses: a is primary, and no backup is in sync: ")
    assert last.running
    assert subprocess.run(command, timeout=TIME, check=False).returncode == 0
    assert last.wait() == 0


def test_it_stops_with_a_warning_when_it_always_may(make: Make) -> None:
    members = make("--ha-promote-on-shutdown", "always")
    fill(members)
    lose_backups(members)
    last = members.brokers["a"]
    assert last.stop() == 0
    wait_logged(last, "stopping although a is primary, and no backup is in sync")


def test_a_cluster_without_queues_stops(make: Make) -> None:
    members = make()
    lose_backups(members)
    assert members.brokers["a"].stop() == 0


# ---- promotion by force


def test_force_says_what_it_overrides_and_is_an_event(make: Make) -> None:
    """Primary and one backup hang: the broker that is left may lack what they have confirmed without it."""
    members = make()
    fill(members)
    for name in "ab":
        members.brokers[name].pause()
    refusal = members.tool("promote", "--cluster-manager", name="c", code=1)
    assert refusal.startswith("RequestRefused: c cannot be promoted: ")
    assert members.tool("promote", "--force", name="c", code=1).startswith("UsageError: promote is for")
    out = members.tool("promote", "--force", "--cluster-manager", name="c")
    assert out.startswith("by force, confirmed messages may be lost: c cannot be promoted: ")
    assert members.tool("status", "--is-primary", name="c") == ""
    (promoted,) = members.brokers["c"].events("promoted")
    assert promoted["attrs"]["forced"] == "true"
    for name in "ab":
        members.brokers[name].resume()
    members.settled("c")


# ---- who may


def test_only_the_user_of_ha_username_steers(make: Make) -> None:
    members = make(login="steward/secret")
    for words in (["relocate"], ["demote", "--cluster-manager"], ["promote", "--cluster-manager"]):
        out = members.tool(*words, code=1, login="guest/guest")
        assert "ACCESS_REFUSED - user 'guest' may not call ha." in out
    assert list(members.states().values()) == ["active", "ready", "ready"]
    assert members.tool("relocate", "--to", "b").startswith("b is primary")


# ---- what is shown


def test_the_table_of_a_cluster(make: Make) -> None:
    members = make()
    fill(members)
    lines = members.tool("status", "--all", "--verbose").splitlines()
    rows = [line.split() for line in lines[3:]]
    assert [row[:4] for row in rows] == [
        [name, broker.address, "active" if name == "a" else "ready", "yes"] for name, broker in members.brokers.items()
    ]
    assert max(map(len, lines)) <= 80
    lines = members.tool("query", "--verbose").splitlines()
    assert max(map(len, lines)) <= 80
    (answer,) = [answer for answer in json.loads(members.tool("status", "--all", "--verbose", "--json"))
                 if answer["status"] == "active"]  # fmt: skip
    assert {member["name"]: member["lag"]["positions"] for member in answer["members"]} == {"b": 0, "c": 0}
