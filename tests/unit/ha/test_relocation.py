"""The planned switch-over, in the world of fakes: it succeeds, it goes back to normal, it never loses anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.model.environment import Json
from ha.model.status import State
from ha.primary.relocation import ANSWER_LIMIT, PAUSE_LIMIT, RelocationStep
from qpidd_py.errors import ReplyCode
from tests.unit.ha.test_ha_cluster import bodies, filled
from tests.unit.ha.world import Host, Publisher, World


@pytest.fixture
def world() -> World:
    found = World()
    found.cluster()
    return found


def ask(host: Host, to: str = "", method: str = "ha.relocate", **arguments: Any) -> list[Json]:
    """The replies, as they come."""
    replies: list[Json] = []
    assert host.requests.request(method, {"to": to, **arguments}, replies.append, "")
    return replies


def relocated(world: World, to: str = "b") -> Json:
    replies = ask(world["a"], to)
    world.until(lambda: bool(replies))
    assert replies[0]["ok"], replies
    return dict(replies[0]["result"])


def failed(world: World, to: str = "b") -> str:
    replies = ask(world["a"], to)
    world.until(lambda: bool(replies))
    assert not replies[0]["ok"], replies
    return str(replies[0]["error"])


def still_primary(world: World) -> None:
    """As if nothing had happened: the same epoch, clients read and not asked to pause, and messages are confirmed."""
    host = world["a"]
    assert (host.state, host.node.local.epoch, host.node.relocation) == (State.ACTIVE, 1, None)
    assert (host.configuration.paused, host.engine.throttled, host.closed_clients) == ("", False, [])
    client = Publisher(host)
    client.publish("q", b"after")
    world.until(lambda: client.confirmed == 1)


def relocations(host: Host) -> list[str]:
    return [str(fields["result"]) for kind, fields in host.events if kind == "relocate"]


# ---- it succeeds


def test_the_named_backup_becomes_primary_and_the_old_one_comes_back_ready(world: World) -> None:
    client = filled(world)
    result = relocated(world)
    assert (result["primary"], result["address"]) == ("b", "b:1")
    assert result["without_primary"] < 0.02
    assert client.confirmed == client.sent == 20
    assert world["b"].state.is_primary
    assert world["a"].closed_clients == ["CONNECTION_FORCED - a is a backup (joining); the primary is b:1"]
    world.until(lambda: [host.state for host in world.hosts.values()] == [State.READY, State.ACTIVE, State.READY])
    assert {host.disk.epoch for host in world.hosts.values()} == {2}
    for host in world.hosts.values():
        assert host.contents("q") == bodies(0, 20)


def test_the_one_that_steps_down_keeps_everything_in_place(world: World) -> None:
    filled(world)
    world.cut("a", "c")
    world["a"].node.demote("a test", "b:1")
    node = world["a"].node
    assert (node.local.state, node.local.whole, node.view().doubt) == (State.JOINING, True, False)
    assert node.local.persisted.ballot == (1, "id-a")
    assert world["a"].contents("q") == bodies(0, 20)
    assert isinstance(node.role, Backup)


def test_a_publisher_in_flight_is_confirmed_before_the_hand_over(world: World) -> None:
    client = filled(world)
    host = world["a"]
    replies = ask(host, "b")
    for number in range(20, 60):
        client.publish("q", b"m%d" % number)
        world.run(0.001)
    world.until(lambda: bool(replies))
    assert replies[0]["ok"]
    assert client.confirmed == client.sent == 60
    assert world["b"].contents("q") == bodies(0, 60)


def test_publishers_that_do_not_listen_cost_a_bounded_time(world: World) -> None:
    client = filled(world)
    replies = ask(world["a"], "b")
    began = world.clock
    while world["a"].node.relocation is not None and world["a"].node.relocation.step is RelocationStep.PAUSING:
        client.publish("q", b"m%d" % client.sent)
        world.run(0.001)
    assert world.clock - began < PAUSE_LIMIT + 0.01
    world.until(lambda: bool(replies))
    assert replies[0]["ok"]
    assert client.confirmed == client.sent
    assert world["b"].contents("q") == bodies(0, client.sent)


def test_clients_that_answer_are_waited_for_longer(world: World) -> None:
    filled(world)
    host = world["a"]
    host.configuration.busy = (1, 0)
    replies = ask(host, "b")
    world.run(ANSWER_LIMIT / 2)
    assert host.state is State.ACTIVE
    host.configuration.busy = (0, 0)
    world.until(lambda: bool(replies))
    assert replies[0]["ok"]


def test_without_a_name_a_backup_in_sync_is_taken(world: World) -> None:
    filled(world)
    assert relocated(world, "")["primary"] in ("b", "c")


@pytest.mark.parametrize("to", ["c", "id-c", "c:1"])
def test_a_backup_has_three_names(world: World, to: str) -> None:
    filled(world)
    assert relocated(world, to)["primary"] == "c"


def test_and_back_again(world: World) -> None:
    client = filled(world)
    relocated(world)
    world.until(lambda: (world["a"].state, world["b"].state) == (State.READY, State.ACTIVE))
    replies = ask(world["b"], "a")
    world.until(lambda: bool(replies))
    assert replies[0]["ok"]
    assert world["a"].disk.epoch == 3
    assert world["a"].contents("q") == bodies(0, client.sent)


# ---- it goes back to normal


def test_no_client_is_disturbed_for_a_backup_that_hangs(world: World) -> None:
    """Whether it is the target or another one that confirms wait for."""
    filled(world)
    world["a"].node.local.settings = _impatient(world["a"])
    for hanging in "bc":
        world.pause(hanging)
        began = world.clock
        replies = ask(world["a"], "b")
        while not replies:
            world.run(0.002)
            assert world["a"].configuration.paused == ""
        assert "given up while waiting for the backups; a is primary" in replies[0]["error"]
        assert world.clock - began < 0.1
        world.resume(hanging)
        world.run(0.2)
    still_primary(world)


def test_a_drain_that_takes_too_long_is_given_up(world: World) -> None:
    client = filled(world)
    world["a"].node.local.settings = _impatient(world["a"])
    replies = ask(world["a"], "b")
    world.until(lambda: bool(world["a"].configuration.paused))
    world.cut("a", "c")
    client.publish("q", b"m20")
    world.until(lambda: bool(replies))
    assert replies[0]["error"] == (
        "relocation to b failed: not done within 0.05 s, given up while draining: 1 operations are not safe yet; "
        "a is primary"
    )
    world.heal()
    world.until(lambda: client.confirmed == 21)
    still_primary(world)
    assert relocations(world["a"]) == ["begin", "failed"]


def _impatient(host: Host) -> Any:
    return replace(host.node.local.settings, relocate_timeout=0.05)


def test_a_target_that_is_lost_meanwhile(world: World) -> None:
    filled(world)
    world["a"].configuration.busy = (1, 0)
    replies = ask(world["a"], "b")
    world.run(0.01)
    world["b"].kill()
    world.until(lambda: bool(replies))
    assert replies[0]["error"] == "relocation to b failed: b was lost while pausing the clients; a is primary"
    still_primary(world)


def test_a_target_that_cannot_store_a_vote_disturbs_no_client(world: World) -> None:
    """Its disk has filled up since its last write, so it does not know yet."""
    filled(world)
    world["b"].disk_error = "[Errno 28] No space left on device"
    assert failed(world) == "relocation to b failed: the disk of b does not take a vote; a is primary"
    assert world["a"].closed_clients == []
    still_primary(world)
    assert "No space left" in world["b"].node.alarms()["vote"]
    world["b"].disk_error = ""
    world.until(lambda: "vote" not in world["b"].node.alarms())
    relocated(world)


def test_a_target_that_does_not_answer_disturbs_no_client(world: World) -> None:
    filled(world)
    world["b"].requests.request = lambda *request: True  # type: ignore[method-assign]
    assert failed(world) == "relocation to b failed: b does not answer; a is primary"
    still_primary(world)


def test_a_target_that_answers_with_an_error_disturbs_no_client(world: World) -> None:
    filled(world)
    world["b"].requests.request = _refusing(world["b"], "ha.ask")  # type: ignore[method-assign]
    assert failed(world) == "relocation to b failed: b does not answer; a is primary"
    still_primary(world)


def test_a_target_of_an_earlier_version_does_not_say_whether_it_can_store(world: World) -> None:
    filled(world)
    real = world["b"].requests.request

    def request(method: str, arguments: Json, reply: Any, user: str) -> bool:
        arguments = {name: value for name, value in arguments.items() if name != "store"}
        return real(method, arguments, reply, user)

    world["b"].requests.request = request  # type: ignore[method-assign]
    relocated(world)


def test_a_target_that_refuses_makes_us_primary_again(world: World) -> None:
    filled(world)
    world["b"].requests.request = _refusing(world["b"])  # type: ignore[method-assign]
    error = failed(world)
    assert error == "relocation to b failed: not today; a is primary"
    assert world["a"].state.is_primary
    assert world["a"].node.local.epoch == 2
    assert world["a"].contents("q") == bodies(0, 20)
    assert world["a"].configuration.paused == ""
    world.until(lambda: world["a"].state is State.ACTIVE)
    client = Publisher(world["a"])
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 1)


def _refusing(host: Host, refused: str = "ha.promote") -> Any:
    real = host.requests.request

    def request(method: str, arguments: Json, reply: Any, user: str) -> bool:
        if method != refused:
            return real(method, arguments, reply, user)
        reply({"ok": False, "error": "not today"})
        return True

    return request


def test_a_target_that_dies_in_the_hand_over_makes_us_primary_again(world: World) -> None:
    filled(world)
    replies = ask(world["a"], "b")
    world.until(lambda: world["a"].state is State.JOINING)
    world["b"].kill()
    world.until(lambda: bool(replies))
    assert not replies[0]["ok"]
    assert world["a"].state.is_primary
    assert world["a"].contents("q") == bodies(0, 20)


def test_deposed_in_the_middle(world: World) -> None:
    filled(world)
    world["a"].configuration.busy = (1, 0)
    replies = ask(world["a"], "b")
    world.run(0.01)
    world.cut("a", "c")
    world.cut("a", "b")
    world.promote("c")
    world.heal()
    world.until(lambda: bool(replies))
    assert replies[0]["error"].startswith("relocation to b failed: ")
    world.until(lambda: world["a"].state is State.READY)
    assert (world["a"].configuration.paused, world["a"].engine.throttled) == ("", False)
    assert world["c"].state is State.ACTIVE


def test_another_broker_promoted_while_we_hand_over(world: World) -> None:
    """Two claims meet; one of the two wins, and nothing is lost."""
    filled(world)
    world["b"].requests.request = _refusing(world["b"])  # type: ignore[method-assign]
    replies = ask(world["a"], "b")
    world.until(lambda: world["a"].state is State.JOINING)
    world.promote("c")
    world.until(lambda: bool(replies))
    assert not replies[0]["ok"]
    world.until(lambda: sorted(host.state.value for host in world.hosts.values()) == ["active", "ready", "ready"])
    for host in world.hosts.values():
        assert host.contents("q") == bodies(0, 20)


# ---- it is refused


def test_a_second_one_meanwhile_is_refused(world: World) -> None:
    filled(world)
    first = ask(world["a"], "b")
    second = ask(world["a"], "c")
    assert second == [
        {"ok": False, "error": "a is being relocated already: to b, waiting for the backups"},
    ]
    world.until(lambda: bool(first))
    assert first[0]["ok"]


def test_unknown_members_are_refused_with_the_known_ones(world: World) -> None:
    (reply,) = ask(world["a"], "nobody")
    assert reply["error"] == "cannot relocate: no member 'nobody'; known are b (b:1, ready), c (c:1, ready)"


@pytest.mark.parametrize("of", ["name", "id", "address"])
def test_the_primary_itself_is_refused_in_words(world: World, of: str) -> None:
    (reply,) = ask(world["a"], getattr(world["a"].node.local.member, of))
    assert reply["error"] == "cannot relocate: a is primary already"


def test_a_backup_says_by_its_code_that_another_one_has_to_be_asked(world: World) -> None:
    (reply,) = ask(world["b"])
    assert reply["error"].startswith("cannot relocate: b is not primary (ready)")
    assert reply["code"] == ReplyCode.CONNECTION_FORCED and "code" not in ask(world["a"], "nobody")[0]


def test_a_backup_that_is_away_is_refused(world: World) -> None:
    world["c"].kill()
    world.run(0.001)
    (reply,) = ask(world["a"], "c")
    assert reply["error"] in ("cannot relocate: c is away, wanted a backup in sync", _gone("c"))


def _gone(name: str) -> str:
    return f"cannot relocate: no member {name!r}; known are b (b:1, ready)"


def test_a_primary_that_waits_for_its_backups_is_refused() -> None:
    world = World()
    world.cluster()
    world.cut("c", "a", "b")
    world["a"].kill()
    world.promote("b")
    assert world["b"].state is State.RECOVERING
    (reply,) = ask(world["b"], "c")
    assert reply["error"] == "cannot relocate: b is recovering, wanted active: its backups are not all back"


def test_a_backup_is_no_primary(world: World) -> None:
    (reply,) = ask(world["b"], "a")
    assert reply["error"] == "cannot relocate: b is not primary (ready); the primary is a:1"


def test_ha_demote_steps_down_in_place(world: World) -> None:
    filled(world)
    replies = ask(world["a"], method="ha.demote")
    world.until(lambda: bool(replies))
    assert replies == [{"ok": True, "result": {}}]
    assert (world["a"].state, world["a"].node.local.whole) == (State.JOINING, True)
    world.promote("c")
    world.until(lambda: world["a"].state is State.READY)
    assert world["c"].contents("q") == bodies(0, 20)


def test_ha_demote_changes_nothing_at_a_backup(world: World) -> None:
    replies = ask(world["b"], method="ha.demote")
    world.run(0.01)
    assert replies == [{"ok": True, "result": {}}]
    assert world["b"].state is State.READY
