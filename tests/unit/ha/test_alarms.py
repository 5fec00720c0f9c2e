"""Alarms of a broker in the answers of its management and in what `qpid-ha` prints."""

from __future__ import annotations

from typing import Any

import pytest

from ha.qpid_ha.output import print_status_table, print_troubles, troubles
from tests.unit.ha.world import World

MEMORY = "memory: the limit of 100 MiB is reached (memory-limit)"
DISK = "disk: 12 MiB are free for the journal, less than 1024 MiB (disk-free-limit)"


def ask(world: World, method: str) -> Any:
    answers: list[Any] = []
    world["b"].requests.request(method, {}, answers.append, "guest")
    return answers[0]["result"]


def test_alarms_come_and_go_in_status_query_and_events() -> None:
    world = World("ab")
    node = world["b"].node
    node.alarm("memory", MEMORY)
    node.alarm("disk", DISK)
    node.alarm("disk", "")
    for method in ("ha.status", "ha.query"):
        assert ask(world, method)["alarms"] == {"memory": MEMORY}
    node.local.disk.error = "no space"
    assert set(node.alarms()) == {"memory", "vote"}
    events = [fields for kind, fields in world["b"].events if kind == "limit"]
    assert [(event["result"], event["attrs"]["alarm"]) for event in events] == [
        ("begun", "memory"),
        ("begun", "disk"),
        ("ended", "disk"),
    ]


def test_each_alarm_has_a_line_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"alarms": {"memory": MEMORY, "disk": DISK}, "advice": MEMORY, "name": "node1", "status": "ready"}
    assert troubles(answer) == [("Alarm", DISK), ("Alarm", MEMORY)]
    print_troubles(answer)
    print_status_table([("127.0.0.1:5672", answer)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("Alarm:" in line for line in lines) == 4
