"""The outbox: examples, and a model under random operations."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from client_lib.core.outbox import Entry, Outbox


def entry(number: int, mandatory: bool = False) -> Entry:
    return Entry(number, None, "", "q", mandatory, b"", b"", f"p:{number}")


def filled(count: int) -> Outbox:
    outbox = Outbox()
    for number in range(1, count + 1):
        outbox.add(entry(number))
    return outbox


def numbers(entries: list[Entry]) -> list[int]:
    return [e.message for e in entries]


def test_single_multiple_and_unknown_tags() -> None:
    outbox = filled(5)
    assert numbers(outbox.send_next(4)) == [1, 2, 3, 4]
    assert numbers(outbox.settled(2, multiple=False)) == [2]
    assert outbox.settled(2, multiple=False) == []
    assert numbers(outbox.settled(3, multiple=True)) == [1, 3]
    assert numbers(outbox.settled(0, multiple=True)) == [4]
    assert outbox.settled(99, multiple=False) == []
    assert (outbox.unsettled, outbox.waiting, len(outbox._in_flight)) == (1, 1, 0)


def test_after_a_loss_tags_begin_at_one_and_order_is_kept() -> None:
    outbox = filled(4)
    outbox.send_next(3)
    outbox.settled(1, multiple=False)
    assert outbox.connection_lost() == 2
    assert [(e.message, e.resent) for e in outbox.entries()] == [(2, True), (3, True), (4, False)]
    assert numbers(outbox.send_next(1)) == [2]
    assert numbers(outbox.settled(1, multiple=False)) == [2]


def test_returned_marks_a_mandatory_message_until_the_next_loss() -> None:
    outbox = Outbox()
    outbox.add(entry(1))
    outbox.add(entry(2, mandatory=True))
    outbox.send_next(2)
    assert outbox.returned("p:1", 312, "NO_ROUTE") is None
    found = outbox.returned("p:2", 312, "NO_ROUTE")
    assert found is not None and found.returned == (312, "NO_ROUTE")
    outbox.connection_lost()
    assert found.returned is None


def test_discard_gives_everything_back() -> None:
    outbox = filled(3)
    outbox.send_next(2)
    assert numbers(outbox.discard()) == [1, 2, 3]
    assert outbox.unsettled == 0


@given(st.lists(st.tuples(st.sampled_from(["add", "send", "ack", "ack-all", "lose"]), st.integers(1, 8))))
def test_nothing_is_lost_or_reordered(steps: list[tuple[str, int]]) -> None:
    outbox = Outbox()
    added, settled = 0, set[int]()
    wire: list[int] = []  # of the present channel

    def add(count: int) -> None:
        nonlocal added
        for _ in range(count):
            added += 1
            outbox.add(entry(added))

    def lose(_: int) -> None:
        outbox.connection_lost()
        wire.clear()

    actions: dict[str, Callable[[int], object]] = {
        "add": add,
        "send": lambda count: wire.extend(numbers(outbox.send_next(count))),
        "ack": lambda tag: settled.update(numbers(outbox.settled(tag, multiple=False))),
        "ack-all": lambda tag: settled.update(numbers(outbox.settled(tag, multiple=True))),
        "lose": lose,
    }
    for name, value in steps:
        actions[name](value)
        unsettled = numbers(outbox.entries())
        assert unsettled == sorted(set(range(1, added + 1)) - settled)
        assert outbox.unsettled == len(unsettled) == outbox.waiting + len(outbox._in_flight)
        assert wire == sorted(wire)
