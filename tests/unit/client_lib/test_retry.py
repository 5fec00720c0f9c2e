"""The order and the times of attempts, with a clock made of numbers."""

import pytest

from client_lib.connecting.attempts import Attempt, GiveUp, Start, Wait
from client_lib.retry_policy import RetryPolicy
from client_lib.urls.url import Endpoint, parse_urls
from tests.unit.client_lib.planner_world import World

A, B, C, D, E = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"
ABC = f"{A},{B},{C}"
OVERLAP = 0.15


def connected(urls: str = ABC, **places: str) -> World:
    """Connected to A; then places behave as told, by their letters."""
    world = World(urls, {A: "open"}).start().run(1)
    assert world.winner is not None and world.winner.ip == A
    world.behaviour = {globals()[letter]: how for letter, how in places.items()}
    return world


# -- rounds


def test_first_round_is_immediate_and_in_order() -> None:
    world = World(ABC).start().run(0.002)
    assert world.order == [A, B, C] and world.starts[-1][0] == 0.001


def test_the_first_attempt_after_a_loss_is_made_at_once() -> None:
    world = connected(B="open").lose()
    assert world.starts == [(world.now, B)]


def test_pauses_between_rounds_grow_with_jitter_up_to_the_maximum() -> None:
    world = World(A, policy=RetryPolicy(interval_min=0.01, interval_max=0.1)).start().run(2)
    for number, pause in enumerate(world.pauses[1:8]):
        whole = min(0.01 * 2**number, 0.1)
        assert whole / 2 <= pause <= whole


def test_jitter_differs_between_clients() -> None:
    assert len({World(A, seed=seed).start().run(0.05).pauses[1] for seed in range(5)}) == 5


def test_the_pause_is_said_with_the_first_attempt_of_a_round() -> None:
    world = World(f"{A},{B}").start().run(0.05)
    assert world.pauses[0] == world.pauses[1] == world.pauses[3] == 0 < world.pauses[2]


def test_the_lost_address_comes_last() -> None:
    assert connected().lose().run(0.002).order == [B, C, A]


def test_a_hung_address_comes_last_until_it_answers() -> None:
    policy = RetryPolicy(interval_min=0.5, interval_max=0.5)
    world = World(ABC, {A: "hang"}, policy=policy).start().run(2.01)
    assert world.times(A) == [0]
    world.behaviour[A] = "down"
    world.starts.clear()
    world.run(1)
    first = world.order.index(A)
    assert world.order[first - 2 : first + 4] == [B, C, A, A, B, C]


def test_a_broker_lost_by_silence_comes_last_even_after_one_that_hangs() -> None:
    world = connected(B="hang", C="down", A="down").lose(hung=True).run(0.001)
    assert world.order[0] == B
    assert world.run(0.2).order[:3] == [B, C, A]
    world.run(1.9)  # b's time is over
    world.starts.clear()
    world.run(8)
    again = world.order.index(B)
    assert {C, A} <= set(world.order[:again])


def test_a_loser_that_hung_comes_last_at_the_next_loss() -> None:
    world = World(ABC, {A: "hang", B: "open"}).start().run(1)
    assert world.winner and world.winner.ip == B
    world.behaviour = {}
    assert world.lose().run(0.002).order == [C, B, A]


def test_a_broker_that_throws_us_out_at_once_is_asked_more_and_more_rarely() -> None:
    world = World(f"{A},{B}", {A: "open", B: "open"}).start().run(1)
    for _ in range(8):
        world.now += 0.1
        world.lose().run(5)
    pauses = world.pauses[1:]
    assert pauses[:2] == [0, 0] and all(pause > 0 for pause in pauses[2:])
    assert 0.04 < pauses[-1] <= world.policy.interval_max
    world.now += 1
    assert world.lose().run(1).pauses[-1] == 0


# -- overlap


def test_one_that_hangs_costs_the_overlap_only() -> None:
    world = World(ABC, {A: "hang", B: "open"}).start().run(1)
    assert world.starts == [(0, A), (OVERLAP, B)]
    assert world.winner and world.winner.ip == B and world.now == pytest.approx(OVERLAP + 0.003)
    assert [(a.attempt.ip, a.hung) for a in world.abandoned] == [(A, False)]


