"""The lanes of a drawing: phases, nodes, cluster, clients (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import scene, words
from spark_jobs.report.bands import Band, Role
from spark_jobs.report.canvas import CHARACTER, SEEN, Canvas, hatched, titled
from spark_jobs.report.markup import Markup, joined, shape
from spark_jobs.report.style import PATTERNS, STATE_COLOURS

_CLOSE: Final = 7.0
"""px: marks of one shape that are nearer are one."""


# ---- phases ---------------------------------------------------------------------------------------------------------


def phases(canvas: Canvas, document: Row) -> None:
    """Each is a bar with its name and length inside or next to it, packed into rows."""
    found = [bar for bar in scene.bars(document) if bar.end.at >= canvas.axis.begin and bar.begin.at <= canvas.axis.end]
    canvas.name("Phases", 18)
    rows: list[float] = []
    top = canvas.y
    for bar in found:
        x, end, place, anchor, low, high = _placed(canvas, bar)
        row = next((index for index, last in enumerate(rows) if low - last >= 6), len(rows))
        rows[row : row + 1] = [high]
        y = top + 19 * row
        parts: list[object] = [titled(f"{bar.label}: {words.PHASES[bar.name][1]}")]
        parts.append(canvas.rect(x, y + 2, end - x, 14, class_="d-phase", rx=2.0))
        parts += [*hatched(canvas, bar.begin, y + 2, 14), *hatched(canvas, bar.end, y + 2, 14)]
        inside = anchor == "middle"
        class_ = "d-back d-small" if inside else "d-text d-small d-halo"
        parts.append(shape("text", bar.label, x=place, y=y + 12.8, class_=class_, text_anchor=anchor))
        canvas.parts.append(shape("g", joined(parts)))
    canvas.y = top + max(1, len(rows)) * 19 + 8
    if not found:
        canvas.text(canvas.axis.left, top + 13, "none is known here", "d-muted")


def _placed(canvas: Canvas, bar: scene.Bar) -> tuple[float, float, float, str, float, float]:
    """(begin, end, where the text goes, its anchor, from where to where both reach)"""
    x, end = canvas.axis.x(bar.begin.at), canvas.axis.x(bar.end.at)
    size = len(bar.label) * 5.9
    if size + 8 <= end - x:
        return x, end, (x + end) / 2, "middle", x, end
    if end + 5 + size <= canvas.layout.width:
        return x, end, end + 5, "start", x, end + 5 + size
    if x - 5 - size >= canvas.axis.left:
        return x, end, x - 5, "end", x - 5 - size, end
    return x, end, canvas.layout.width - 2, "end", canvas.layout.width - 2 - size, canvas.layout.width


# ---- nodes ----------------------------------------------------------------------------------------------------------


def node(canvas: Canvas, document: Row, name: str, found: Sequence[Band], roles: Sequence[Role]) -> None:
    here = [band for band in found if seen(canvas, band)]
    marks = apart(canvas, scene.marks(_here(canvas, scene.of_node(document, name))))
    above = 15 if marks else 2
    canvas.name(name, above + 7 + 18 if not marks else 40)
    _marks(canvas, marks, canvas.y + 7)
    top = canvas.y + above
    for role in roles:
        _role(canvas, role, top)
    top += 7
    for band in here:
        canvas.parts.append(_band(canvas, band, top))
    for band in here:
        if band.begin is not None:
            canvas.parts += hatched(canvas, band.begin, top, 18)
    for band in here:
        _label(canvas, band, top)
    canvas.y = top + 18 + 10


def seen(canvas: Canvas, band: Band) -> bool:
    begin = canvas.axis.begin if band.begin is None else band.begin.at
    end = canvas.axis.end if band.end is None else band.end.at
    return begin < canvas.axis.end and end > canvas.axis.begin


def _reach(canvas: Canvas, band: Band) -> tuple[float, float]:
    x = canvas.axis.left if band.begin is None else canvas.axis.x(band.begin.at)
    return x, canvas.axis.right if band.end is None else canvas.axis.x(band.end.at)


def _band(canvas: Canvas, band: Band, y: float) -> Markup:
    x, end = _reach(canvas, band)
    known = STATE_COLOURS.get(band.state, "unknown")
    parts: list[object] = [titled(_called(band.state)), canvas.rect(x, y, end - x, 18, class_=f"s-{known}")]
    if band.state in PATTERNS:
        parts.append(canvas.rect(x, y, end - x, 18, fill=f"url(#{canvas.prefix}-{PATTERNS[band.state]})"))
    return canvas.linked(band.begin.place if band.begin else "", shape("g", joined(parts)))


def _called(state: str) -> str:
    return words.STATES.get(state, words.plain(state))


def _label(canvas: Canvas, band: Band, y: float) -> None:
    """Over what is hatched; left out where there is no room."""
    x, end = _reach(canvas, band)
    known = STATE_COLOURS.get(band.state, "unknown")
    shown = next((text for text in (_called(band.state), band.state) if len(text) * CHARACTER + 6 <= end - x), "")
    if shown:
        canvas.text(x + 4, y + 13, shown, f"t-{known} h-{known}")


def _role(canvas: Canvas, role: Role, y: float) -> None:
    """A thin bar: certainly primary; hatched: possibly."""
    axis = canvas.axis
    low, sure = axis.x(role.from_low), axis.x(role.from_high)
    certain_end = axis.right if role.to_low is None else axis.x(role.to_low)
    end = axis.right if role.to_high is None else axis.x(role.to_high)
    if end <= axis.left or low >= axis.right or end - low < 0.1:
        return
    term = f", term {role.term}" if role.term is not None else ""
    parts: list[object] = [titled(f"{role.node} was primary{term}: certain where it is full, possible where hatched")]
    if certain_end > sure:
        parts.append(canvas.rect(sure, y, certain_end - sure, 5, class_="d-role"))
    hatch = f"url(#{canvas.prefix}-may)"
    for begin, stop in ((low, min(sure, end)), (max(low, certain_end, sure if certain_end > sure else low), end)):
        if stop - begin > SEEN:
            parts.append(canvas.rect(begin, y, stop - begin, 5, fill=hatch, class_="d-edge"))
    canvas.parts.append(shape("g", joined(parts)))


# ---- marks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Placed:
    x: float
    shape: str
    texts: tuple[str, ...]
    place: str


def _here(canvas: Canvas, events: Iterable[Row]) -> list[Row]:
    return [event for event in events if canvas.axis.shows(event["ts_est"])]


def apart(canvas: Canvas, marks: Iterable[scene.Mark]) -> list[_Placed]:
    """Marks of one shape that would hide each other are one."""
    found: list[_Placed] = []
    last: dict[str, int] = {}
    for mark in marks:
        x = canvas.axis.x(mark.at.at)
        index = last.get(mark.shape)
        if index is not None and x - found[index].x < _CLOSE:
            before = found[index]
            found[index] = _Placed(before.x, before.shape, (*before.texts, mark.text), before.place)
        else:
            last[mark.shape] = len(found)
            found.append(_Placed(x, mark.shape, (mark.text,), mark.at.place))
    several = [mark for mark in found if len(mark.texts) > 1]
    canvas.merged += len(several)
    canvas.lines += sum(len(mark.texts) for mark in several)
    return found


_TOLD: Final = 4


def _marks(canvas: Canvas, marks: Iterable[_Placed], y: float) -> None:
    for mark in marks:
        told = list(dict.fromkeys(mark.texts))
        more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
        title = titled("; ".join(told[:_TOLD]) + more)
        use = shape("use", title, href=f"#{canvas.prefix}-{mark.shape}", x=mark.x, y=y, class_=f"d-{mark.shape}")
        canvas.parts.append(canvas.linked(mark.place, use))


# ---- cluster and clients --------------------------------------------------------------------------------------------


def cluster(canvas: Canvas, document: Row) -> None:
    rows = {row: scene.of_cluster(document, row) for row in scene.ROWS}
    for row, name in scene.ROWS.items():
        bars, marks = _merged(canvas, scene.cluster_bars(document, row)), _here(canvas, rows[row])
        if not bars and not marks:
            continue
        canvas.name(name, 18)
        y = canvas.y + 9
        for x, end, label in bars:
            parts = [titled(label), canvas.rect(x, y - 3, end - x, 6, class_="d-phase d-clear")]
            canvas.parts.append(shape("g", joined(parts)))
        _marks(canvas, apart(canvas, scene.marks(marks)), y)
        canvas.y += 22
    canvas.y += 4


def _merged(canvas: Canvas, bars: Iterable[scene.Bar]) -> list[tuple[float, float, str]]:
    """(begin, end, label); those that would touch are one."""
    found: list[tuple[float, float, str]] = []
    for bar in bars:
        if bar.end.at < canvas.axis.begin or bar.begin.at > canvas.axis.end:
            continue
        x, end = canvas.axis.x(bar.begin.at), canvas.axis.x(bar.end.at)
        if found and found[-1][2] == bar.label and x - found[-1][1] < SEEN:
            found[-1] = (found[-1][0], max(end, found[-1][1]), bar.label)
        else:
            found.append((x, end, bar.label))
    return found


def clients(canvas: Canvas, document: Row) -> None:
    """Share of the clients that stand still."""
    lane, height = document["lane"], 44.0
    steps = lane["steps"]
    most = max((down for _, down in steps), default=0)
    if not steps and document["outage_union"] is None:
        return
    note = f"down, of {lane['clients']}" if lane["clients"] else ""
    canvas.name("Clients", height if steps else 20, note if steps else "")
    top = canvas.y
    if not steps:
        canvas.text(canvas.axis.left, top + 14, "none stood still", "d-muted")
        canvas.y += 26
        return
    base = top + height
    canvas.parts.append(shape("path", d=f"M{canvas.axis.left:.1f} {top}H{canvas.axis.right:.1f}M{canvas.axis.left:.1f} "
                              f"{base}H{canvas.axis.right:.1f}", class_="l-line"))  # fmt: skip
    if not canvas.layout.narrow:
        canvas.text(canvas.axis.left - 6, top + 9, "100 %", "d-muted d-small", "end")
        canvas.text(canvas.axis.left - 6, base, "0", "d-muted d-small", "end")
    path = _area(canvas, steps, lane["clients"], base, height)
    peak = f"at most {most} of {lane['clients']} clients stand still"
    canvas.parts.append(shape("path", titled(peak), d=path, class_="d-client d-clear"))
    canvas.parts.append(shape("path", d=path, class_="l-text", stroke_width=".8"))
    _peak(canvas, steps, most, lane["clients"], base, height)
    canvas.y = base + 8


def _area(canvas: Canvas, steps: Sequence[Sequence[int]], clients: int, base: float, height: float) -> str:
    axis = canvas.axis
    path = [f"M{axis.left:.1f} {base:.1f}"]
    before = [down for at, down in steps if at < axis.begin]
    if before:
        path.append(f"V{base - height * before[-1] / clients:.1f}")
    for at, down in steps:
        if axis.shows(at):
            path.append(f"H{axis.x(at):.1f}V{base - height * down / clients:.1f}")
    return "".join([*path, f"H{axis.right:.1f}V{base:.1f}Z"])


def _peak(canvas: Canvas, steps: Sequence[Sequence[int]], most: int, clients: int, base: float, height: float) -> None:
    """Names the longest time with the most."""
    spans = [(later[0] - at, at, later[0]) for (at, down), later in pairwise(steps) if down == most]
    if not spans or not most:
        return
    _, begin, end = max(spans)
    x, right = canvas.axis.x(begin), canvas.axis.x(end)
    text = f"{most} of {clients}"
    if right - x >= len(text) * CHARACTER + 8:
        canvas.text(x + 4, base - height * most / clients + 13, text)
