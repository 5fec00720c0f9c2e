"""What the broker writes belongs to its user alone."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.membership import HaState
from ha.qpid_cluster.events import SupervisorEvents
from ha.registry.file import FileRegistry
from tests.support.process import BrokerProcess


def mode_of(path: Path) -> int:
    """0 of a file that has gone: a journal is renamed when it is complete."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return 0


def test_no_other_user_may_read_what_it_writes(make_broker: Callable[..., BrokerProcess]) -> None:
    options = ("--ha-cluster", "yes", "--ha-safety", "availability", "--journal", "yes")
    broker = make_broker(*options, "--ha-brokers-url", "127.0.0.1:1", "--ha-address", "127.0.0.1:1").start()
    found = [broker.data_dir, *broker.data_dir.rglob("*")]
    assert {"events", "journal"} <= {path.name for path in found} and any(path.suffix == ".json" for path in found)
    assert {path.name: oct(mode) for path in found if (mode := mode_of(path)) & 0o077} == {}


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_events_of_the_local_manager_are_its_own_too(tmp_path: Path) -> None:
    SupervisorEvents(tmp_path, "east").close()
    found = [*(tmp_path / "events").iterdir(), tmp_path / "events"]
    assert [oct(mode_of(path)) for path in found] == ["0o600", "0o700"]


@pytest.mark.usefixtures("usual_umask")
def test_the_lock_of_a_registry_is_no_program(tmp_path: Path) -> None:
    lives: Any = SimpleNamespace(gone=lambda states: frozenset())
    FileRegistry(tmp_path / "registry.json", lives).exchange(HaState("id-a", 1), 1.0)
    assert oct(mode_of(tmp_path / "registry.json.lock")) == "0o640"
