"""Positions, sets of ids, histories, and what a backup takes over as a whole: small worlds, all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product
from typing import Any, cast

import pytest

from ha.backup import staging
from ha.backup.staging import BITE, CALL, Mode, Staging
from ha.model import difference, position
from ha.model.difference import Lineage, Origin, Outside, Ranges, outside
from ha.model.position import LAST_EPOCH, SEQUENCE_MASK, make
from qpidd_py.errors import InvariantError, LinkError

# ---- positions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "sequence"), [(-1, 0), (LAST_EPOCH + 1, 0), (0, -1), (0, SEQUENCE_MASK + 1), (-1, -1)]
)
def test_a_position_has_room_for_its_parts_or_is_refused(epoch: int, sequence: int) -> None:
    with pytest.raises(InvariantError, match="out of range"):
        make(epoch, sequence)


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 0), (LAST_EPOCH, SEQUENCE_MASK), (3, 5), (0, 5), (3, 0)])
def test_a_position_is_made_of_two_parts_and_shown_as_them(epoch: int, sequence: int) -> None:
    made = make(epoch, sequence)
    assert made == epoch * 2**48 + sequence
    assert (position.epoch_of(made), position.sequence_of(made)) == (epoch, sequence)
    assert position.text(made) == f"{epoch}.{sequence}"


# ---- sets of ids -------------------------------------------------------------------------------------------------

IDS = range(6)
SETS = [set(chosen) for size in range(len(IDS) + 1) for chosen in combinations(IDS, size)]


def ranges(ids: Iterable[int]) -> Ranges:
    """As few as there can be."""
    found: Ranges = []
    for each in sorted(ids):
        if found and found[-1][1] == each - 1:
            found[-1] = (found[-1][0], each)
        else:
            found.append((each, each))
    return found


def test_any_two_or_three_ranges_are_normalised() -> None:
    every = [(low, high) for low in range(4) for high in range(4)]
    for given in (*product(every, repeat=2), *product(every[:8], repeat=3)):
        ids = {each for low, high in given for each in range(low, high + 1)}
        assert difference.normalise(given) == ranges(ids), given


def test_what_two_sets_share_and_what_one_has_alone() -> None:
    for one, other in product(SETS, repeat=2):
        assert difference.intersect(ranges(one), ranges(other)) == ranges(one & other), (one, other)
        assert difference.subtract(ranges(one), ranges(other)) == ranges(one - other), (one, other)


def test_sets_are_counted_in_ids() -> None:
    assert [difference.count(ranges(ids)) for ids in SETS] == [len(ids) for ids in SETS]


def test_the_ids_of_an_epoch_are_all_of_it_and_nothing_else() -> None:
    end = SEQUENCE_MASK
    ids: Ranges = [(make(1, end), make(2, 0)), (make(2, 7), make(2, 9)), (make(2, end), make(3, 4))]
    assert difference.of_epochs(ids, [2]) == [(make(2, 0),) * 2, (make(2, 7), make(2, 9)), (make(2, end),) * 2]
    assert difference.of_epochs(ids, [1, 3]) == [(make(1, end),) * 2, (make(3, 0), make(3, 4))]
    assert difference.of_epochs(ids, []) == []


# ---- histories ---------------------------------------------------------------------------------------------------


def test_a_lineage_survives_the_wire() -> None:
    lineage = {1: Origin("a"), 2: Origin("b", 7)}
    assert difference.lineage_to_json(lineage) == [[1, "a", 0], [2, "b", 7]]
    assert difference.lineage_from_json([[1, "a", 0], [2, "b", 7]]) == lineage
    assert difference.lineage_from_json([]) == {}


@pytest.mark.parametrize(
    "value", [None, {}, "x", 3, [None], [[]], [[1, "a"]], [["1", "a", 0]], [[1, 2, 0]], [[1, "a", ""]]]
)
def test_what_is_no_lineage_is_refused(value: Any) -> None:
    with pytest.raises(LinkError, match="its leader and its base"):
        difference.lineage_from_json(value)


def test_an_epoch_is_foreign_when_both_know_it_by_other_leaders() -> None:
    mine = {1: Origin("a"), 2: Origin("b"), 3: Origin("b")}
    assert difference.foreign_epochs(mine, {1: Origin("a", 9), 2: Origin("c")}) == {2}


def whole(epoch: int, gamble: bool) -> Outside:
    return Outside(epoch, make(epoch, 0), make(epoch, SEQUENCE_MASK), True, gamble)


def from_on(epoch: int, low: int, gamble: bool = False) -> Outside:
    return Outside(epoch, low, make(epoch, SEQUENCE_MASK), False, gamble)


A, B = Origin("a"), Origin("b", make(1, 50))


@pytest.mark.parametrize(
    ("mine", "primary", "complete", "expected"),
    [
        # We were complete with the last primary: all of it was in its log.
        ({1: A, 2: B}, {1: A, 2: B}, 2, []),
        ({1: A}, {1: A}, 1, []),
        # It took over at 1.50; what we have behind that it never had.
        ({1: A}, {1: A, 2: B}, 1, [from_on(1, make(1, 51))]),
        # The same when we have followed it, and were never complete.
        ({1: A, 2: B}, {1: A, 2: B}, 1, [from_on(1, make(1, 51))]),
        ({2: B}, {2: B}, 1, []),
        # It took over with holes: anything may be missing there.
        ({1: A}, {1: A, 2: Origin("b")}, 1, [from_on(1, make(1, 0), True)]),
        # It took over when it had all of our epoch, or all but the last id.
        ({1: A}, {1: A, 3: Origin("b", make(2, 10))}, 1, []),
        ({1: A}, {1: A, 2: Origin("b", make(1, SEQUENCE_MASK))}, 1, []),
        ({1: A}, {1: A, 2: Origin("b", make(1, SEQUENCE_MASK - 1))}, 1, [from_on(1, make(1, SEQUENCE_MASK))]),
        # It took over before our epoch began.
        ({2: A}, {2: A, 3: Origin("b", make(1, 9))}, 2, [from_on(2, make(2, 0))]),
        # Of several the one that had least decides.
        ({1: A}, {1: A, 2: B, 3: Origin("c", make(1, 40))}, 1, [from_on(1, make(1, 41))]),
        ({1: A}, {1: A, 2: Origin("c", make(1, 40)), 3: B}, 1, [from_on(1, make(1, 41))]),
        # Both have claimed epoch 2: whatever we wrote in it is unknown there.
        ({1: A, 2: Origin("c", make(1, 60))}, {1: A, 2: B}, 2, [from_on(1, make(1, 51)), whole(2, False)]),
        ({2: Origin("c", make(1, 60)), 1: A}, {1: A, 2: B}, 1, [from_on(1, make(1, 51)), whole(2, False)]),
        # It has never heard of our epoch 2, and took over at 1.50 later.
        ({1: A, 2: Origin("c", make(1, 60))}, {1: A, 3: B}, 2, [from_on(1, make(1, 51)), whole(2, False)]),
        # It has never heard of our epoch 2, and no broker took over since.
        ({1: A, 2: B}, {1: A}, 2, [whole(2, True)]),
        ({1: A, 3: B}, {1: A, 2: Origin("c", make(1, 30))}, 3, [from_on(1, make(1, 31)), whole(3, True)]),
        ({1: A, 3: B}, {1: A, 2: Origin("c", make(1, 30))}, 1, [from_on(1, make(1, 31)), whole(3, True)]),
        # Nothing that came before an epoch says anything about it.
        ({3: B}, {2: Origin("c", make(1, 30)), 3: B}, 1, []),
    ],
)
def test_what_the_primary_never_had(mine: Lineage, primary: Lineage, complete: int, expected: list[Outside]) -> None:
    assert outside(mine, primary, complete) == expected


# ---- what is taken over as a whole --------------------------------------------------------------------------------


class Applied:
    """Calls that note their number."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def call(self, number: int) -> Callable[[], None]:
        return lambda: self.numbers.append(number)


