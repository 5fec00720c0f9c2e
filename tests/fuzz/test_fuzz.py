"""A few inputs of every fuzzer, always the same ones; `make fuzz` goes on."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.guided import Drawn, guided_targets
from tests.fuzz.target import judge_refusal, judge_words
from tests.fuzz.targets import TARGETS
from tests.support.slow import few


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_hostile_does_harm(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    with target.scene(tmp_path) as scene:

        @settings(
            max_examples=few(3 * target.examples),
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.integers(0, 1 << 32))
        def check(seed: int) -> None:
            scene.check(target.make(Random(seed)))

        check()
        scene.finish()


@pytest.mark.parametrize(
    "text", ["Traceback (most recent call last)", "internal error: x", "TypeError: x", "the data path failed"]
)
def test_words_of_a_defect_are_noticed(text: str) -> None:
    with pytest.raises(AssertionError):
        judge_words(f"a line\n{text}\n")


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 5000])
def test_a_refusal_is_one_line(text: str) -> None:
    with pytest.raises(AssertionError):
        judge_refusal(text)


@pytest.mark.parametrize("octets", [b"", b"\0" * 500, b"\xff" * 500, bytes(range(256))])
def test_whatever_octets_are_drawn_make_an_input(octets: bytes) -> None:
    """Or a guided fuzzer would never come back: a draw that is refused is repeated."""
    for name in guided_targets():
        make = TARGETS[name].make
        assert repr(make(Drawn(octets))) == repr(make(Drawn(octets)))


def test_the_octets_decide_what_is_drawn() -> None:
    assert Drawn(b"\x12\x34").getrandbits(12) == 0x123
    assert [Drawn(bytes([at << 4])).randrange(16) for at in range(16)] != [Drawn(b"").randrange(16)] * 16
