"""What long work tells: on a terminal one line that is rewritten, elsewhere a line now and then, and only if wanted."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.cli import common
from spark_jobs.progress import QUIET, Line, line, octets, place


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [
        (0, 0, 0.0, "files"),
        (45, 100, 0.1, "files: 45 %"),
        (45_000_000, 100_000_000, 10.0, "files: 45 %, 4.5 MB/s, 0:12 left"),
        (50_000, 0, 2.0, "files: 25.0 kB/s"),  # of how many is not known
        (100, 100, 5.0, "files: 100 %, 20 B/s"),
        (10**9, 10**13, 1.0, "files: 0 %, 1.0 GB/s, 2:46:39 left"),
    ],
)
def test_line(done: int, total: int, seconds: float, said: str) -> None:
    assert line("files", done, total, seconds) == said


@given(st.integers(0, 10**15), st.integers(0, 10**15), st.floats(0, 1e6))
def test_line_holds_any_numbers(done: int, total: int, seconds: float) -> None:
    assert "\n" not in line("files", done, total, seconds)


def test_octets_have_at_most_three_figures_and_a_unit() -> None:
    assert [octets(count) for count in (0, 999, 1000, 12_345, 123_456, 5e15)] == [
        "0 B", "999 B", "1.0 kB", "12.3 kB", "123 kB", "5000 TB",
    ]  # fmt: skip


def test_place_of_a_step() -> None:
    assert place("clocks", ("files", "clocks")) == "[2/2] clocks"
    assert place("else", ("files", "clocks")) == "else"


def test_terminal_line_is_rewritten_at_most_five_times_a_second_and_goes() -> None:
    out, clock = Terminal(), Clock()
    progress = Line(out, clock)
    progress.expect(("files", "clocks"))
    progress.step("files")
    for done in range(1, 1001):
        clock.now = done / 1000
        progress.at(done, 1000)
    progress.step("clocks")
    progress.close()
    told = out.getvalue().split("\r")
    assert 4 <= sum("files: " in text for text in told) <= 6
    assert "\n" not in out.getvalue()
    assert told[-2].startswith("[2/2] clocks") and told[-1] == "\x1b[K"


def test_elsewhere_a_line_for_each_step_and_each_five_seconds() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Line(out, clock)
    progress.step("files")
    for second in range(1, 13):
        clock.now = float(second)
        progress.at(second, 12)
    progress.close()
    assert out.getvalue().splitlines() == ["files", "files: 41 %, 1 B/s, 0:07 left", "files: 83 %, 1 B/s, 0:02 left"]


def test_reader_that_has_gone_does_not_stop_the_work() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    Line(Gone()).step("files")


@pytest.mark.parametrize(
    ("terminal", "wanted", "told"),
    [(True, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_quiet_unless_on_a_terminal_or_wanted(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, wanted: bool | None, told: bool
) -> None:
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    with common.progress(wanted) as progress:
        progress.step("files")
        assert (progress is not QUIET) == told
    assert ("files" in out.getvalue()) == told
