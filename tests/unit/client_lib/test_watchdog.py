"""When a broker is given up for silence, with a clock made of numbers."""

import functools
from collections.abc import Callable

import pytest

from client_lib.link.watchdog import LOOKS, Watchdog

Received = Callable[[float], int]


def given_up(received: Received, until: float, late: Callable[[float], float] = lambda _: 0.0) -> float | None:
    """When the watchdog gives up; `late`: by how much the look that is due at that time is late."""
    watchdog, now = Watchdog(2.0, 0.0, received(0)), 0.0
    while now < until:
        now += watchdog.pause + late(now + watchdog.pause)
        if watchdog.is_silent(now, received(now)):
            return now
    return None


def test_silence_is_noticed_before_one_and_a_half_intervals_have_passed() -> None:
    for last in range(40):
        heard = 1 + last * 0.03
        gave_up = given_up(functools.partial(lambda heard, now: int(now >= heard), heard), 20)
        assert gave_up is not None and 1.2 * 2 < gave_up - heard <= 1.5 * 2


def test_a_broker_that_speaks_once_an_interval_is_kept() -> None:
    assert given_up(lambda now: int(now / 2.0), 100) is None


def test_a_moderate_load_changes_nothing() -> None:
    gave_up = given_up(lambda now: int(now >= 3), 20, late=lambda now: 0.1)
    assert gave_up is not None and gave_up - 3 < 2 * 2.1


def test_our_own_pause_is_not_the_brokers() -> None:
    def received(now: float) -> int:
        return int(now / 1.0) if now < 10 else 10 + int(now >= 61.2)  # the network is back a second after us

    def late(now: float) -> float:
        return 50.0 if 10 < now < 10.26 else 0.0

    gave_up = given_up(received, 100, late)
    assert gave_up is not None and gave_up > 61.2 + 1.2 * 2


@pytest.mark.parametrize("pause", [0.5, 1.0, 1.9, 2.1, 5.0])
def test_what_came_while_we_were_paused_is_read_before_we_judge(pause: float) -> None:
    """The broker spoke in our pause, just when its silence was almost too long; we read it after the first look."""
    looked = []

    def received(now: float) -> int:
        looked.append(now)
        return int(len([n for n in looked if n > 2.2 + pause]) > 1)

    def late(now: float) -> float:
        return pause if 2.2 < now <= 2.2 + 2.0 / LOOKS else 0.0

    assert given_up(received, 4 + pause, late) is None
