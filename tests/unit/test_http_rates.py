"""Rates of what counts, from the answers that pass."""

from __future__ import annotations

from typing import Any

import pytest

from qpidd_py.http import rates
from qpidd_py.http.rates import LONGEST, OBJECTS, WINDOW, Rates


def asked(found: Rates, now: float, count: int, length: int = 0, name: str = "q") -> tuple[float, float]:
    """The rates of a counter and of a length."""
    others = {"messages_ready": 0, "messages_unacknowledged": 0}
    item: dict[str, Any] = {"name": name, "messages": length, **others}
    item["message_stats"] = {"publish": count, "deliver_get": 0}
    found.add("queue", [item], now)
    return item["message_stats"]["publish_details"]["rate"], item["messages_details"]["rate"]


def test_nothing_is_known_at_first() -> None:
    assert asked(Rates(), 100.0, 500, 20) == (0.0, 0.0)


@pytest.mark.parametrize("step", [0.5, 1.0, 2.0, 4.9, 5.0, 7.0, 30.0, 60.0])
def test_a_steady_rate_at_any_interval_of_asking(step: float) -> None:
    found = Rates()
    seen = [asked(found, number * step, int(1000 * number * step), int(-10 * number * step)) for number in range(20)]
    assert seen[0] == (0.0, 0.0)
    for counter, length in seen[1:]:
        assert counter == pytest.approx(1000.0, abs=2) and length == pytest.approx(-10.0, abs=2)


def test_the_window_moves_on() -> None:
    """What has stopped has no rate after twice the window, and what begins has its own by then."""
    found = Rates()
    for second in range(20):
        asked(found, second, 100 * second)
    seen = [asked(found, second, 1900)[0] for second in range(20, 20 + 2 * int(WINDOW) + 2)]
    assert seen[0] > 0 and seen[-1] == 0.0 and sorted(seen, reverse=True) == seen


def test_two_that_ask_at_once_see_the_same() -> None:
    found = Rates()
    asked(found, 0.0, 0)
    assert asked(found, 2.0, 20)[0] == asked(found, 2.0, 20)[0] == 10.0


def test_a_counter_that_begins_again_has_no_rate_below_0() -> None:
    """A restarted broker, or a queue of the same name."""
    found = Rates()
    asked(found, 0.0, 5000, 100)
    assert asked(found, 2.0, 10, 0) == (0.0, -50.0)
    assert [asked(found, second, 10 * second)[0] for second in (8, 14, 20)][-1] == 10.0


def test_after_a_long_pause_it_begins_again() -> None:
    found = Rates()
    asked(found, 0.0, 0)
    assert asked(found, LONGEST + 1, 10_000)[0] == 0.0
    assert asked(found, LONGEST + 3, 10_100)[0] == 50.0


def test_names_do_not_meet() -> None:
    found = Rates()
    asked(found, 0.0, 0, name="a")
    assert asked(found, 2.0, 100, name="b")[0] == 0.0
    found.add("connection", [other := {"name": "a", "recv_oct": 9, "send_oct": 9}], 2.0)
    assert other["recv_oct_details"] == {"rate": 0.0}
    assert asked(found, 2.0, 100, name="a")[0] == 50.0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OBJECTS >= 50_000
    monkeypatch.setattr(rates, "OBJECTS", 10)
    found = Rates()
    for number in range(100):
        asked(found, 0.0, 0, name=str(number))
    assert len(found._seen) == 10
    assert asked(found, 2.0, 20, name="95")[0] == 10.0, "the newest are kept"