def unused() -> Staging:
    """Without frames, so neither clock nor journal is asked."""
    return Staging(cast(Any, None), cast(Any, None))


def kept(count: int, octets: int = 0) -> tuple[Staging, Applied]:
    stage, applied = unused(), Applied()
    stage.keep()
    for number in range(count):
        stage.add(applied.call(number), octets)
    return stage, applied


def test_what_is_not_kept_happens_at_once() -> None:
    stage, applied = unused(), Applied()
    assert stage.mode is Mode.DIRECT
    stage.add(applied.call(1))
    assert applied.numbers == [1] and stage.some()


def test_what_is_kept_happens_when_it_is_complete_and_in_order() -> None:
    stage, applied = kept(2)
    assert stage.mode is Mode.KEPT and applied.numbers == []
    stage.complete()
    assert stage.mode is Mode.COMPLETE
    stage.add(applied.call(2))
    assert applied.numbers == []
    assert stage.some() and applied.numbers == [0, 1, 2] and stage.mode is Mode.DIRECT
    stage.add(applied.call(3))
    assert applied.numbers == [0, 1, 2, 3]


def test_a_large_part_is_applied_in_bites() -> None:
    stage, applied = kept(5, BITE // 2 - CALL)
    stage.complete()
    assert not stage.some() and applied.numbers == [0, 1] and stage.mode is Mode.COMPLETE
    assert not stage.some() and applied.numbers == [0, 1, 2, 3]
    assert stage.some() and applied.numbers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("octets", "first"), [(BITE - CALL, 1), (BITE - CALL - 1, 2), (BITE - CALL + 1, 1)])
