"""The order and the pauses of attempts, with a clock made of numbers."""

import random

import pytest

from client_lib.retry import REFUSED_FACTOR, Attempt, GiveUp, Reconnect, RetryPolicy
from client_lib.url import Address, parse_urls

A, B, C = parse_urls("a,b,c")


def make(policy: RetryPolicy | None = None, urls: str = "a,b,c") -> Reconnect:
    return Reconnect(parse_urls(urls), policy or RetryPolicy(), random.Random(1))


def attempt(reconnect: Reconnect, now: float = 0.0) -> Attempt:
    step = reconnect.next(now)
    assert isinstance(step, Attempt), step
    return step


def fail_round(reconnect: Reconnect, count: int = 3) -> list[Attempt]:
    steps = []
    for _ in range(count):
        steps.append(attempt(reconnect))
        reconnect.failed(steps[-1].address, "no")
    return steps


def test_first_round_is_immediate_and_in_order() -> None:
    reconnect = make()
    reconnect.start(0)
    assert [(s.address, s.delay) for s in fail_round(reconnect)] == [(A, 0), (B, 0), (C, 0)]


def test_pauses_between_rounds_grow_with_jitter_up_to_the_maximum() -> None:
    reconnect = make(RetryPolicy(interval_min=0.01, interval_max=0.1))
    reconnect.start(0)
    fail_round(reconnect)
    for number in range(8):
        first, *rest = fail_round(reconnect)
        whole = min(0.01 * 2**number, 0.1)
        assert whole / 2 <= first.delay <= whole
        assert [s.delay for s in rest] == [0, 0]


def test_jitter_differs_between_clients() -> None:
    delays = set()
    for seed in range(5):
        reconnect = Reconnect([A], RetryPolicy(), random.Random(seed))
        reconnect.start(0)
        fail_round(reconnect, 1)
        delays.add(attempt(reconnect).delay)
    assert len(delays) == 5


def test_the_lost_address_comes_last_and_at_once() -> None:
    reconnect = make()
    reconnect.start(0)
    attempt(reconnect)
    reconnect.connected(A)
    reconnect.lost(10)
    assert [(s.address, s.delay) for s in fail_round(reconnect)] == [(B, 0), (C, 0), (A, 0)]


def test_a_hung_address_comes_last_until_it_answers() -> None:
    reconnect = make()
    reconnect.start(0)
    reconnect.failed(attempt(reconnect).address, "timed out", hung=True)
    fail_round(reconnect, 2)
    assert [s.address for s in fail_round(reconnect)] == [B, C, A]
    assert [s.address for s in fail_round(reconnect)] == [A, B, C]


def test_a_broker_lost_by_silence_comes_last() -> None:
    reconnect = make()
    reconnect.start(0)
    attempt(reconnect)
    reconnect.connected(A)
    reconnect.lost(1, hung=True)
    reconnect.failed(attempt(reconnect).address, "timed out", hung=True)  # b
    assert [attempt(reconnect).address, attempt(reconnect).address] == [C, A]


def test_a_refusal_names_the_next_address() -> None:
    reconnect = make()
    reconnect.start(0)
    reconnect.refused(attempt(reconnect).address, "backup", C)
    step = attempt(reconnect)
    assert (step.address, step.delay) == (C, 0)
    reconnect.failed(C, "no")
    assert attempt(reconnect).address == B


def test_a_hint_keeps_the_credentials_of_the_list() -> None:
    reconnect = make(urls="a,amqp://u:p@b:1")
    reconnect.start(0)
    reconnect.refused(attempt(reconnect).address, "backup", Address("b", 1))
    assert attempt(reconnect).address == Address("b", 1, "u", "p")


def test_an_unknown_primary_is_tried_but_two_brokers_cannot_play_ping_pong() -> None:
    reconnect = make(urls="a")
    reconnect.start(0)
    x, y = Address("x"), Address("y")
    reconnect.refused(attempt(reconnect).address, "backup", x)
    assert attempt(reconnect).address == x
    reconnect.refused(x, "backup", y)
    assert attempt(reconnect).address == y
    reconnect.refused(y, "backup", x)
    step = attempt(reconnect)
    assert step.address == A and step.delay > 0


def test_a_backup_that_was_promoted_meanwhile_is_tried_again_at_once() -> None:
    reconnect = make()
    reconnect.start(0)
    reconnect.refused(attempt(reconnect).address, "backup", None)
    reconnect.refused(attempt(reconnect).address, "backup", A)
    step = attempt(reconnect)
    assert (step.address, step.delay) == (A, 0)
    reconnect.refused(A, "backup", B)
    assert attempt(reconnect).address == B
    reconnect.refused(B, "backup", A)
    assert attempt(reconnect).address == C


def test_hearsay_does_not_lead_back_to_a_dead_broker() -> None:
    reconnect = make()
    reconnect.start(0)
    reconnect.failed(attempt(reconnect).address, "down")
    reconnect.refused(attempt(reconnect).address, "backup", A)
    assert attempt(reconnect).address == C


def test_pauses_stay_short_while_a_promotion_is_awaited() -> None:
    reconnect = make(RetryPolicy(interval_min=0.01, interval_max=10), urls="a,b")
    reconnect.start(0)
    for _ in range(20):
        step = attempt(reconnect)
        assert step.delay <= REFUSED_FACTOR * 0.01
        reconnect.refused(step.address, "backup", None)
        reconnect.failed(attempt(reconnect).address, "down")


def test_a_loss_with_a_hint_goes_there_first() -> None:
    reconnect = make()
    reconnect.start(0)
    attempt(reconnect)
    reconnect.connected(A)
    reconnect.lost(1, hint=C)
    assert [s.address for s in fail_round(reconnect)] == [C, B, A]


def test_limits() -> None:
    reconnect = make(RetryPolicy(limit=2))
    reconnect.start(0)
    assert len(fail_round(reconnect, 6)) == 6
    step = reconnect.next(0)
    assert isinstance(step, GiveUp) and "reconnect_limit" in step.reason and "c:5672: no" in step.reason
    reconnect = make(RetryPolicy(timeout=5))
    reconnect.start(100)
    attempt(reconnect, 104.9)
    assert isinstance(reconnect.next(105), GiveUp)


def test_without_reconnect_one_round_and_no_second_life() -> None:
    reconnect = make(RetryPolicy(reconnect=False))
    reconnect.start(0)
    fail_round(reconnect)
    assert isinstance(reconnect.next(0), GiveUp)
    reconnect = make(RetryPolicy(reconnect=False))
    reconnect.start(0)
    attempt(reconnect)
    reconnect.connected(A)
    reconnect.lost(1)
    assert isinstance(reconnect.next(1), GiveUp)


def test_limits_begin_anew_with_each_loss() -> None:
    reconnect = make(RetryPolicy(limit=1, timeout=5))
    for now in (0, 100, 200):
        reconnect.start(now) if now == 0 else reconnect.lost(now)
        reconnect.connected(attempt(reconnect, now).address)


def test_wrong_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="not a range"):
        RetryPolicy(interval_min=2, interval_max=1)