def test_a_failure_starts_the_next_at_once_while_another_hangs() -> None:
    world = World(ABC, {A: "hang", C: "open"}).start().run(1)
    assert [name for _, name in world.starts] == [A, B, C]
    assert world.starts[2][0] - world.starts[1][0] == pytest.approx(0.0005)


def test_a_slow_one_may_still_win() -> None:
    world = World(ABC, {A: "slow", B: "hang", C: "hang"}).start().run(1)
    assert world.winner and world.winner.ip == A and world.now == 0.5


def test_the_next_round_does_not_wait_for_one_that_hangs() -> None:
    world = World(ABC, {A: "hang", B: "refuse", C: "refuse"}).start().run(0.4)
    assert world.times(A) == [0] and len(world.times(B)) >= 3
    world.behaviour[B] = "open"
    assert world.run(0.2).winner


def test_an_attempt_has_its_timeout() -> None:
    world = World(f"{A},{B}", {A: "hang"}, policy=RetryPolicy(connect_timeout=0.7)).start().run(0.75)
    assert [(a.attempt.ip, a.hung, a.reason) for a in world.abandoned] == [(A, True, "timed out")]


def test_no_more_than_four_at_a_time() -> None:
    urls = ",".join(f"10.0.0.{n}" for n in range(1, 8))
    world = World(urls, {f"10.0.0.{n}": "hang" for n in range(1, 8)}).start().run(1.99)
    assert world.order == [f"10.0.0.{n}" for n in range(1, 5)]
    assert world.run(0.02).order[4:] == ["10.0.0.5"]
    assert set(world.run(4).order) == set(world.behaviour)


# -- copies


def test_a_single_address_is_tried_again_in_parallel() -> None:
    world = World(A, {A: "swallow"}).start().run(0.2)
    assert world.times(A) == [0, OVERLAP]
    world.behaviour[A] = "open"
    assert world.run(1).winner and world.now == pytest.approx(2 * OVERLAP + 0.003)


def test_copies_come_for_as_long_as_the_first_and_make_room_for_each_other() -> None:
    world = World(A, {A: "swallow"}).start().run(1.99)
    assert world.times(A) == pytest.approx([OVERLAP * n for n in range(14)])
    assert all(not a.hung and a.reason == "tried again" for a in world.abandoned)
    assert world.run(0.02).in_flight.keys() != set() and [a.hung for a in world.abandoned[-2:]] == [True, True]


def test_copies_become_rarer_with_each_round() -> None:
    world = World(A, {A: "swallow"}).start().run(30)
    gaps = [b - a for a, b in zip(world.times(A), world.times(A)[1:], strict=False)]
    assert max(gaps[:5]) == pytest.approx(OVERLAP) and min(gaps[-5:]) > 0.9


def test_a_place_that_takes_connections_and_hangs_gets_three() -> None:
    world = World(A, {A: "hang"}).start().run(1.9)
    assert world.times(A) == pytest.approx([0, OVERLAP, 2 * OVERLAP])


def test_all_hang_then_all_are_copied_in_turn() -> None:
    world = World(f"{A},{B}", {A: "swallow", B: "swallow"}).start().run(1)
    assert world.order == [A, B, A, B, A, B, A]


def test_no_copies_when_as_many_hang_as_may() -> None:
    world = World(f"{ABC},{D}", dict.fromkeys([A, B, C, D], "swallow")).start().run(1.9)
    assert world.order == [A, B, C, D]


def test_no_copies_while_somebody_else_answers() -> None:
    world = World(f"{A},{B}", {A: "swallow", B: "refuse"}).start().run(1.9)
    assert world.times(A) == [0] and len(world.times(B)) > 10


def test_when_a_place_answers_its_swallowed_attempts_are_dropped() -> None:
    world = World(A, {A: "swallow"}).start().run(0.2)
    world.behaviour[A] = "down"
    world.run(0.101)  # the next copy is told "down"
    assert len(world.abandoned) == 2 and world.abandoned[-1].reason == "the place has answered"
    assert not world.in_flight
    assert world.run(0.011).order[3:] == [A]  # the next round, after a short pause


# -- refusals and hints


def test_a_refusal_names_the_next_address_at_once() -> None:
    world = World(ABC, {A: f"refuse:{C}"}).start().run(0.0035)
    assert world.order == [A, C, B] and world.times(C) == [0.002]


