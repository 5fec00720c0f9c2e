"""Messages that a broker cannot read back from its page file: it is whole no more, hands over, and refills itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.status import State
from ha.primary.giving_way import GIVE_WAY
from ha.promotion.score import COPY, PRIMARY, SLOW
from qpidd_py.core import decode_ids, soon
from qpidd_py.errors import PageError
from tests.support.paged import MemoryPages
from tests.unit.ha.test_brokers import member
from tests.unit.ha.world import Host, Publisher, World

SIZE = 8000
NUMBER = 24
"""Messages of `SIZE` octets: three segments, and a part of one."""
BODIES = [b"%04d" % number + b"x" * SIZE for number in range(NUMBER)]
REASON = "in the page file"


class Pages(MemoryPages):
    """The page file of one broker."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.engine)
        self.host = host
        self.on_rot = lambda: host.node.damaged(REASON)
        self.paging.on_wanted = lambda: host.after(0.001, self._all_at_once)
        self.everything()

    def rot(self) -> None:
        """Of what was written first; it is not known yet."""
        self.octets[max(self.octets)][-5] ^= 1

    def find(self) -> None:
        """A reader finds it."""
        self.rot()
        Publisher(self.host).get("q")
        self.host.world.until(lambda: bool(self.host.engine.pool.rotten))


def declared(world: World, primary: str = "a") -> Publisher:
    """All have all messages."""
    world[primary].configuration.declare("q")
    client = Publisher(world[primary])
    for body in BODIES:
        client.publish("q", body)
    world.until(lambda: client.confirmed == NUMBER)
    return client


@pytest.fixture
def world() -> World:
    found = World()
    found.cluster()
    declared(found)
    return found


def unreadable(host: Host) -> int:
    return sum(high - low + 1 for low, high in decode_ids(host.configuration.queues["q"][0].rotten()))


def waiting(host: Host) -> int:
    queue = host.configuration.queues["q"][0]
    return int(queue.ready + queue.unacked)


def refilled(world: World, *names: str, beyond: list[bytes] | None = None) -> None:
    """These are ready, and hold everything, readable, and what was published `beyond` that."""
    world.until(lambda: all(world[name].state is State.READY for name in names))
    for name in names:
        host = world[name]
        assert host.node.view().whole and not host.engine.pool.rotten and not host.node.local.hole
        assert host.contents("q") == [*BODIES, *(beyond or [])]


def test_a_primary_hands_over_and_refills_itself(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    pages.find()
    assert host.state is State.ACTIVE and not host.node.view().whole, "in the call in which it is found"
    assert unreadable(host) and waiting(host) == NUMBER
    world.until(lambda: not host.state.is_primary)
    assert not host.node.view().whole and unreadable(host), "nothing is dropped before it follows another primary"
    world.until(lambda: any(each.state is State.ACTIVE for each in world.hosts.values()))
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "a")
    assert [fields["result"] for kind, fields in host.events if kind == "relocate"] == ["begin", "done"]
    assert any("messages that wait here cannot be read back: the role goes to a backup" in line for line in world.lines)
    world.promote("a", takeover=True)
    assert host.state.is_primary and host.node.view().whole


def test_its_manager_has_some_seconds_to_move_the_role(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    world.run(2 * GIVE_WAY)
    pages.find()
    world.run(GIVE_WAY - 0.5)
    assert host.state is State.ACTIVE and host.node.relocation is None and host.node.candidacy.score == SLOW
    world.promote("c", takeover=True)
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "a", "b")


