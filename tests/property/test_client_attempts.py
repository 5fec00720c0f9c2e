"""What holds for the planner of attempts in any world: the limits, that it goes on, that no place is left out.

The world checks at every step: IN_FLIGHT and PER_PLACE, one Wait that lies ahead, and that something will happen.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from client_lib.connecting.retry import COPY_GAP_MAX
from client_lib.retry_policy import RetryPolicy
from tests.support.slow import few
from tests.unit.client_lib.planner_world import World

HOSTS = [f"10.0.0.{n}" for n in range(1, 7)]
NAMES = {"one": HOSTS[:1], "two": HOSTS[1:3], "all": HOSTS, "none": [], "slow": None}
URLS = st.lists(st.sampled_from([*HOSTS, *NAMES]), min_size=1, max_size=6, unique=True).map(",".join)
HOW = st.sampled_from(["down", "hang", "swallow", "refuse", *(f"refuse:{host}" for host in HOSTS)])
ANSWERS = st.sampled_from(["down", "refuse", "refuse:10.0.0.1", "refuse:10.0.0.2"])
POLICIES = st.builds(
    RetryPolicy,
    interval_min=st.sampled_from([0.01, 0.1]),
    interval_max=st.sampled_from([0.1, 2.0]),
    connect_timeout=st.sampled_from([0.3, 2.0]),
    connect_overlap=st.sampled_from([0.05, 0.15, 0.3]),
)


def behaviours(how: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(dict.fromkeys(HOSTS, how))


def begun(world: World) -> float:
    return min(when for when, _ in [*world.starts, *world.look_ups])


@given(URLS, behaviours(HOW), POLICIES, st.integers(0, 99))
@settings(max_examples=few(60), deadline=None)
def test_it_goes_on_for_ever_and_keeps_its_limits(
    urls: str, how: dict[str, str], policy: RetryPolicy, seed: int
) -> None:
    world = World(urls, how, NAMES, policy, seed).start()
    assert begun(world) == 0.0
    world.run(20)
    before = len(world.starts) + len(world.look_ups)
    world.run(policy.connect_timeout + policy.interval_max + policy.connect_overlap + 0.1)
    assert len(world.starts) + len(world.look_ups) > before


@given(URLS, behaviours(HOW), POLICIES, st.sampled_from(HOSTS))
@settings(max_examples=few(60), deadline=None)
def test_a_broker_that_takes_us_is_found(urls: str, how: dict[str, str], policy: RetryPolicy, good: str) -> None:
    """One of the places comes back after a while; no other one does."""
    world = World(urls, {h: w.partition(":")[0] for h, w in how.items()}, NAMES, policy).start().run(7)
    world.behaviour[good] = "open"
    known = {ip for url in urls.split(",") for ip in (NAMES.get(url, [url]) or [])}
    world.run(25)
    assert (world.winner is not None and world.winner.ip == good) == (good in known)


@given(st.lists(st.sampled_from(HOSTS), min_size=1, max_size=6, unique=True), behaviours(ANSWERS), POLICIES)
@settings(max_examples=few(60), deadline=None)
def test_a_round_tries_each_place_at_least_once(hosts: list[str], how: dict[str, str], policy: RetryPolicy) -> None:
    """And at most twice: in its turn, and because a broker names it although it refused before."""
    world = World(",".join(hosts), how, {}, policy).start().run(5)
    rounds: list[list[str]] = []
    for pause, name in zip(world.pauses, world.order, strict=True):
        if pause or not rounds:
            rounds.append([])
        rounds[-1].append(name)
    for tried in rounds[:-1]:
        assert set(hosts) <= set(tried) <= {*hosts, "10.0.0.1", "10.0.0.2"}
        assert all(tried.count(name) <= 2 for name in tried)


@given(URLS, behaviours(HOW), POLICIES)
@settings(max_examples=few(60), deadline=None)
def test_no_place_is_asked_too_often(urls: str, how: dict[str, str], policy: RetryPolicy) -> None:
    """Three times is possible at once: in its turn, because a broker names it, and as the first of the next round; the
    fourth comes after a pause or after the overlap."""
    world = World(urls, how, NAMES, policy).start().run(10)
    least = min(policy.interval_min / 2, policy.connect_overlap, COPY_GAP_MAX)
    for name in set(world.order):
        times = world.times(name)
        assert all(later - before > 0.99 * least for before, later in zip(times, times[3:], strict=False))


@given(st.lists(st.sampled_from(HOSTS), min_size=2, max_size=6, unique=True), behaviours(HOW), POLICIES)
@settings(max_examples=few(60), deadline=None)
def test_a_loss_is_followed_by_an_attempt_at_once_elsewhere(
    hosts: list[str], how: dict[str, str], policy: RetryPolicy
) -> None:
    world = World(",".join(hosts), {hosts[0]: "open"}, {}, policy).start().run(5)
    world.behaviour, world.now = how, world.now + 10
    world.lose()
    assert world.starts == [(world.now, hosts[1])]


@given(URLS, behaviours(HOW), POLICIES, st.integers(1, 5))
@settings(max_examples=few(60), deadline=None)
def test_it_gives_up_at_its_limits(urls: str, how: dict[str, str], policy: RetryPolicy, limit: int) -> None:
    limited = RetryPolicy(limit=limit, connect_timeout=policy.connect_timeout, connect_overlap=policy.connect_overlap)
    world = World(urls, how, NAMES, limited).start().run(100)
    assert world.gave_up and not world.in_flight and f"{limit} rounds" in world.gave_up.reason
    timed = RetryPolicy(timeout=float(limit), connect_overlap=policy.connect_overlap)
    world = World(urls, how, NAMES, timed).start().run(100)
    assert world.gave_up and world.now == limit


@given(URLS, behaviours(HOW), POLICIES, st.lists(st.floats(0.01, 30), min_size=1, max_size=5))
@settings(max_examples=few(60), deadline=None)
def test_pauses_of_our_own_break_nothing(
    urls: str, how: dict[str, str], policy: RetryPolicy, pauses: list[float]
) -> None:
    world = World(urls, how, NAMES, policy).start()
    for pause in pauses:
        world.run(0.7)
        world.pause(pause)
    before = len(world.starts) + len(world.look_ups)
    world.run(2 * policy.connect_timeout + policy.interval_max + 4 * policy.connect_overlap + 0.1)
    assert len(world.starts) + len(world.look_ups) > before
