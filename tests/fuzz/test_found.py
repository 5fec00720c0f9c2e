"""What the fuzzers have found, input by input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ha.model.protocol import Kind, encode_control
from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.operations import queue_operation
from qpidd_py.errors import InvariantError, LinkError
from tests.fuzz.files import SALVAGE
from tests.fuzz.hostile import DEEP, to_json
from tests.fuzz.links import HELLO, Primary, Spoken
from tests.fuzz.requests import Door
from tests.fuzz.targets import TARGETS


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Primary]:
    with TARGETS["hostile-backup"].scene(tmp_path_factory.mktemp("primary")) as scene:
        assert isinstance(scene, Primary)
        yield scene


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with TARGETS["management"].scene(tmp_path_factory.mktemp("door")) as scene:
        assert isinstance(scene, Door)
        yield scene


def hello(**fields: Any) -> bytes:
    return to_json({**HELLO, **fields})


BODIES = {
    "deep": b"[" * 100_000,
    "deep name": hello(name=DEEP),
    "half a pair": hello(name="\ud800", replicate=0),
    "half a pair as id": hello(id="\udfff"),
    "long name": hello(name="x" * 70_000),
    "no runs": hello(before=5),
    "long run": hello(before=["x" * 70_000]),
    "large epoch": hello(epoch=10**30),
    "negative epoch": hello(epoch=-1),
    "large position": hello(position=1 << 64),
    "negative position": hello(position=-5),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_frame_of_a_backup_costs_its_link_only(what: str, primary: Primary) -> None:
    """The first one ended every primary to which it was said, with exit code 70."""
    held = (Kind.CONTROL, 0, encode_control("held-end"))
    primary.check(Spoken([(Kind.CONTROL, 0, BODIES[what]), held], 0, 0))
    primary.finish()


@pytest.mark.parametrize("action", [{}, [], ["list"], None, 1, DEEP, "x" * 70_000], ids=repr)
@pytest.mark.parametrize("method", ["ha.member", "ha.salvage", "ha.restore", "ha.backup"])
def test_an_action_of_any_kind_is_answered(method: str, action: Any, door: Door) -> None:
    door.check((method, to_json({"action": action})))


@pytest.mark.parametrize("highest", [-1, 256, 1 << 30])
def test_a_queue_has_from_1_to_256_levels(highest: int) -> None:
    """A message for a queue with none was put where no memory is."""
    queue = Broker().engine.create_queue(7, "q", True)
    with pytest.raises(InvariantError):
        queue.add_levels(highest)


CHANGES: list[dict[str, Any]] = [
    {"arguments": {"qpid.replicate": "all", "x-max-priority": -1}},
    {"arguments": {"qpid.replicate": "all", "x-max-length": "x"}},
    {"arguments": {"qpid.replicate": "all", "x-message-ttl": -5}},
    {"arguments": {"qpid.replicate": "all", "qpid.last_value_queue_key": "k", "x-max-priority": 3}},
    {"arguments": {"qpid.replicate": "all", "qpid.max_count": 3, "x-max-length": 3}},
    {"arguments": {"qpid.replicate": "all", "qpid.policy_type": "flow_to_disk"}},
    {"arguments": {}},
    {"arguments": None},
    {"number": -1},
    {"number": True},
    {"number": "1"},
    {"durable": 1},
    {"name": 5},
    {"name": "x" * 300},
    {"op": "queue.other"},
    {"op": []},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: repr(change)[:60])
def test_an_operation_of_no_client_is_refused_whole(change: dict[str, Any]) -> None:
    broker = Broker()
    configuration = broker.configurations
    operation = queue_operation("q", 1, True, False, False, {"qpid.replicate": "all"})
    with pytest.raises(LinkError):
        adopt(configuration, [(1 << 48, encode_table({**operation, **change}))])
    assert not broker.vhost.queues
    adopt(configuration, [(1 << 48, encode_table(operation))])
    assert [*broker.vhost.queues] == ["q"]


def test_two_queues_of_one_number_are_refused() -> None:
    configuration = Broker().configurations
    twins = [queue_operation(name, 1, True, False, False, {"qpid.replicate": "all"}) for name in "ab"]
    with pytest.raises(LinkError):
        adopt(configuration, [(1 << 48 | number, encode_table(twin)) for number, twin in enumerate(twins)])


@pytest.mark.parametrize("time", [["x"] * 3000, "x" * 15_000])
def test_a_salvage_file_of_no_time_is_refused_in_a_short_line(time: Any, tmp_path: Path) -> None:
    target = TARGETS["salvage"]
    with target.scene(tmp_path) as scene:
        scene.check((to_json({**SALVAGE, "time": time}) + b"\n", b""))