def test_more_of_it_gives_its_manager_no_more_time(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    world.run(2 * GIVE_WAY)
    pages.find()
    for _ in range(6):
        world.run(GIVE_WAY / 5)
        if host.state.is_primary:
            host.node.damaged(REASON)
    assert not host.state.is_primary or host.node.relocation is not None


def test_a_primary_that_can_read_all_keeps_its_role(world: World) -> None:
    world.run(3 * GIVE_WAY)
    assert world["a"].state is State.ACTIVE and not any(kind == "relocate" for kind, _ in world["a"].events)


def test_it_waits_for_the_end_of_a_switch_over_that_is_under_way(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    host.node.relocation = SimpleNamespace()  # type: ignore[assignment]
    pages.find()
    world.run(2 * GIVE_WAY)
    assert host.state is State.ACTIVE


def test_a_backup_that_can_read_all_keeps_its_link(world: World) -> None:
    host = world["b"]
    before = len(world.lines)
    host.node.damaged("")
    world.run(1.0)
    assert host.state is State.READY and not world.lines[before:]


def test_a_backup_without_a_primary_keeps_what_it_cannot_read(world: World) -> None:
    host, pages = world["b"], Pages(world["b"])
    world["a"].kill()
    world["c"].kill()
    pages.rot()
    assert not soon(host.configuration.queues["q"][0], 0, lambda: None)
    world.run(2 * GIVE_WAY)
    assert unreadable(host) and waiting(host) == NUMBER and not host.state.is_primary


def test_messages_that_are_published_meanwhile_are_confirmed(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    host.node.giving_way._due = 1e9
    pages.find()
    client = Publisher(host)
    client.publish("q", b"new")
    world.until(lambda: client.confirmed == 1)
    assert host.state is State.ACTIVE and host.node.candidacy.score == SLOW, "a manager prefers any other"


def alone() -> tuple[World, Pages]:
    """Its primary cannot read its messages, and has no backup."""
    world = World("ab", safety="availability")
    world.cluster()
    declared(world)
    world["b"].kill()
    host, pages = world["a"], Pages(world["a"])
    world.until(lambda: not host.node.role.ready())  # type: ignore[attr-defined]
    pages.find()
    return world, pages


def test_without_a_backup_in_sync_it_goes_on_and_says_so() -> None:
    world, _ = alone()
    host = world["a"]
    world.run(3.0)
    assert host.state is State.ACTIVE and waiting(host) == NUMBER and not host.closed_clients
    assert host.node.candidacy.score == PRIMARY, "there is nobody better"
    assert host.node.advice().startswith("messages that wait here cannot be read back, and nobody can take over: ")
    client = Publisher(host)
    client.publish("q", b"new")
    world.until(lambda: client.confirmed == 1)
    host.engine.purge(host.configuration.queues["q"][0])
    host.engine.end_turn()
    host.node.damaged("")
    assert host.node.view().whole and host.node.advice() == ""


def test_a_backup_without_them_waits_and_one_that_has_them_is_listed() -> None:
    world, pages = alone()
    host = world["a"]
    world["b"].boot()
    world.run(5.0)
    assert world["b"].state is State.CATCHUP and not world["b"].node.view().whole
    (line,) = [line for line in world.lines if "waits to become whole" in line]
    assert "b waits to become whole: messages of queue q that it lacks cannot be read here" in line
    host.engine.purge(host.configuration.queues["q"][0])
    host.engine.end_turn()
    host.node.damaged("")
    pages.paging.look_again()
    world.until(lambda: world["b"].state is State.READY)


def test_a_backup_that_comes_back_with_them_takes_over() -> None:
    world = World("ab", safety="availability")
    world.cluster()
    declared(world)
    world.cut("a", "b")
    host, pages = world["a"], Pages(world["a"])
    world.until(lambda: not host.node.role.ready())  # type: ignore[attr-defined]
    pages.find()
    world.heal()
    pages.paging.on_wanted = pages._all_at_once
    world.until(lambda: world["b"].state is State.ACTIVE)
    refilled(world, "a")
    assert world["b"].contents("q") == BODIES


def test_a_backup_refills_itself(world: World) -> None:
    host, pages = world["b"], Pages(world["b"])
    pages.rot()
    with pytest.raises(PageError, match="other octets"):
        host.configuration.queues["q"][0].peek(1)
    host.node.damaged(REASON)
    assert host.state is State.CATCHUP and not host.node.view().whole
    pages.paging.on_wanted = pages._all_at_once
    world.until(lambda: host.state is State.READY)
    pages.everything()
    refilled(world, "b")
    assert world["a"].state is State.ACTIVE


def test_who_has_a_hole_is_not_promoted_while_another_has_everything(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    host.node.giving_way._due = 1e9
    pages.find()
    host.node.demote("a test")
    assert "it is joining an active cluster; " in world.refused("a")
    world.promote("b")
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "a", "c")


def test_if_the_successor_dies_the_third_takes_over(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    pages.find()
    world.until(lambda: host.node.relocation is not None)
    target = host.node.relocation._target.name
    world.until(lambda: not host.state.is_primary)
    world[target].kill()
    third = next(name for name in "bc" if name != target)
    world.run(3.0)
    assert not host.state.is_primary, "it takes the role back only if nobody holds everything"
    world.promote(third)
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "a")
    assert world[third].contents("q") == BODIES


def test_it_is_the_best_copy_when_no_other_is_left() -> None:
    """And serves what it can; what it cannot read waits on."""
    world = World("ab", safety="availability")
    world.cluster()
    declared(world)
    host, pages = world["a"], Pages(world["a"])
    host.node.giving_way._due = 1e9
    pages.find()
    world["b"].kill()
    host.node.demote("a test")
    world.until(lambda: host.node.candidacy.score == COPY)
    world.promote("a")
    assert host.state.is_primary and not host.node.view().whole and waiting(host) == NUMBER and unreadable(host)


def test_what_only_this_broker_has_is_no_hole(world: World) -> None:
    """A queue that is not replicated: nobody else could hand it out."""
    host = world["a"]
    host.node.damaged(REASON)
    world.run(1.0)
    assert host.state is State.ACTIVE and host.node.view().whole and host.node.candidacy.score == PRIMARY


@pytest.mark.parametrize(("names", "safety"), [("ab", "manager"), ("abc", "quorum")])
def test_it_steps_aside_for_a_backup_that_cannot_be_completed(names: str, safety: str) -> None:
    """Confirms wait for it, so no switch-over can be prepared.  What it lacks was not confirmed."""
    world = World(names, safety=safety)
    world.cluster()
    client = declared(world)
    host = world["a"]
    for name in names[1:]:
        world[name].break_links()
    for number in range(NUMBER):
        client.publish("q", b"late %04d-" % number + b"x" * SIZE)
    pages = Pages(host)
    for octets in pages.octets.values():
        if b"late" in octets and BODIES[-1][:5] not in octets:
            octets[-5] ^= 1
    world.until(lambda: not host.state.is_primary)
    assert client.confirmed == NUMBER
    assert any("lacks some of them" in line for line in world.lines)
    world.until(lambda: any(world[name].state is State.ACTIVE for name in names[1:]))
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "a")
    assert unreadable(host) == 0


def test_a_promotion_under_way_is_given_up(world: World) -> None:
    """Others have granted the claim of a broker that was whole when it asked."""
    host, pages = world["b"], Pages(world["b"])
    world["a"].kill()
    pages.rot()
    replies = host.promote()
    world.until(lambda: host.node.local.persisted.leader == "id-b")
    with pytest.raises(PageError):
        host.configuration.queues["q"][0].peek(1)
    host.node.damaged(REASON)
    world.until(lambda: bool(replies))
    assert "messages that it holds cannot be read back" in replies[0]["error"]
    world.promote("c")
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "b")


def holed(names: str, **settings: Any) -> tuple[World, Pages]:
    """Its primary cannot read its messages, and does not hand over by itself."""
    world = World(names, **settings)
    world.cluster()
    declared(world)
    host, pages = world["a"], Pages(world["a"])
    pages.find()
    host.node.giving_way._due = 1e9
    return world, pages


def stays(world: World, seconds: float = 20.0) -> Publisher:
    """A publish is not confirmed, since confirms wait for a backup that is away."""
    client = Publisher(world["a"])
    client.publish("q", b"new")
    world.run(seconds)
    assert client.confirmed == 0 and world["a"].state is State.ACTIVE
    return client


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_it_does_not_go_on_without_the_last_backup_that_may_have_them(names: str) -> None:
    world, _ = holed(names)
    world.cut("a", *names[1:])
    client = stays(world)
    stall = world["a"].node.stall()
    assert stall is not None and stall["until"] == f"they are back: no other backup has what is lost here: {REASON}"
    world.heal()
    world.until(lambda: client.confirmed == 1)


def test_it_goes_on_without_one_of_two() -> None:
    world, _ = holed("abc")
    world.cut("b", "a", "c")
    client = Publisher(world["a"])
    client.publish("q", b"new")
    world.until(lambda: client.confirmed == 1)
    world.cut("c", "a")
    stays(world)


def test_it_goes_on_without_a_backup_that_has_lost_its_memory() -> None:
    """Its process has ended, and it has no journal: it has nothing that this primary lacks."""
    world, _ = holed("ab")
    world.cut("a", "b")
    client = stays(world)
    world["b"].kill()
    world.heal()
    world.until(lambda: client.confirmed == 1)


def test_it_goes_on_without_a_backup_that_comes_back_empty() -> None:
    world, _ = holed("ab")
    world["b"].kill()
    world["b"].boot()
    client = Publisher(world["a"])
    client.publish("q", b"new")
    world.until(lambda: client.confirmed == 1)
    world.until(lambda: world["b"].state is State.CATCHUP)


def test_it_waits_for_a_backup_whose_journal_has_them() -> None:
    world, _ = holed("ab")
    world["a"].node.local.keeps = True
    world["b"].kill()
    stays(world)


@pytest.mark.parametrize("safety", ["manager", "availability"])
def test_the_last_backup_that_may_have_them_is_not_removed(safety: str) -> None:
    world, pages = holed("ab", safety=safety)
    what = "remove b:1: in the page file; of the members in sync only b can have them; relocate the primary first"
    assert member(world, "remove", "b:1") == {"ok": False, "error": what}
    world["a"].node.giving_way._due = 0.0
    world.until(lambda: world["b"].state is State.ACTIVE)
    pages.paging.on_wanted = pages._all_at_once
    refilled(world, "a")


def overtaxed() -> tuple[World, Pages, Publisher]:
    """d cannot be completed here, so c, which is lost, stays in the set, and no switch-over to b can be prepared."""
    world, pages = holed("abcd", safety="quorum")
    world["d"].kill()
    client = Publisher(world["a"])
    client.publish("q", b"new")
    world.until(lambda: client.confirmed == 1)
    world["c"].kill()
    world["d"].boot()
    client.publish("q", b"newer")
    world.run(3.0)
    assert client.confirmed == 1 and world["d"].state is State.CATCHUP
    world["a"].node.giving_way._due = 0.0
    pages.paging.on_wanted = pages._all_at_once
    return world, pages, client


def test_it_steps_aside_when_confirms_wait_for_one_that_the_majority_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _, _ = overtaxed()
    host, asked, request = world["a"], list[Any](), world["a"].request
    world.until(lambda: host.node.relocation is not None)
    began = host.now()
    world.until(lambda: host.node.relocation is None and began + GIVE_WAY - 0.2 < host.now())
    assert host.state.is_primary, "it tries again after as long"

    def noted(*each: Any) -> None:
        asked.append(each[:4])
        request(*each)

    monkeypatch.setattr(host, "request", noted)
    world.until(lambda: not host.state.is_primary)
    settings = host.settings
    (promote,) = [each for each in asked if each[1] == "ha.promote"]
    assert promote == ("b:1", "ha.promote", {}, 2 * settings.promote_timeout + settings.dead_after)
    assert "b:1" in host.closed_clients[-1]
    world.until(lambda: world["b"].state is State.ACTIVE)
    refilled(world, "a", "d", beyond=[b"new", b"newer"])
    assert any("confirms wait, so that no switch-over can be prepared" in line for line in world.lines)


def test_it_does_not_step_aside_for_nobody() -> None:
    world, _, client = overtaxed()
    host = world["a"]
    world.until(lambda: host.node.relocation is not None)
    world.cut("b", "a", "d")
    world.run(3 * GIVE_WAY)
    assert host.node.relocation is None and host.state is State.ACTIVE and client.confirmed == 1


def test_after_a_switch_over_that_failed_at_once_it_waits_again(world: World) -> None:
    host, pages = world["a"], Pages(world["a"])
    pages.find()
    world.until(lambda: host.node.relocation is not None)
    began = host.now()
    for name in "bc":
        world[name].break_links()
    world.until(lambda: host.node.relocation is None)
    assert host.now() < began + 1.0 and host.state is State.ACTIVE
    pages.paging.on_wanted = pages._all_at_once
    world.until(lambda: host.node.relocation is not None or not host.state.is_primary)
    assert host.now() >= began + GIVE_WAY
    refilled(world, "a")