def test_a_bite_ends_where_its_octets_do(octets: int, first: int) -> None:
    stage, applied = kept(2, octets)
    stage.complete()
    stage.some()
    assert len(applied.numbers) == first


def test_calls_count_however_small_they_are() -> None:
    stage, applied = kept(staging.BITE // staging.CALL + 1)
    stage.complete()
    assert not stage.some() and len(applied.numbers) == BITE // CALL


def test_all_of_it_is_applied_in_one_call_where_there_is_no_time() -> None:
    stage, applied = kept(5, BITE)
    stage.complete()
    stage.all()
    assert applied.numbers == [0, 1, 2, 3, 4] and stage.mode is Mode.DIRECT


def test_what_is_forgotten_has_not_happened() -> None:
    stage, applied = kept(2)
    stage.forget()
    assert stage.mode is Mode.DIRECT and stage.some() and applied.numbers == []


def parts(count: int, applied: Applied) -> Callable[[], bool]:
    """A call that takes so many turns."""
    numbers = iter(range(count))

    def call() -> bool:
        applied.numbers.append(number := next(numbers))
        return number < count - 1

    return call


def test_a_call_that_takes_several_turns_keeps_those_behind_it() -> None:
    stage, applied = unused(), Applied()
    stage.add(parts(3, applied), 2 * BITE)
    assert stage.mode is Mode.SPREAD and applied.numbers == [0]
    stage.add(applied.call(10))
    assert not stage.some() and applied.numbers == [0, 1] and stage.mode is Mode.SPREAD
    assert stage.some() and applied.numbers == [0, 1, 2, 10] and stage.mode is Mode.DIRECT


def test_one_that_is_kept_ends_the_bite() -> None:
    stage, applied = unused(), Applied()
    stage.keep()
    stage.add(applied.call(10))
    stage.add(parts(2, applied))
    stage.add(applied.call(11))
    stage.complete()
    assert not stage.some() and applied.numbers == [10, 0] and stage.mode is Mode.COMPLETE
    assert stage.some() and applied.numbers == [10, 0, 1, 11]


def test_where_there_is_no_time_it_is_made_until_it_is_done() -> None:
    stage, applied = unused(), Applied()
    stage.keep()
    stage.add(parts(4, applied))
    stage.complete()
    stage.all()
    assert applied.numbers == [0, 1, 2, 3]


MINE: Lineage = {1: Origin("a"), 3: Origin("b", make(1, 90))}


@pytest.mark.parametrize(
    ("primary", "found"),
    [
        (MINE, make(3, 50)),
        ({**MINE, 4: Origin("c", make(3, 60))}, make(3, 50)),
        ({**MINE, 4: Origin("c", make(3, 40))}, make(3, 40)),
        ({**MINE, 4: Origin("c", make(3, 40)), 5: Origin("c", make(3, 45))}, make(3, 40)),
        ({3: MINE[3], 4: Origin("c", make(3, 40))}, make(3, 40)),
        ({1: MINE[1], 3: Origin("c", make(1, 80))}, make(1, 80)),
        ({1: MINE[1], 3: Origin("c", make(1, 95))}, make(1, 90)),
        ({1: MINE[1], 4: Origin("c", make(1, 30))}, make(1, 30)),
        ({**MINE, 4: Origin("c", 0)}, 0),
        ({2: Origin("c"), 3: Origin("c", make(2, 5))}, 0),
        ({}, 0),
    ],
)
def test_up_to_where_two_logs_are_one(primary: Lineage, found: int) -> None:
    assert difference.shared(MINE, primary, make(3, 50)) == found


def test_an_epoch_of_ours_behind_the_position_is_not_looked_at() -> None:
    """We have voted for it, and have nothing of it yet."""
    assert difference.shared({**MINE, 4: Origin("c", make(3, 20))}, MINE, make(3, 50)) == make(3, 50)