def test_a_hint_is_followed_while_another_hangs() -> None:
    world = World(f"{A},{B},{C},{D}", {A: "hang", B: f"refuse:{D}", D: "open"}).start().run(1)
    assert world.order == [A, B, D] and world.now == pytest.approx(OVERLAP + 0.005)


def test_an_unknown_primary_is_tried_but_two_brokers_cannot_play_ping_pong() -> None:
    world = World(A, {A: f"refuse:{B}", B: f"refuse:{C}", C: f"refuse:{B}"}).start().run(0.0069)
    assert world.order == [A, B, C]
    assert world.run(0.02).order[3] == A and max(world.pauses) > 0


def test_a_backup_that_was_promoted_meanwhile_is_tried_again_at_once() -> None:
    world = World(ABC, {A: "refuse", B: f"refuse:{A}"}).start().run(0.0061)
    assert world.order == [A, B, A, C]


def test_hearsay_does_not_lead_back_to_a_dead_broker() -> None:
    assert World(ABC, {B: f"refuse:{A}"}).start().run(0.003).order == [A, B, C]


def test_one_whose_syn_was_swallowed_is_tried_again_when_backups_name_it() -> None:
    world = World(ABC, {A: "swallow", B: f"refuse:{A}", C: f"refuse:{A}"}).start().run(0.5)
    assert 2 <= len(world.times(A)) <= 4
    world.behaviour[A] = "open"
    assert world.run(0.3).winner
    world = World(ABC, {A: "swallow", B: f"refuse:{A}", C: f"refuse:{A}"}).start().run(10)
    gaps = [b - a for a, b in zip(world.times(A), world.times(A)[1:], strict=False)]
    assert min(gaps[:10]) >= OVERLAP - 1e-6 and max(gaps[:10]) < 3 * OVERLAP


def test_hearsay_does_not_lead_back_to_one_that_hangs() -> None:
    world = World(ABC, {A: "hang", B: f"refuse:{A}", C: f"refuse:{A}"}).start().run(1.9)
    assert world.times(A) == [0]


def test_while_a_promotion_is_awaited_pauses_grow_with_the_time() -> None:
    """An eighth of it, so that an outage becomes little longer; in the end to the maximum."""
    world = World(f"{A},{B}", {A: "refuse"}, policy=RetryPolicy(interval_min=0.01, interval_max=2)).start()
    for second in (1, 3, 9):
        world.run(second - world.now)
        assert max(world.pauses) <= 0.2 * second
    world.run(60)
    before = len(world.times(A))
    world.run(60)
    assert 30 <= len(world.times(A)) - before <= 61


def test_an_announced_promotion_ends_the_growth_once() -> None:
    world = World(f"{A},{B}", {A: "refuse"}).start().run(30)
    assert max(world.pauses[-4:]) > 0.3
    world.behaviour[A] = "promoted"
    world.starts, world.pauses = [], []
    world.run(4)
    assert len(world.times(A)) > 10
    world.run(60)
    assert max(world.pauses[-4:]) > 0.3


@pytest.mark.parametrize("rest", ["down", "deny", "hang"])
def test_it_gives_up_when_no_place_accepts_and_one_denies(rest: str) -> None:
    world = World(f"{A},{B}", {A: "deny", B: rest}).start().run(60)
    assert world.gave_up is not None and world.gave_up.denied
    assert f"{A}:5672: denied" in world.gave_up.reason and B in world.gave_up.reason


@pytest.mark.parametrize("other", ["refuse", "open", "slow"])
def test_a_denial_ends_nothing_while_another_place_may_accept(other: str) -> None:
    world = World(f"{A},{B}", {A: "deny", B: other}).start().run(60)
    assert world.gave_up is None


def test_a_denial_after_a_loss_is_a_failure_like_others() -> None:
    world = connected(A="deny", B="deny", C="deny").lose().run(60)
    assert world.gave_up is None and 10 < len(world.times(A)) < 100
    world.behaviour[B] = "open"
    world.run(10)
    assert world.winner is not None


def test_a_loss_with_a_hint_goes_there_first() -> None:
    assert connected().lose(hint=C).run(0.002).order == [C, B, A]


def test_a_hint_may_be_where_we_were() -> None:
    assert connected(A="open").lose(hint=A).run(0.1).order == [A]


# -- learned addresses


