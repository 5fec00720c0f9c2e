"""A bounded piece of the fuzzing; `make fuzz-sanitized` goes on under AddressSanitizer and UBSan."""

from __future__ import annotations

import random

import pytest

from tests.property import fuzz_feed, fuzz_parser


def test_garbage_costs_only_who_sends_it() -> None:
    assert fuzz_feed.run(seconds=60.0, seed=20, rounds=1500) > 0


def test_the_check_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that drops the other client's messages is found in the first round."""
    monkeypatch.setattr(fuzz_feed, "publish_octets", lambda *args, **kwargs: b"")
    with pytest.raises(AssertionError):
        fuzz_feed.run(seconds=10.0, seed=1, rounds=1)


def test_rounds_repeat_exactly() -> None:
    rounds = [b"".join(fuzz_feed.conversation(random.Random("1:7"))) for _ in range(2)]
    assert rounds[0] == rounds[1]


def test_garbage_for_the_parser_alone() -> None:
    assert fuzz_parser.run(seconds=60.0, seed=20, blocks=9) == 9 * fuzz_parser.BLOCK


def test_the_judge_of_the_parser_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of ours."""
    monkeypatch.setattr(fuzz_parser.Owner, "failed", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fuzz_parser.run(seconds=60.0, seed=1, blocks=1)


def test_inputs_to_the_parser_repeat_exactly_and_get_far() -> None:
    one, two = random.Random(7), random.Random(7)
    for _ in range(99):
        assert fuzz_parser.an_input(one, fuzz_parser.CLIENT) == fuzz_parser.an_input(two, fuzz_parser.CLIENT)
    block = fuzz_parser.Block(1, 0)
    block.run()
    assert sum(queue.enqueued for queue in block.queues.values()) > 500
