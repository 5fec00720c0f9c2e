"""The registry as a file, the thread that makes the exchanges, and the options."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ha.model.environment import Exchanged
from ha.model.membership import HaState, InSync, Member
from ha.model.settings import HaSettings
from ha.registry.file import FileRegistry
from ha.registry.living import Living
from ha.registry.pacemaker import PacemakerRegistry
from ha.registry.worker import RegistryError, RegistryWorker, Store
from ha.shell.from_options import registry_store
from qpidd_py.errors import ConfigError
from tests.support.wait import wait_for

A, B = Member("id-a", "a", "a:1"), Member("id-b", "b", "b:1")


def state(member: Member, epoch: int, version: int = 0) -> HaState:
    return HaState(member.id, epoch, member.id, InSync(epoch, member.id, version, (A, B)))


# ---- a file


def file_registry(folder: Path, id: str) -> FileRegistry:
    path = folder / "registry.json"
    return FileRegistry(path, Living(path, id))


@pytest.fixture
def registry(tmp_path: Path) -> FileRegistry:
    return file_registry(tmp_path, A.id)


def test_a_file_that_is_not_there_yet_is_an_empty_registry(registry: FileRegistry) -> None:
    assert registry.exchange(None, 1.0).states == ()


def test_what_is_written_is_read_by_others(registry: FileRegistry, tmp_path: Path) -> None:
    assert registry.exchange(state(A, 1), 1.0).states == (state(A, 1),)
    other = file_registry(tmp_path, B.id)
    assert set(other.exchange(state(B, 2, 3), 1.0).states) == {state(A, 1), state(B, 2, 3)}
    assert set(registry.exchange(None, 1.0).states) == {state(A, 1), state(B, 2, 3)}


def test_an_entry_never_goes_back(registry: FileRegistry) -> None:
    registry.exchange(HaState(A.id, 1, A.id, InSync(1, A.id, 7, (A,))), 1.0)
    (found,) = registry.exchange(HaState(A.id, 4, B.id, InSync(1, A.id, 3, (A, B))), 1.0).states
    assert found == HaState(A.id, 4, B.id, InSync(1, A.id, 7, (A,)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "[]",
        lambda text: text[:-20],
        lambda text: text.replace('"epoch": 1', '"epoch": 0'),
    ],
)
def test_a_damaged_file_is_an_error_and_is_not_overwritten(registry: FileRegistry, tmp_path: Path, damage) -> None:
    registry.exchange(state(A, 1), 1.0)
    path = tmp_path / "registry.json"
    path.write_text(damaged := damage(path.read_text()))
    for entry in (None, state(B, 2)):
        with pytest.raises(RegistryError, match=r"registry.json cannot be used: (not a registry|checksum)"):
            registry.exchange(entry, 1.0)
    assert path.read_text() == damaged


def test_a_lock_that_another_process_holds_costs_the_exchange(registry: FileRegistry, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "registry.json.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(RegistryError, match="is locked by another process"):
            registry.exchange(state(A, 1), 0.05)
        assert registry.exchange(None, 0.05).states == ()
    finally:
        os.close(descriptor)
    assert registry.exchange(state(A, 1), 1.0).states == (state(A, 1),)


def test_of_many_that_exchange_at_once_each_pair_sees_one_of_the_two(tmp_path: Path) -> None:
    members = [Member(f"id-{number}") for number in range(8)]
    seen: dict[str, set[str]] = {}

    def run(member: Member) -> None:
        states = file_registry(tmp_path, member.id).exchange(state(member, 1), 10.0).states
        seen[member.id] = {each.id for each in states}

    threads = [threading.Thread(target=run, args=[member]) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(members)
    for one in members:
        for other in members:
            assert other.id in seen[one.id] or one.id in seen[other.id]


# ---- the worker


class Slow(Store):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls: list[HaState | None] = []
        self.threads: list[str] = []

    def start(self) -> None:
        self.threads.append(threading.current_thread().name)

    def close(self) -> None:
        self.threads.append(threading.current_thread().name)

    def exchange(self, state: HaState | None, timeout: float) -> Exchanged:
        self.calls.append(state)
        self.go.wait(10.0)
        return Exchanged((state,) if state is not None else ())


def ends(store: Store, timeouts: list[float], release: Slow | None = None) -> list[Exchanged]:
    """Exchanges one after the other; what was answered, in the order of the answers."""

    async def run() -> list[Exchanged]:
        loop = asyncio.get_running_loop()
        worker = RegistryWorker(loop, store)
        found: list[Exchanged] = []
        over = asyncio.Event()

        def done(exchanged: Exchanged) -> None:
            found.append(exchanged)
            if release is not None and exchanged.error:
                release.go.set()
            if len(found) == len(timeouts):
                over.set()

        for number, timeout in enumerate(timeouts):
            worker.exchange(state(A, number), timeout, done)
            if release is not None:  # the loop stands still: its time does not run out before the thread has begun it
                wait_for(lambda: release.calls, what="the first exchange is under way")
        assert found == [], "never before the call has returned"
        async with asyncio.timeout(10.0):
            await over.wait()
        worker.stop()
        return found

    return asyncio.run(run())


def test_the_worker_answers_in_order(registry: FileRegistry) -> None:
    found = ends(registry, [5.0] * 3)
    assert [exchanged.states[0].epoch for exchanged in found] == [0, 1, 2]


def test_the_worker_says_when_an_exchange_fails(registry: FileRegistry, tmp_path: Path) -> None:
    (tmp_path / "registry.json").write_text("{}")
    (found,) = ends(registry, [5.0])
    assert "not a registry" in found.error
    assert found.states == ()


def test_an_answer_that_comes_too_late_is_dropped_and_the_next_one_is_not() -> None:
    slow = Slow()
    first, second = ends(slow, [0.05, 5.0], release=slow)
    assert (first.error, first.states) == ("no answer in 0.05 s", ())
    assert [each.epoch for each in second.states] == [1]
    assert slow.calls == [state(A, 0), state(A, 1)]
    wait_for(lambda: slow.threads == ["ha registry"] * 2, what="started and closed by the thread that exchanges")


# ---- the options


def test_options_that_fit(tmp_path: Path) -> None:
    assert registry_store(HaSettings(), A.id) is None
    assert isinstance(registry_store(HaSettings(ha_safety="manager", ha_registry="pacemaker"), A.id), PacemakerRegistry)
    options = HaSettings(ha_safety="manager", ha_registry="file", ha_registry_file=tmp_path / "r")
    assert isinstance(registry_store(options, A.id), FileRegistry)
    with pytest.raises(ConfigError, match=r"option ha-registry-file: .* cannot be used"):
        registry_store(replace(options, ha_registry_file=tmp_path / "not mounted" / "r"), A.id)


MANAGER = {"ha_safety": "manager"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ha_registry": "file", **MANAGER}, "ha-registry: found file without ha-registry-file, expected the path"),
        ({"ha_registry_file": Path("/r"), **MANAGER}, "found /r with ha-registry=none, expected ha-registry=file"),
        (
            {"ha_registry": "pacemaker", "ha_safety": "availability"},
            "ha-registry: found pacemaker with ha-safety=availability, expected none",
        ),
        ({"ha_registry": "pacemaker"}, "ha-registry: found pacemaker with ha-safety=auto, expected none"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        HaSettings(**options)  # type: ignore[arg-type]
