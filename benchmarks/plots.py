"""Two plots of the results: the rate over the window, and the cost of a message over what exists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pygal

from benchmarks.samples import Key, Results
from benchmarks.tables import OURS, RABBIT, ROUTES

SIDES = (OURS, RABBIT)


def write(results: Results, folder: Path) -> list[Path]:
    """Those that have something to show, into a folder that is there."""
    charts = {folder / f"{name}.svg": draw(results) for name, draw in PLOTS.items()}
    shown = [file for file, chart in charts.items() if chart.raw_series]
    for file in shown:
        charts[file].render_to_file(str(file))
    return shown


class Line(NamedTuple):
    """What one line shows."""

    title: str
    side: str
    load: str
    brokers: int


def rate_over_window(results: Results) -> pygal.Line:
    lines = [Line(f"{side}, {brokers} broker(s)", side, "window", brokers) for brokers in (1, 3) for side in SIDES]
    return _chart("Confirmed and consumed, messages/s, 1 KiB", "messages without a confirm", results, lines, "rate")


def cost_over_n(results: Results) -> pygal.Line:
    lines = [Line(f"{side}, {kind}", side, f"routes {kind}", 1) for kind in ROUTES for side in SIDES]
    return _chart("Processor time of a routed message, µs", "bindings or queues", results, lines, "cpu_us")


def _chart(title: str, what: str, results: Results, lines: list[Line], value: str) -> pygal.Line:
    """Empty lines are left out."""
    sizes = sorted({key.size for line in lines for key in results.keys([line.load])})
    chart = pygal.Line(title=title, x_title=what, logarithmic=True, js=[], width=900)
    chart.x_labels = [f"{size:,}" for size in sizes]
    for line in lines:
        values = [results.value(Key(line.brokers, line.load, size), line.side, value) for size in sizes]
        if any(value is not None for value in values):
            chart.add(line.title, values)
    return chart


PLOTS: dict[str, Callable[[Results], pygal.Line]] = {
    "rate-over-window": rate_over_window,
    "cost-over-n": cost_over_n,
}
