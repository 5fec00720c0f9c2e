"""What the brokers' logs say against them."""

from torture.evidence import bad_lines, confirmed_at_once


def sample(node, second, epoch, sequence, proc="qpidd:1"):
    return {
        "kind": "confirm_sent", "node": node, "proc": proc, "ts_mono": second * 1_000_000,
        "last_pos": epoch << 48 | sequence,
    }  # fmt: skip


def test_one_after_the_other_is_well():
    events = [sample("a", 1, 1, 10), sample("a", 2, 1, 20), sample("b", 3, 2, 25), sample("b", 4, 2, 30)]
    assert confirmed_at_once(events) == []


def test_what_may_have_been_before_is_not_held_against_it():
    """The old primary stood still from second 2 to 9: its sample is late, its confirms need not be."""
    events = [sample("a", 2, 1, 20), sample("a", 9, 1, 30), sample("b", 4, 2, 30), sample("b", 5, 2, 40)]
    assert confirmed_at_once(events) == []


def test_two_that_certainly_confirm_are_found():
    events = [
        *(sample("a", second, 1, second * 10) for second in range(1, 9)),
        *(sample("b", second, 2, second * 10, "qpidd:2") for second in range(4, 9)),
    ]
    found = confirmed_at_once(events)
    assert found == ["a confirmed in epoch 1 after b had confirmed in epoch 2, by 2.00 s at least"]


def test_of_two_that_claim_one_epoch_one_stops():
    first = [sample("a", second, 1, second) for second in (1, 2, 3)]
    second = [sample("b", second, 1, second) for second in (4, 5, 6)]
    assert confirmed_at_once([*first, *second]) == []
    again = [sample("a", second, 1, second) for second in (6, 7)]
    assert len(confirmed_at_once([*first, *second, *again])) == 2


def test_tracebacks_are_shown_once_with_what_follows():
    log = ["start", "x critical: it failed", "Traceback (most recent call last):", "  File", "KeyError: 1", "end"]
    (found,) = bad_lines("node1", log)
    assert found.startswith("node1: x critical")
    assert "KeyError: 1" in found
    assert bad_lines("node1", ["notice: all is well"]) == []
