"""Colours and rules of style: of the page (light, dark, narrow, print) and of a drawing on its own (pure)."""

import re
from collections.abc import Mapping
from typing import Final

from spark_jobs.data import table, text

_COLOURS: Final = table(__package__, "colours")
LIGHT: Final[dict[str, str]] = {name: light for name, (light, _) in _COLOURS["colours"].items()}
DARK: Final[dict[str, str]] = {name: dark for name, (_, dark) in _COLOURS["colours"].items()}
STATE_COLOURS: Final[dict[str, str]] = _COLOURS["states"]
"""State → colour; any other is drawn as unknown."""
PATTERNS: Final[dict[str, str]] = _COLOURS["patterns"]
DEFS: Final[tuple[str, ...]] = tuple(_COLOURS["defs"].values())
"""What a drawing fills areas with."""
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"


def drawing_rules(colours: Mapping[str, str]) -> str:
    """Of a drawing on its own: plain selectors and values, because a converter to PNG knows no others."""
    return re.sub(r"var\(--([\w-]+)\)", lambda match: colours[match[1]], _drawn())


def _drawn() -> str:
    """Bands of each state, their words, and what keeps these apart from the hatching."""
    band, word = ".s-{0}{{fill:var(--{0})}}", ".t-{0}{{fill:var(--{0}-text)}}"
    rules = band + word + ".h-{0}{{paint-order:stroke;stroke:var(--{0});stroke-width:3px}}"
    return "".join(map(rules.format, sorted(set(STATE_COLOURS.values())))) + text(__package__, "drawing.css")


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def page_rules() -> str:
    """Of the page: both schemes, narrow screens, print."""
    page, printed = (text(__package__, f"{name}.css") for name in ("page", "print"))
    return f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
{page}{_drawn()}
@media print{{:root{{color-scheme:light;{_variables(LIGHT)}}}
{printed}}}
"""
