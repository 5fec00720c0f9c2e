"""How far the reading of a journal is."""

import logging

import pytest

from qpidd_py.store.progress import LOOK, Interrupted, Progress
from qpidd_py.store.recovery import Frame


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def frames(first: int, number: int) -> list[Frame]:
    return [Frame(each, 0, each, b"") for each in range(first, first + number)]


def test_before_it_begins_nothing_is_known() -> None:
    step = Progress(Clock()).step
    assert (step.rate, step.remaining, str(step)) == (0.0, None, "open the journal: 0 of ? segments")
    assert step.shown()["remaining"] is None


def test_rate_and_remaining_time_count_from_the_first_frame_that_is_read() -> None:
    """The journal of a broker that has run for long does not begin with frame 1."""
    clock = Clock()
    progress = Progress(clock)
    progress.begin("read the journal", "frames")
    found = progress.frames(iter(frames(5_000_001, 4 * LOOK)), 5_000_000 + 4 * LOOK)
    for _ in range(LOOK):
        next(found)
        clock.now += 0.01
    next(found)
    assert (progress.step.done, progress.step.of) == (LOOK, 4 * LOOK)
    assert progress.step.remaining == pytest.approx(3.0)
    assert progress.step.shown()["rate"] == pytest.approx(100.0)


def test_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.begin("check the journal", "segments")
    with caplog.at_level(logging.INFO):
        for done in range(1, 25):
            clock.now += 0.125
            progress.at(done, 60)
    assert caplog.messages == [
        f"check the journal: {done} of 60 segments, 8 segments/s, {(60 - done) / 8:.0f} s remain"
        for done in (8, 16, 24)
    ]


def test_the_end_comes_with_the_next_frame() -> None:
    progress = Progress(Clock())
    progress.begin("read the journal", "frames")
    found = progress.frames(iter(frames(1, 10)), 10)
    next(found)
    progress.stop = True
    with pytest.raises(Interrupted):
        next(found)