def test_learned_addresses_come_first_and_the_given_ones_stay() -> None:
    world = connected()
    world.planner.learned(parse_urls(f"{D},{B}"))
    assert world.planner.places.addresses == parse_urls(f"{D},{B},{A},{C}")
    assert world.lose().run(0.003).order == [D, B, C, A]


def test_what_a_backup_tells_is_used_in_the_same_round() -> None:
    world = World(A, {A: "hang"}).start().run(0.001)
    attempt = next(iter(world.in_flight))
    world.planner.learned(parse_urls(f"{A},{B}"))
    actions = world.planner.refused(attempt, world.now, "a backup", None)
    assert [action.attempt.ip for action in actions if isinstance(action, Start)] == [B]


# -- names


def test_each_record_of_a_name_is_an_attempt_and_one_that_hangs_costs_the_overlap() -> None:
    world = World("cluster", {A: "hang", B: "open"}, {"cluster": [A, B]}).start().run(1)
    assert world.look_ups == [(0, "cluster")]
    assert world.starts == [(0.001, A), (0.001 + OVERLAP, B)]
    assert world.winner and (world.winner.ip, world.winner.address.host) == (B, "cluster")


def test_a_name_is_looked_up_anew_in_each_round() -> None:
    world = World("broker", names={"broker": [A]}).start().run(0.2)
    assert len(world.look_ups) == len(world.starts) > 3
    world.names["broker"], world.behaviour[B] = [B], "open"
    assert world.run(0.3).winner


def test_a_name_that_moves_while_all_hang_is_followed() -> None:
    world = World("broker", {A: "swallow", B: "open"}, {"broker": [A]}).start().run(0.1)
    world.names["broker"] = [B]
    assert world.run(0.1).winner and world.now == pytest.approx(0.001 + OVERLAP + 0.004)


def test_without_a_name_server_the_old_records_are_used() -> None:
    world = World("a,b", {A: "open"}, {"a": [A], "b": [B]}).start().run(1)
    world.names, world.behaviour = {"a": (), "b": ()}, {A: "down", B: "down"}
    assert world.lose().run(0.003).order == [A]  # of b nothing was known yet: it had not been needed


@pytest.mark.parametrize("answer", [None, ()])
def test_a_name_server_that_hangs_costs_the_overlap(answer: tuple[()] | None) -> None:
    world = World("a", {A: "open"}, {"a": [A]}).start().run(1)
    world.names["a"] = answer
    began = world.now
    assert world.lose().run(1).winner
    assert world.now - began == pytest.approx((OVERLAP if answer is None else 0.001) + 0.003)


def test_rounds_go_on_while_a_look_up_hangs() -> None:
    world = World("a", {A: "open"}, {"a": [A]}).start().run(1)
    world.names["a"], world.behaviour = None, {A: "refuse"}
    world.lose().run(1)
    assert len(world.starts) > 8 and len(world.look_ups) == 2


def test_the_lost_record_and_those_that_hang_come_last() -> None:
    world = World("cluster", {A: "open"}, {"cluster": [A, B, C]}).start().run(1)
    world.behaviour = {}
    assert world.lose(hung=True).run(0.004).order == [B, C, A]
    world = World(f"cluster,{D}", {A: "open"}, {"cluster": [A, B]}).start().run(1)
    world.behaviour = {}
    assert world.lose().run(0.004).order == [B, D, A]


def test_a_name_that_does_not_exist_costs_nothing() -> None:
    world = World(f"nowhere,{B}", {B: "open"}).start().run(1)
    assert world.now == pytest.approx(0.004)


def test_a_primary_named_by_its_ip_address_is_the_one_known_by_name() -> None:
    world = World("a,b", {A: "open", B: "open"}, {"a": [A], "b": [B]}).start().run(1)
    world.lose().run(1)
    world.behaviour = {}
    world.lose(hint=A)
    assert world.starts[0][1] == A
    assert next(iter(world.in_flight)).address.host == "a"  # the name that a certificate would have
    assert world.run(0.003).order == [A, B]  # not A once more for the name


def test_a_name_that_is_named_is_first_even_if_it_was_lost() -> None:
    world = World("a,b", {A: "open"}, {"a": [A], "b": [B]}).start().run(1)
    assert world.lose(hint="a").run(0.002).order == [A]


def test_a_place_with_several_names_is_tried_once_a_round() -> None:
    names = {"a": [A], "all": [A, B], "b": [B]}
    world = World(f"{A},all,b", {A: "refuse", B: "refuse"}, names).start().run(0.0085)
    assert world.order == [A, B]


