"""Which clusters one task computes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.jobs.bins import EACH, FULL, packed


def test_the_largest_come_first_and_the_rest_fills_up() -> None:
    events = {"a": 10, "b": 900, "c": 300, "d": 310, "e": 280}
    assert packed({name: count * 1_000 for name, count in events.items()}, cores=1) == {
        "b": 0, "d": 1, "c": 2, "e": 3, "a": 3
    }  # fmt: skip


def test_few_clusters_are_a_bin_each_and_many_small_ones_share() -> None:
    assert packed({"a": 1, "b": 0}, cores=8) == {"a": 0, "b": 1}
    assert len(set(packed({f"c{n}": 10 for n in range(1000)}, cores=2).values())) == 2 * EACH


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 3 * FULL), min_size=1), st.integers(1, 4))
def test_every_cluster_has_a_bin_and_none_is_much_fuller_than_another(events: dict[str, int], cores: int) -> None:
    bins = packed(events, cores)
    assert bins.keys() == events.keys()
    used = set(bins.values())
    assert used == set(range(len(used))), "numbers without holes: each is a task"
    held = [sum(count for name, count in events.items() if bins[name] == number) for number in used]
    assert max(held) <= sum(events.values()) / len(used) + max(events.values())
    assert packed(dict(reversed(events.items())), cores) == bins
