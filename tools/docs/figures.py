"""Figures of the documentation as SVG, with text that a reader can select; they need no script and no network.

The figure of the states is drawn from the table of legal steps: a step that has no curve here is an error.
"""

from collections.abc import Iterable

from ha.model.status import TRANSITIONS, State

BOX = 104, 40
PLACES = {
    State.STANDALONE: (20, 40),
    State.JOINING: (20, 200),
    State.CATCHUP: (210, 200),
    State.READY: (400, 200),
    State.RECOVERING: (590, 200),
    State.ACTIVE: (780, 200),
}
# (points of the curve as SVG, where its text stands, the text)
CURVES = {
    (State.STANDALONE, State.JOINING): ("M72 80 V194", (80, 108), "is made a member"),
    (State.JOINING, State.CATCHUP): ("M124 220 H204", (126, 190), "first frame"),
    (State.CATCHUP, State.READY): ("M314 214 H394", (330, 190), "listed"),
    (State.READY, State.CATCHUP): ("M400 228 H320", (322, 254), "not listed"),
    (State.READY, State.RECOVERING): ("M504 220 H584", (512, 190), "promoted"),
    (State.RECOVERING, State.ACTIVE): ("M694 220 H774", (694, 190), "backups back, or given up"),
    (State.CATCHUP, State.RECOVERING): (
        "M262 200 C290 120 560 120 620 194",
        (336, 122),
        "no whole member is left, or by force",
    ),
    (State.JOINING, State.RECOVERING): (
        "M110 200 C170 40 580 40 642 194",
        (280, 66),
        "promoted, and no broker holds more",
    ),
    (State.RECOVERING, State.JOINING): ("M630 240 C580 330 150 330 96 246", (290, 332), "deposed, or stepped down"),
    (State.ACTIVE, State.JOINING): ("M832 240 C780 400 110 400 60 246", (380, 382), "deposed, or stepped down"),
}
TIP = (
    '<marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="tip" d="M0 0 L10 5 L0 10 z"/></marker>'
)


def states() -> str:
    """The states of a broker and every legal step between them."""
    if CURVES.keys() != TRANSITIONS.keys():
        raise ValueError(f"the figure of the states lacks or invents {set(CURVES) ^ set(TRANSITIONS)}")
    parts = [_box(*PLACES[state], state.value) for state in State]
    for curve, place, text in CURVES.values():
        parts += [_line(curve), _text(*place, text)]
    return _svg("The states of a broker", 900, 400, parts)


def life_of_a_message() -> str:
    """The messages from a publish to its confirm."""
    names = ("publisher", "primary", "backup 1", "backup 2")
    at = dict(zip(names, (70, 300, 540, 760), strict=True))
    parts = [_box(x - 52, 10, name) for name, x in at.items()]
    parts += [f'<path class="line" d="M{x} 50 V330" stroke-dasharray="3 4"/>' for x in at.values()]
    steps = (
        ("publisher", "primary", 85, "1  basic.publish"),
        ("primary", "backup 1", 125, "2  batch of this turn"),
        ("primary", "backup 2", 150, "2  the same octets"),
        ("backup 1", "primary", 200, "3  position that it holds"),
        ("backup 2", "primary", 230, "3  position that it holds"),
        ("primary", "publisher", 285, "4  basic.ack, one for many"),
    )
    for source, target, y, text in steps:
        sign = 1 if at[target] > at[source] else -1
        parts.append(_line(f"M{at[source]} {y} H{at[target] - 4 * sign}"))
        parts.append(_text(min(at[source], at[target]) + 12, y - 6, text))
    return _svg("From the publish to the confirm", 860, 340, parts)


def _svg(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}" xmlns="http://www.w3.org/2000/svg">'
    return f'<div class="figure">{head}<defs>{TIP}</defs>{"".join(parts)}</svg></div>\n'


def _box(x: int, y: int, text: str) -> str:
    width, height = BOX
    box = f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    return box + f'<text x="{x + width // 2}" y="{y + height // 2 + 5}" text-anchor="middle">{text}</text>'


def _line(curve: str) -> str:
    return f'<path class="line" d="{curve}" marker-end="url(#tip)"/>'


def _text(x: int, y: int, text: str) -> str:
    return f'<text class="small" x="{x}" y="{y}">{text}</text>'
