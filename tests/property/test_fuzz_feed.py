"""A bounded piece of the fuzzing; `make fuzz-sanitized` goes on under AddressSanitizer and UBSan."""

from __future__ import annotations

import random

import pytest

from tests.property import fuzz_feed


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
