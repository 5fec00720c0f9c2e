"""The promotion score: by itself, and as brokers keep it up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ha.model.environment import Answer, Exchanged, Outcome
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim
from ha.promotion.promotion import Refuse, decide
from ha.promotion.score import COPY, DOUBT, LEAST_WHOLE, PRIMARY, SLOW, WHOLE, Outlook, Registry, dry_run, score
from ha.qpid_cluster.render.pacemaker import _DEFAULTS as DEFAULTS
from tests.support.slow import few
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Host, Publisher, World

NAMES = "abc"
BROKERS = tuple(f"{name}:1" for name in NAMES)
MEMBERS = tuple(Member(f"id-{name}", name, f"{name}:1") for name in NAMES)
SET = InSync(1, "id-a", 3, MEMBERS)
SAFETY = Safety("manager", BROKERS, 2.0)
READ = Registry(ManagerRecord(registry=True))


def view(name: str, state: State = State.READY, sequence: int = 100, whole: bool = True, in_sync: InSync = SET) -> View:
    position = make(1, sequence) if in_sync.version else 0
    return View(f"id-{name}", name, f"{name}:1", state, in_sync.epoch, in_sync.leader, position, whole, in_sync)


def fresh(name: str) -> View:
    return view(name, State.JOINING, 0, False, InSync())


def survey(*views: View, **outcomes: Outcome) -> Survey:
    answers = {view.address: Answer(Outcome.ANSWERED, view.to_json()) for view in views}
    answers |= {f"{name}:1": Answer(outcome) for name, outcome in outcomes.items()}
    return Survey.of("id-b", answers)


def found(me: View, seen: Survey | None, last: int | None = None) -> int | None:
    return score(me, Outlook(survey=seen), SAFETY, last=last)


# ---- the rule


@pytest.mark.parametrize("state", [State.RECOVERING, State.ACTIVE])
def test_a_primary(state: State) -> None:
    assert score(view("b", state), Outlook(), SAFETY) == PRIMARY


def test_a_primary_whose_disk_hangs_comes_behind_a_ready_backup() -> None:
    assert score(view("b", State.ACTIVE), Outlook(replaceable=True), SAFETY) == SLOW < PRIMARY


def test_a_promotion_of_a_ready_backup_changes_no_score() -> None:
    assert PRIMARY == WHOLE


@pytest.mark.parametrize(
    ("state", "wanted"), [(State.READY, WHOLE), (State.CATCHUP, None), (State.JOINING, None), (State.STANDALONE, None)]
)
def test_while_a_primary_lives_the_state_decides(state: State, wanted: int | None) -> None:
    assert score(view("b", state), Outlook(follows=True), SAFETY, last=WHOLE) == wanted
    seen = survey(view("a", State.ACTIVE), c=Outcome.SILENT)
    assert found(view("b", state), seen, last=WHOLE) == wanted


def test_the_newest_comes_first_and_equal_copies_are_equal() -> None:
    assert found(view("b"), survey(view("c"), a=Outcome.REFUSED)) == WHOLE
    assert found(view("b"), survey(view("c", sequence=99), a=Outcome.REFUSED)) == WHOLE
    assert found(view("b"), survey(view("c", sequence=101), a=Outcome.REFUSED)) == 90
    assert found(view("b"), survey(view("c", sequence=101), view("a", sequence=102))) == 80
    assert found(view("b"), survey(view("c", sequence=101), view("a", sequence=101))) == 90


def test_who_has_stepped_down_comes_behind_a_ready_one() -> None:
    deposed = view("b", State.JOINING, 200)
    assert found(deposed, survey(view("c"), a=Outcome.REFUSED)) == 90
    assert found(deposed, survey(a=Outcome.REFUSED, c=Outcome.REFUSED)) == WHOLE
    assert found(view("b"), survey(view("a", State.JOINING, 200), c=Outcome.REFUSED)) == WHOLE


def test_many_are_ahead() -> None:
    names = "abcdefghijklm"
    members = tuple(Member(f"id-{name}", name, f"{name}:1") for name in names)
    everybody = InSync(1, "id-a", 3, members)
    others = [view(name, sequence=100 + number, in_sync=everybody) for number, name in enumerate(names) if name != "b"]
    me = view("b", sequence=1, in_sync=everybody)
    assert dry_run(me, survey(*others), Safety("manager", (), 2.0), ManagerRecord()) == LEAST_WHOLE
    assert LEAST_WHOLE > COPY


def test_catching_up_has_none_unless_it_is_the_best_copy_left() -> None:
    me = view("b", State.CATCHUP, whole=False)
    assert found(me, survey(view("c"), a=Outcome.REFUSED), last=WHOLE) is None
    empty = [replace(view(name, State.JOINING, whole=False), position=0) for name in "ac"]
    assert found(me, survey(*empty)) == COPY
    assert found(replace(view("b", State.JOINING, whole=False), position=0), survey(me, empty[0])) is None


def test_in_a_fresh_cluster_and_after_a_total_failure_everybody_has_the_same() -> None:
    assert found(fresh("b"), survey(fresh("a"), fresh("c"))) == COPY
    assert found(fresh("b"), survey(fresh("a"), c=Outcome.SILENT)) is None
    restarted = [replace(view(name, State.JOINING, whole=False), position=0) for name in NAMES]
    assert found(restarted[1], survey(restarted[0], restarted[2])) == COPY


def test_before_the_answers_only_a_ready_backup_keeps_what_it_had() -> None:
    assert found(view("b"), None, last=WHOLE) == WHOLE
    assert found(view("b"), None, last=90) == 90
    assert found(view("b"), None, last=None) is None
    assert found(view("b", State.JOINING), None, last=PRIMARY) is None
    assert found(view("b", State.CATCHUP, whole=False), None, last=WHOLE) is None


def test_one_answer_is_enough_to_step_back() -> None:
    ahead, behind = view("c", sequence=101), view("c", sequence=99)
    assert score(view("b"), Outlook(heard=(ahead,)), SAFETY, last=WHOLE) == 90
    assert score(view("b"), Outlook(heard=(behind,)), SAFETY, last=WHOLE) == WHOLE
    removed = SET.shrink(["id-b"])
    assert score(view("b"), Outlook(heard=(view("c", in_sync=removed),)), SAFETY, last=WHOLE) is None


def test_the_registry_has_its_say() -> None:
    seen = survey(a=Outcome.SILENT, c=Outcome.REFUSED)
    without = Registry(ManagerRecord((HaState("id-a", 1, "id-a", SET.shrink(["id-b"])),), registry=True))
    within = Registry(ManagerRecord((HaState("id-a", 1, "id-a", SET),), registry=True))
    doubting = replace(view("b"), doubt=True)
    assert score(doubting, Outlook(survey=seen), SAFETY, within) == WHOLE
    assert score(doubting, Outlook(survey=seen), SAFETY) is None
    assert score(view("b"), Outlook(survey=seen), SAFETY, without, last=WHOLE) is None
    failed = Registry(failed=True)
    assert score(view("b"), Outlook(survey=seen), SAFETY, failed, last=WHOLE) == LEAST_WHOLE
    assert score(view("b"), Outlook(survey=seen), SAFETY, failed) is None
    assert score(view("b", State.JOINING), Outlook(survey=seen), SAFETY, failed, last=WHOLE) is None
    assert score(view("b"), Outlook(survey=seen), SAFETY, Registry(), last=WHOLE) == WHOLE


def test_two_new_brokers_with_an_empty_registry_do_not_wait_for_a_silent_one() -> None:
    assert score(fresh("b"), Outlook(survey=survey(a=Outcome.SILENT)), SAFETY, READ) == COPY
    assert score(fresh("b"), Outlook(survey=survey(a=Outcome.SILENT)), SAFETY) is None


# ---- score and verdict are one


sets = st.sampled_from([InSync(), SET, SET.shrink(["id-b"]), SET.shrink(["id-a"]), SET.shrink(["id-a", "id-c"])])
states = st.sampled_from([State.JOINING, State.CATCHUP, State.READY])


@st.composite
def views(draw: st.DrawFn, name: str, states: st.SearchStrategy[State]) -> View:
    state, in_sync = draw(states), draw(sets)
    whole = state is State.READY or (state is State.JOINING and draw(st.booleans()))
    made = view(name, state, draw(st.integers(0, 3)), whole, in_sync)
    epoch, leader = draw(st.sampled_from([(in_sync.epoch, in_sync.leader), (2, "id-a"), (2, "id-c")]))
    return replace(made, epoch=epoch, leader=leader, doubt=draw(st.booleans()), stood=draw(st.booleans()))


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    answered = [name for name in "ac" if draw(st.booleans())]
    outcomes = {name: draw(st.sampled_from([Outcome.REFUSED, Outcome.SILENT])) for name in "ac" if name not in answered}
    seen = [draw(views(name, st.sampled_from(list(State)[1:]))) for name in answered]
    return survey(*seen, **outcomes)


@st.composite
def records(draw: st.DrawFn) -> ManagerRecord:
    entries = [draw(sets) for _ in range(draw(st.integers(0, 2)))]
    known = tuple(
        HaState(f"id-{name}", each.epoch, each.leader, each) for name, each in zip("ac", entries, strict=False)
    )
    return ManagerRecord(known, registry=True) if draw(st.booleans()) else ManagerRecord()


@settings(max_examples=few(600), deadline=None)
@given(views("b", states), surveys(), records(), st.sampled_from(["manager", "quorum", "availability"]))
def test_a_number_if_and_only_if_it_would_be_promoted(me: View, seen: Survey, record: ManagerRecord, mode: str) -> None:
    safety = Safety(mode, BROKERS, 2.0)
    given_score = score(me, Outlook(survey=seen), safety, Registry(record))
    if any(view.state.is_primary for view in seen.views):
        assert given_score == (WHOLE if me.state is State.READY else None)
        return
    verdict = decide(me, seen, safety, record=record, behind=True)
    assert (given_score is not None) == isinstance(verdict, Claim)
    strict = decide(me, seen, safety, record=record)
    if given_score == WHOLE:
        assert isinstance(strict, Claim)
    if isinstance(strict, Refuse) and isinstance(verdict, Claim):
        assert verdict.whole
        assert given_score is not None
        assert given_score < WHOLE


# ---- in a cluster


def scores(world: World) -> dict[str, int | None]:
    return {host.name: host.node.candidacy.score for host in world.hosts.values() if host.alive}


def watch(world: World) -> dict[str, list[int | None]]:
    """Everything that is told from now on."""
    told: dict[str, list[int | None]] = {}

    def listen(name: str) -> Callable[[], None]:
        def news() -> None:
            last, now = told[name], world[name].node.candidacy.score
            if not last or last[-1] != now:
                last.append(now)

        return news

    for host in world.hosts.values():
        told[host.name] = [host.node.candidacy.score]
        host.node.candidacy.news = listen(host.name)
    return told


def busy(world: World) -> Publisher:
    """A queue with a message, and somebody who publishes."""
    world["a"].configuration.declare("q")
    publisher = Publisher(world["a"])
    publisher.publish("q", b"one")
    world.until(lambda: publisher.confirmed == 1)
    return publisher


def test_while_all_is_well_nothing_changes() -> None:
    world = World()
    world.cluster()
    told = watch(world)
    publisher = busy(world)
    for _ in range(20):
        publisher.publish("q", b"more")
        world.run(0.3)
    assert told == {"a": [PRIMARY], "b": [WHOLE], "c": [WHOLE]}


def test_when_equal_copies_lose_their_primary_no_score_changes() -> None:
    world = World()
    world.cluster()
    busy(world)
    told = watch(world)
    world["a"].kill()
    world.run(3.0)
    assert told == {"a": [PRIMARY], "b": [WHOLE], "c": [WHOLE]}
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE)
    assert told == {"a": [PRIMARY], "b": [WHOLE], "c": [WHOLE]}


def behind(world: World) -> None:
    """b lacks the last message, and the primary dies."""
    world.cluster()
    publisher = busy(world)
    world.cut("a", "b")
    publisher.publish("q", b"two")
    world.run(0.01)
    world["a"].kill()
    world.heal()


def test_who_is_behind_says_so_as_soon_as_the_other_has_answered() -> None:
    world = World()
    behind(world)
    told = watch(world)
    took = world.until(lambda: scores(world)["b"] == 90)
    assert took < 0.01
    world.run(3.0)
    assert told["b"] == [WHOLE, 90]
    assert told["c"] == [WHOLE]
    assert "c (ready" in world.refused("b")


def test_a_silent_broker_does_not_keep_the_answer_of_another_back() -> None:
    world = World()
    behind(world)
    world["a"].boot()
    world["a"].paused = True
    took = world.until(lambda: scores(world)["b"] == 90)
    assert took < 0.01


def test_a_manager_that_knows_may_promote_one_that_is_behind() -> None:
    world = World()
    behind(world)
    world.run(0.1)
    world.promote("b", behind=True)
    world.until(lambda: world["c"].state is State.READY and world["b"].state.is_primary)
    assert world["b"].contents("q") == [b"one"]
    world.until(lambda: world["c"].contents("q") == [b"one"])


def test_who_steps_down_has_none_at_once_and_comes_behind_a_ready_one() -> None:
    world = World()
    world.cluster()
    told = watch(world)
    world["a"].node.demote("a test")
    assert scores(world)["a"] is None
    world.run(1.0)
    assert told == {"a": [PRIMARY, None, 90], "b": [WHOLE], "c": [WHOLE]}


def test_all_nodes_power_cycled() -> None:
    world = World()
    world.cluster()
    for host in world.hosts.values():
        host.kill()
    for host in world.hosts.values():
        host.boot()
    assert scores(world) == {"a": None, "b": None, "c": None}
    world.run(0.1)
    assert scores(world) == {"a": COPY, "b": COPY, "c": COPY}
    assert not any("total failure" in line for line in world.lines)
    replies = world["c"].promote()
    world.until(lambda: scores(world) == {"a": WHOLE, "b": WHOLE, "c": PRIMARY})
    (said,) = [line for line in world.lines if "total failure" in line]
    warning = "promoted after a total failure: every member of the in-sync set has died"
    assert f"c warning: {warning}" in said
    assert replies[0]["result"]["warning"].startswith(warning)
    promoted = [fields["attrs"] for kind, fields in world["c"].events if kind == "promoted"]
    assert promoted == [{"members": 1, "total_failure": "true"}]


def test_a_lone_survivor_that_was_restarted_has_none() -> None:
    world = World("ab")
    world.cluster()
    world["a"].paused = True
    world["b"].kill()
    world["b"].boot()
    world.run(2.0)
    assert scores(world)["b"] is None
    assert "may hold more but does not answer" in world.refused("b")


def test_who_cannot_read_the_registry_comes_last() -> None:
    world = World("ab", registry=True)
    world.cluster()
    world["a"].kill()
    world.registry_lost = {"b"}
    world.run(5.0)
    assert scores(world)["b"] == LEAST_WHOLE
    world.registry_lost = set()
    took = world.until(lambda: scores(world)["b"] == WHOLE)
    assert took <= world["b"].settings.registry_timeout + 2 * world["b"].settings.heartbeat


def test_who_was_dropped_hears_it_from_the_registry() -> None:
    world = World("ab", registry=True, isolation_wait=0.2)
    world.cluster()
    world.cut("a", "b")
    world.until(lambda: "id-b" not in world["a"].node.local.persisted.in_sync)
    world.run(3.0)
    assert scores(world)["b"] is None


def test_whom_only_the_registry_knows_is_asked_for_its_primary() -> None:
    """The data directories of all others were put back from before it was added."""
    world = World("abc", registry=True, brokers=("a:1", "b:1"))
    world["a"].kill()
    local = world["b"].node.local
    assert "c:1" not in local.cluster.everybody()
    added = InSync(7, "id-c", 9, (Member("id-c", "c", "c:1"),), ("a:1", "b:1", "c:1"))
    world.registry["c"] = json.dumps(HaState("id-c", 7, "id-c", added).to_json())
    world.until(lambda: "c:1" in local.cluster.everybody())
    assert not local.persisted.in_sync.epoch


def exchanges(host: Host) -> list[HaState | None]:
    """What it writes into the registry from now on; None for a reading."""
    made: list[HaState | None] = []
    exchange = host.exchange

    def noted(state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        made.append(state)
        exchange(state, timeout, done)

    host.exchange = noted  # type: ignore[method-assign]
    return made


def test_nothing_is_read_while_a_primary_lives() -> None:
    world = World("ab", registry=True)
    world.cluster()
    host = world["b"]
    read = exchanges(host)
    world.run(3.0)
    assert read == []
    world["a"].kill()
    world.run(3.0)
    assert 1 < len(read) <= 2 + 3.0 / host.settings.heartbeat


def test_status_says_the_score() -> None:
    world = World()
    world.cluster()
    replies: list[dict[str, dict[str, object]]] = []
    for name in "ab":
        assert world[name].requests.request("ha.status", {}, replies.append, "")
    assert [reply["result"]["score"] for reply in replies] == [PRIMARY, WHOLE]


def test_a_promotion_uses_what_was_just_read_and_reads_again_before_its_claim_stands() -> None:
    world = World("ab", registry=True)
    world.cluster()
    host = world["b"]
    exchanged = exchanges(host)
    world["a"].kill()
    world.until(lambda: host.node.candidacy.recent() is not None)
    before = len(exchanged)
    world.promote("b")
    assert None not in exchanged[before:]
    assert exchanged[before:]


def test_what_came_into_the_registry_since_it_was_read_defeats_the_claim() -> None:
    world = World("ab", registry=True)
    world.cluster()
    world["a"].kill()
    world.until(lambda: world["b"].node.candidacy.recent() is not None)
    newer = world["a"].disk.advance(in_sync=world["a"].disk.in_sync.shrink(["id-b"]))
    world.registry["a"] = json.dumps(newer.to_json())
    assert "was recorded meanwhile" in world.refused("b")
    world.until(lambda: scores(world)["b"] is None or "id-b" not in newer.in_sync)


def test_a_restarted_survivor_goes_on_when_the_other_node_was_fenced() -> None:
    """What only the other one held is gone with it; the registry knows that no broker has to be waited for."""
    world = World("ab", registry=True)
    world.cluster()
    world["a"].paused = True
    world["b"].kill()
    world["b"].boot()
    world.run(3.0)
    assert scores(world)["b"] is None
    world["a"].kill()
    world.cut("a", "b")
    world.run(3.0)
    assert scores(world)["b"] is None
    world.fenced = {"a"}
    world.until(lambda: scores(world)["b"] == COPY)
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE)


def test_a_fenced_backup_is_not_waited_for() -> None:
    world = World(registry=True)
    world.cluster()
    for name in "ac":
        world[name].kill()
        world.cut("b", name)
    world.fenced = {"a", "c"}
    world.run(3.0)
    assert scores(world)["b"] == WHOLE
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE, 1.0)


def test_who_has_waited_for_long_hears_of_a_newcomer_at_once() -> None:
    world = World("ab")
    world.cut("a", "b")
    world.run(30.0)
    assert scores(world) == {"a": None, "b": None}
    world.heal()
    world.until(lambda: scores(world)["a"] == COPY or scores(world)["b"] == COPY)
    assert world.until(lambda: scores(world) == {"a": COPY, "b": COPY}) < 0.01


def test_an_isolated_primary_has_no_score_and_hinders_no_broker() -> None:
    """It can confirm nothing (quorum), and may answer questions for ever."""
    quorum = Safety("quorum", BROKERS, 2.0)
    isolated = replace(view("a", State.ACTIVE), isolated=True)
    assert score(isolated, Outlook(), quorum) is None
    assert score(view("b"), Outlook(survey=survey(isolated, view("c"))), quorum) == WHOLE
    assert isinstance(decide(view("b"), survey(isolated, view("c")), quorum), Claim)
    assert isinstance(decide(view("b"), survey(view("a", State.ACTIVE), view("c")), quorum), Refuse)


# ---- a primary that is cut off, and lives


def test_a_primary_without_a_majority_comes_behind_those_that_have_one() -> None:
    """In time for its manager, which sees all nodes; `ha-isolation-timeout` comes much later."""
    world = World(safety="quorum", isolation_timeout=60.0)
    world.cluster()
    filled(world)
    world.cut("a", "b", "c")
    assert world.until(lambda: scores(world)["a"] == LEAST_WHOLE) > DOUBT
    world.until(lambda: scores(world)["b"] == scores(world)["c"] == WHOLE)
    assert world["a"].state.is_primary and not world["a"].closed_clients
    assert world["a"].requests.request("ha.demote", {}, lambda reply: None, "")
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE)
    world.run(5.0)
    assert scores(world) == {"a": None, "b": PRIMARY, "c": WHOLE}, "the role does not come back while it is cut off"
    world.heal()
    world.until(lambda: scores(world)["a"] == WHOLE)
    world.run(5.0)
    assert scores(world) == dict.fromkeys("abc", WHOLE), "and not when it is there again"


def test_when_nobody_has_a_majority_nobody_is_better() -> None:
    world = World(safety="quorum", isolation_timeout=60.0)
    world.cluster()
    for name in "abc":
        world.cut(name, *"abc".replace(name, ""))
    world.until(lambda: scores(world) == {"a": LEAST_WHOLE, "b": None, "c": None})
    world.heal()
    world.until(lambda: scores(world) == dict.fromkeys("abc", WHOLE))
    assert world["a"].state.is_primary and world["a"].node.local.epoch == 1


def test_a_primary_without_its_registry_stays_while_backups_follow_it() -> None:
    """They do not read the registry, and may be without it, too."""
    world = World(registry=True, isolation_timeout=60.0)
    world.cluster()
    world.registry_lost = set("abc")
    world.run(2 * DOUBT + 4.0)
    assert scores(world)["a"] == PRIMARY
    world.registry_lost = {"a"}
    world.cut("a", "b", "c")
    world.until(lambda: scores(world) == {"a": LEAST_WHOLE, "b": WHOLE, "c": WHOLE})


def test_a_primary_whose_backups_have_died_keeps_its_role() -> None:
    world = World(safety="quorum", isolation_timeout=60.0)
    world.cluster()
    world["b"].kill()
    world["c"].kill()
    world.until(lambda: world["a"].node.candidacy.score == LEAST_WHOLE)
    world["b"].boot()
    world.until(lambda: scores(world) == {"a": PRIMARY, "b": WHOLE})
    assert world["a"].node.local.epoch == 1


def test_stickiness_holds_no_primary_that_has_a_low_score() -> None:
    """Pacemaker adds it to the score of the broker that is promoted."""
    stickiness = next(int(value.value) for value in DEFAULTS if value.name == "resource-stickiness")
    assert SLOW + stickiness < LEAST_WHOLE and LEAST_WHOLE + stickiness < WHOLE