def test_a_name_that_refused_and_is_named_is_tried_again() -> None:
    world = World("a,b", {A: "refuse", B: "refuse:a"}, {"a": [A], "b": [B]}).start().run(0.0085)
    assert world.order == [A, B, A]


def test_the_record_that_answers_is_asked_again_while_another_hangs() -> None:
    world = World("cluster", {A: "hang", B: "refuse"}, {"cluster": [A, B]}).start().run(1)
    assert world.times(A) == [0.001] and len(world.times(B)) > 5


# -- limits


def test_rounds_are_limited() -> None:
    world = World(ABC, policy=RetryPolicy(limit=2)).start().run(5)
    assert world.order == [A, B, C] * 2
    assert world.gave_up and "2 rounds (reconnect_limit)" in world.gave_up.reason
    assert f"{C}:5672: down" in world.gave_up.reason


def test_a_broker_that_hangs_is_waited_for_at_the_limit() -> None:
    world = World(f"{A},{B}", {A: "slow"}, policy=RetryPolicy(limit=1)).start().run(5)
    assert world.order == [A, B] and world.winner and world.gave_up is None


def test_the_time_is_limited_to_the_moment() -> None:
    world = World(f"{A},{B}", {A: "hang"}, policy=RetryPolicy(timeout=0.5)).start().run(5)
    assert world.gave_up and world.now == 0.5 and "0.5 s (reconnect_timeout)" in world.gave_up.reason


def test_without_reconnect_one_round_and_no_second_life() -> None:
    world = World(ABC, policy=RetryPolicy(reconnect=False)).start().run(5)
    assert world.order == [A, B, C] and world.gave_up and "off" in world.gave_up.reason
    world = World(A, {A: "open"}, policy=RetryPolicy(reconnect=False)).start().run(5).lose()
    assert world.gave_up == GiveUp("reconnecting is off") and world.starts == []


def test_limits_begin_anew_with_each_loss() -> None:
    world = World(A, {A: "open"}, policy=RetryPolicy(limit=1, timeout=5)).start().run(1)
    for _ in range(3):
        world.now += 100
        assert world.lose().run(1).winner


def test_rounds_are_counted_anew_with_each_loss() -> None:
    world = World(A, policy=RetryPolicy(limit=2)).start().run(0.001)
    world.behaviour[A] = "open"
    assert world.run(1).winner
    world.behaviour[A] = "down"
    world.lose().run(0.001)
    world.behaviour[A] = "open"
    assert world.run(1).winner


def test_nothing_happens_after_stop() -> None:
    world = World(ABC, {A: "hang"}).start().run(0.16)
    assert [a.attempt.ip for a in world.planner.stop() if not isinstance(a, Wait)] == [A]
    assert world.planner.tick(world.now + 5) == []


def test_news_of_attempts_that_are_over_change_nothing() -> None:
    world = World(f"{A},{B}", {A: "hang", B: "open"}).start().run(1)
    loser = world.abandoned[0].attempt
    assert world.planner.failed(loser, 2, "late") == world.planner.refused(loser, 2, "late", None) == []
    assert world.planner.connected(loser, 2) == [] == world.planner.looked_up(Endpoint("x"), [A], 2)
    assert isinstance(loser, Attempt)


def test_a_process_that_was_paused_gives_its_attempts_more_time() -> None:
    world = World(f"{A},{B}", {A: "slow", B: "hang"}).start().run(0.2)
    world.pause(60)
    assert not any(a.hung for a in world.abandoned)
    assert world.run(0.1).winner


def test_time_that_ran_out_while_we_were_paused_is_given_again_but_once() -> None:
    world = World(f"{ABC},{D}", dict.fromkeys([A, B, C, D], "hang")).start().run(1.9)
    world.pause(60)
    assert world.abandoned == []
    for _ in range(5):
        world.run(0.001)
        world.pause(1)
    assert [a.hung for a in world.abandoned] == [True] * len(world.abandoned) != []


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"interval_min": 2, "interval_max": 1}, "not a range"),
        ({"connect_overlap": 0}, "positive"),
        ({"connect_overlap": 3}, "at most connect_timeout"),
    ],
)
def test_wrong_times_are_refused(policy: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RetryPolicy(**policy)  # type: ignore[arg-type]
