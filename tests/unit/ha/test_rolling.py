"""A rolling restart: order, what it refuses, and what is undone when it ends early."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ha.qpid_cluster import managers
from ha.qpid_cluster.rolling import Manager, RollingError, order, restart_all
from tests.agents.ocf import write_program


class Fake:
    """A cluster whose brokers become ready after some looks; `stuck` never comes back, `stubborn` never stops."""

    def __init__(self, names: str = "abc", primary: str = "a", stuck: str = "", stubborn: str = "") -> None:
        self.found = {name: "active" if name == primary else "ready" for name in names}
        self.stuck, self.stubborn = stuck, stubborn
        self.done: list[str] = []
        self.looks = 0

    def states(self) -> Mapping[str, str]:
        self.looks += 1
        if self.looks % 3 == 0:
            self.found = {n: "ready" if s == "joining" and n != self.stuck else s for n, s in self.found.items()}
        return dict(self.found)

    def stop(self, node: str) -> None:
        assert self.found[node] == "ready", "the primary, or one that lacks something, was stopped"
        assert sorted(self.found.values()) == ["active", *["ready"] * (len(self.found) - 1)]
        self.done.append(f"stop {node}")
        if node != self.stubborn:
            self.found[node] = ""

    def start(self, node: str) -> None:
        self.done.append(f"start {node}")
        self.found[node] = self.found[node] or "joining"

    def move(self, node: str) -> None:
        self.done.append(f"move {node}")
        self.found = {name: "active" if name == node else "ready" for name in self.found}

    def moved(self) -> None:
        self.done.append("moved")


def wait(condition: Callable[[], bool], what: str) -> None:
    if not any(condition() for _ in range(20)):
        raise RollingError(what)


def roll(fake: Fake) -> list[str]:
    said: list[str] = []
    restart_all(fake, wait, said.append)
    return said


def test_backups_come_first_and_the_primary_after_its_role_was_moved() -> None:
    fake = Fake(primary="b")
    said = roll(fake)
    assert fake.done == ["stop a", "start a", "stop c", "start c", "move a", "moved", "stop b", "start b"]
    assert said == ["a is restarted and ready", "c is restarted and ready", "a is primary", "b is restarted and ready"]


@pytest.mark.parametrize("states", [["active", "ready", "catchup"], ["active", "active", "ready"], ["active", ""]])
def test_a_cluster_that_is_not_whole_is_left_alone(states: list[str]) -> None:
    found = dict(zip("abc", states, strict=False))
    with pytest.raises(RollingError, match="wanted one active, all others ready"):
        order(found)


def test_a_lone_broker_is_not_restarted_in_silence() -> None:
    fake = Fake("a")
    with pytest.raises(RollingError, match="a is the only broker"):
        roll(fake)
    assert not fake.done


def test_the_first_broker_that_does_not_come_back_ends_it() -> None:
    fake = Fake(stuck="b")
    with pytest.raises(RollingError, match="b is started, and is not in sync again"):
        roll(fake)
    assert fake.done == ["stop b", "start b"]


def test_a_broker_that_does_not_stop_is_wanted_again() -> None:
    fake = Fake(stubborn="b")
    with pytest.raises(RollingError, match="b has not stopped"):
        roll(fake)
    assert fake.done == ["stop b", "start b"], "a ban that stays would keep it down after the next failure"


ANSWERS = [{"name": name, "status": "ready", "brokers_url": "h1:1,h2:2"} for name in ("n1", "n2")]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """False managers, which write down how they are called, and a false `qpid-ha`."""
    for program in ("crm_resource", "clusvcadm"):
        write_program(tmp_path / program, f'echo "$*" >>{tmp_path / "calls"}')
    write_program(tmp_path / "cibadmin", "echo '<constraints/>'")
    answer_with(tmp_path, ANSWERS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def answer_with(directory: Path, answers: object) -> None:
    (directory / "answers").write_text(json.dumps(answers))
    text = f'echo "$*" >>{directory / "asked"}; [ "$1" = query ] && exec cat {directory / "answers"}; echo ready'
    write_program(directory / "qpid-ha", text)


def calls(manager: Manager, programs: Path) -> list[str]:
    manager.stop("n2")
    manager.start("n2")
    manager.move("n2")
    manager.moved()
    return (programs / "calls").read_text().splitlines()


def test_commands_of_pacemaker(programs: Path) -> None:
    manager = managers.Pacemaker(["--config", "/c"], "qpidd-clone")
    assert manager.states() == {"n1": "ready", "n2": "ready"}
    assert (programs / "asked").read_text().splitlines() == [
        "query --all --json --timeout 5 --config /c",
        "status --timeout 5 --broker h1:1 --config /c",
        "status --timeout 5 --broker h2:2 --config /c",
    ]
    assert calls(manager, programs) == [
        "--ban --node n2 --resource qpidd-clone",
        "--clear --node n2 --resource qpidd-clone",
        "--move --promoted --node n2 --resource qpidd-clone",
        "--clear --resource qpidd-clone",
    ]
    write_program(programs / "crm_resource", "echo no such node >&2; exit 5")
    with pytest.raises(RollingError, match="exit code 5: no such node"):
        manager.stop("n2")
    (programs / "crm_resource").unlink()
    with pytest.raises(RollingError, match="crm_resource cannot be run: No such file"):
        manager.stop("n2")


LOCATION = '<rsc_location id="{id}" rsc="{rsc}" node="n1" score="-INFINITY"/>'


def test_what_an_administrator_wants_of_pacemaker_is_not_cleared(programs: Path) -> None:
    """`crm_resource --clear` would remove it.  The ban of a restart that was killed is found here, too."""
    ban = LOCATION.format(id="cli-ban-qpidd-clone-on-n1", rsc="qpidd-clone")
    others = LOCATION.format(id="cli-ban-ip-on-n1", rsc="ip") + LOCATION.format(id="mine", rsc="qpidd-clone")
    write_program(programs / "cibadmin", f"echo '<constraints>{others}</constraints>'")
    managers.Pacemaker([], "qpidd-clone")
    write_program(programs / "cibadmin", f"echo '<constraints>{others}{ban}</constraints>'")
    with pytest.raises(RollingError, match=r"found cli-ban-qpidd-clone-on-n1; wanted none.*crm_resource --clear"):
        managers.Pacemaker([], "qpidd-clone")
    assert not (programs / "calls").exists()


def test_commands_of_rgmanager(programs: Path) -> None:
    assert calls(managers.Rgmanager([]), programs) == [
        "-d n2-qpidd-service",
        "-e n2-qpidd-service -m n2",
        "-r qpidd-primary-service -m n2",
    ]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([ANSWERS[0], {"address": "h2:2", "error": "refused"}], "h2:2: refused; wanted the answer of every broker"),
        ([ANSWERS[0], ANSWERS[0]], "two brokers have the same name"),
    ],
)
def test_a_cluster_that_is_not_known_whole_is_left_alone(answers: object, reason: str, programs: Path) -> None:
    answer_with(programs, answers)
    with pytest.raises(RollingError, match=reason):
        managers.Pacemaker([], "qpidd-clone")


def test_waiting_ends_when_the_time_of_a_step_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managers, "POLL", 0.001)
    looks = iter([False, False, True])
    managers.waiting(60)(lambda: next(looks), "n1 has not stopped")
    with pytest.raises(RollingError, match=r"n1 has not stopped after 0\.01 s"):
        managers.waiting(0.01)(lambda: False, "n1 has not stopped")
    with pytest.raises(RollingError, match="crm_resource-that-is-not-there cannot be run"):
        managers.waiting(60)(lambda: bool(managers.run("crm_resource-that-is-not-there")), "")
