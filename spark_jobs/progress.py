"""Progress of long work for the user: the step, the share done, the rate, the remaining time.

One line on standard error: rewritten in place on a terminal, a line for each step and each EVERY seconds elsewhere.
Shell around `line`, which is pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TextIO

EVERY: Final = (0.2, 5.0)
"""Seconds between two lines: on a terminal, elsewhere."""
TRUSTED: Final = 1.0
"""Seconds after which a rate is worth telling."""
WIDTH: Final = 79
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Progress(Protocol):
    """The interface for the work; neither call fails or waits."""

    def step(self, name: str) -> None:
        """The next step begins."""

    def at(self, done: int, total: int) -> None:
        """Octets of the step's input, of how many (0: unknown)."""


class Quiet:
    """Prints nothing."""

    def expect(self, steps: Sequence[str]) -> None: ...

    def step(self, name: str) -> None: ...

    def at(self, done: int, total: int) -> None: ...


QUIET: Final = Quiet()


class Line:
    """`clock`: seconds."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._steps: tuple[str, ...] = ()
        self._rewrites = out.isatty()
        self._name, self._began, self._told = "", clock(), float("-inf")

    def expect(self, steps: Sequence[str]) -> None:
        """The names of the steps that will come, in order."""
        self._steps = tuple(steps)

    def step(self, name: str) -> None:
        self._name, self._began = name, self._clock()
        self._tell(0, 0)

    def at(self, done: int, total: int) -> None:
        if self._clock() - self._told >= EVERY[0 if self._rewrites else 1]:
            self._tell(done, total)

    def close(self) -> None:
        """The line on the terminal goes."""
        if self._rewrites:
            self._write("\r\x1b[K")

    def _tell(self, done: int, total: int) -> None:
        self._told = self._clock()
        text = line(place(self._name, self._steps), done, total, self._told - self._began)
        self._write(f"\r{text[:WIDTH]}\x1b[K" if self._rewrites else f"{text}\n")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            pass  # nothing reads the output, which is no reason to stop the work


def place(name: str, steps: Sequence[str]) -> str:
    """`[2/8] clocks`"""
    return f"[{steps.index(name) + 1}/{len(steps)}] {name}" if name in steps else name


def line(name: str, done: int, total: int, seconds: float) -> str:
    """`[1/8] read files: 45 %, 12.3 MB/s, 0:07 left`"""
    told = [f"{min(100, 100 * done // total)} %"] if total > 0 else []
    if done > 0 and seconds >= TRUSTED:
        rate = done / seconds
        told.append(f"{octets(rate)}/s")
        if total > done:
            told.append(f"{clock_time((total - done) / rate)} left")
    return f"{name}: {', '.join(told)}" if told else name


def octets(count: float) -> str:
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == UNITS[0] or count >= 100 else f"{count:.1f} {unit}"


def clock_time(seconds: float) -> str:
    """`0:07`, `1:02:03`"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
