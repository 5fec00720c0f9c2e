"""Reports of the tools: Qpid's columns, or JSON lines.  Pure except for the given stream.

    tp(m/s)  messages a second              l-min l-max l-avg  latency in ms, from the header `ts` (qpid-receive)

`ts` is the sender's clock in ns since 1970: between two machines the latencies are only as exact as their clocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO


@dataclass
class Figures:
    """Messages since a moment, with their latencies in ms."""

    began: float
    messages: int = 0
    latencies: int = 0
    least: float = 0.0
    most: float = 0.0
    total: float = 0.0

    def add(self, latency: float | None) -> None:
        self.messages += 1
        if latency is not None:
            self.least = min(self.least, latency) if self.latencies else latency
            self.most = max(self.most, latency) if self.latencies else latency
            self.total += latency
            self.latencies += 1

    def rate(self, now: float) -> float:
        """Messages a second; 0 where no time has passed."""
        return self.messages / (now - self.began) if now > self.began else 0.0

    def text(self, now: float, with_latency: bool) -> str:
        columns = [f"{self.rate(now):.0f}"]
        if with_latency and self.latencies:
            columns += [f"{value:.2f}" for value in (self.least, self.most, self.total / self.latencies)]
        elif with_latency:
            columns += ["-"] * 3
        return "\t".join(columns)

    def facts(self, now: float) -> dict[str, Any]:
        found: dict[str, Any] = {
            "messages": self.messages,
            "seconds": round(now - self.began, 6),
            "rate": round(self.rate(now), 3),
        }
        if self.latencies:
            found["latency_ms"] = {
                "min": round(self.least, 3),
                "max": round(self.most, 3),
                "avg": round(self.total / self.latencies, 3),
            }
        return found


@dataclass
class Reporter:
    """`every`: a report after so many messages, of these (0: none).  `clock`: seconds."""

    out: BinaryIO
    clock: Callable[[], float]
    every: int = 0
    total: bool = False
    header: bool = True
    as_json: bool = False
    with_latency: bool = False
    all: Figures = field(init=False)
    ended: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Starts the clock."""
        self.all = self._batch = Figures(self.clock())
        if self.every:
            self._batch = Figures(self.all.began)

    def message(self, latency: float | None = None) -> None:
        """One more; latency in ms."""
        self.all.add(latency)
        if self.every:
            self._batch.add(latency)
            if self._batch.messages >= self.every:
                now = self.clock()
                self._print("every", self._batch, now, {})
                self._batch = Figures(now)

    def end(self) -> None:
        """Stops the clock."""
        if self.ended is None:
            self.ended = self.clock()

    def print_total(self, **facts: Any) -> None:
        """Writes the final report if requested; `facts` go into JSON only."""
        if self.total:
            self._print("total", self.all, self.clock() if self.ended is None else self.ended, facts)

    def _print(self, what: str, figures: Figures, now: float, facts: dict[str, Any]) -> None:
        if self.as_json:
            line = json.dumps({"report": what, **figures.facts(now), **facts})
        else:
            if self.header:
                self.header = False
                names = ["tp(m/s)", *(("l-min", "l-max", "l-avg") if self.with_latency else ())]
                self.out.write("\t".join(names).encode() + b"\n")
            line = figures.text(now, self.with_latency)
        self.out.write(line.encode() + b"\n")
        self.out.flush()
