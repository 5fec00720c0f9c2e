"""Colours and rules of style: of the page (light, dark, narrow, print) and of a drawing on its own (pure).

Colours keep a contrast of 4.5 to text on them and of 3 to adjacent shapes; states also differ in lightness and pattern,
so no information depends on hue alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LIGHT: Final = {
    "back": "#ffffff",
    "soft": "#f3f5f8",
    "text": "#171b21",
    "muted": "#515a66",
    "line": "#c9d0d9",
    "link": "#0a56b3",
    "good": "#0b6b46",
    "bad": "#b3261e",
    "doubt": "#8a5300",
    "good-soft": "#e3f4ec",
    "bad-soft": "#fde8e6",
    "doubt-soft": "#fdf0d9",
    "mark": "#fff3b0",
    "active": "#08603f",
    "active-text": "#ffffff",
    "recovering": "#f2b04e",
    "recovering-text": "#2b1a00",
    "ready": "#5b94d1",
    "ready-text": "#06121f",
    "catchup": "#a8cbee",
    "catchup-text": "#0d2238",
    "joining": "#d7dee7",
    "joining-text": "#1d2733",
    "hung": "#86369c",
    "hung-text": "#ffffff",
    "down": "#ffffff",
    "down-text": "#3d4550",
    "phase": "#5d6b7c",
    "client": "#c4473a",
    "token": "#8a5300",
    "ring": "#2c6cb5",
    "fencing": "#86369c",
}
DARK: Final = {
    "back": "#12161c",
    "soft": "#1b2129",
    "text": "#e8ecf1",
    "muted": "#a7b1bd",
    "line": "#3a434f",
    "link": "#7db7ff",
    "good": "#54d19c",
    "bad": "#ff8f85",
    "doubt": "#f2bd63",
    "good-soft": "#12301f",
    "bad-soft": "#3d1a17",
    "doubt-soft": "#362812",
    "mark": "#5a4d10",
    "active": "#35b583",
    "active-text": "#04150d",
    "recovering": "#f2b04e",
    "recovering-text": "#2b1a00",
    "ready": "#3f6fae",
    "ready-text": "#ffffff",
    "catchup": "#2f4f73",
    "catchup-text": "#e6f0fb",
    "joining": "#3d4754",
    "joining-text": "#eef2f6",
    "hung": "#c583da",
    "hung-text": "#1c0624",
    "down": "#12161c",
    "down-text": "#c4ccd6",
    "phase": "#8d9bad",
    "client": "#ff8f85",
    "token": "#f2bd63",
    "ring": "#7db7ff",
    "fencing": "#c583da",
}
STATE_COLOURS: Final = {
    "active": "active",
    "promoted": "active",
    "recovering": "recovering",
    "ready": "ready",
    "unpromoted": "ready",
    "catchup": "catchup",
    "joining": "joining",
    "standalone": "joining",
    "hung": "hung",
    "down": "down",
}
"""State → colour; any other is drawn as unknown."""
PATTERNS: Final = {
    "recovering": "stripes",
    "catchup": "lines",
    "joining": "dots",
    "standalone": "dots",
    "hung": "net",
}
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"
MONO: Final = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def drawing_rules(colours: Mapping[str, str]) -> str:
    """Rules of a drawing; plain selectors and values, because a converter to PNG knows no others."""
    states = sorted(set(STATE_COLOURS.values()))
    rules = [f".s-{name}{{fill:{colours[name]}}}.t-{name}{{fill:{colours[f'{name}-text']}}}" for name in states]
    fills = {
        "d-text": "text", "d-muted": "muted", "d-bad": "bad", "d-good": "good", "d-phase": "phase",
        "d-client": "client", "d-token": "token", "d-ring": "ring", "d-fencing": "fencing", "d-role": "text",
        "d-note": "muted", "d-back": "back", "d-soft": "soft",
    }  # fmt: skip
    rules += [f".{name}{{fill:{colours[colour]}}}" for name, colour in fills.items()]
    lines = {"l-line": "line", "l-text": "text", "l-muted": "muted", "l-back": "back"}
    rules += [f".{name}{{stroke:{colours[colour]};fill:none}}" for name, colour in lines.items()]
    rules += [
        f".s-down{{stroke:{colours['muted']};stroke-dasharray:3 2}}",
        f".s-unknown{{fill:none;stroke:{colours['line']};stroke-dasharray:2 3}}.t-unknown{{fill:{colours['muted']}}}",
        f".d-badge{{fill:{colours['text']}}}.d-badge-text{{fill:{colours['back']};font-weight:700;font-size:10px}}",
        f".d-moment{{stroke:{colours['text']};stroke-width:.7;stroke-dasharray:1 3;fill:none}}",
        f".d-halo{{paint-order:stroke;stroke:{colours['back']};stroke-width:3px;stroke-linejoin:round}}",
        f".l-leader{{stroke:{colours['muted']};stroke-width:.8;fill:none}}",
        *(f".h-{name}{{paint-order:stroke;stroke:{colours[name]};stroke-width:3px}}" for name in states),
        ".d-bold{font-weight:700}.d-small{font-size:10.5px}.d-clear{fill-opacity:.3}",
    ]
    return "".join(rules)


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def page_rules() -> str:
    """Of the page: both schemes, narrow screens, print."""
    names = {name: f"var(--{name})" for name in LIGHT}
    drawn = drawing_rules(names)
    return f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
{_PAGE.replace("FONT", FONT).replace("MONO", MONO)}{drawn}
@media print{{:root{{color-scheme:light;{_variables(LIGHT)}}}{_PRINT}}}
"""


_PAGE: Final = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0;background:var(--back);color:var(--text);font:16px/1.5 FONT}
main,header,footer{max-width:76rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:1.5rem}
footer{padding-bottom:3rem;color:var(--muted);font-size:.875rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem}
h2{font-size:1.35rem;line-height:1.3;margin:0 0 .25rem}
h3{font-size:1.05rem;margin:2rem 0 .5rem}
p{margin:.4rem 0;max-width:52rem}
a{color:var(--link);text-underline-offset:.15em}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);outline-offset:2px;
border-radius:2px}
.skip{position:absolute;left:-100rem}.skip:focus{position:static}
.muted,.note{color:var(--muted)}.note{font-size:.92em}
nav.sections{margin:.75rem 0;font-size:.9rem}
nav.sections ul{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin:0;padding:0}
section.incident{border-top:3px solid var(--text);margin-top:2.5rem;padding-top:1rem}
section.more{border-top:1px solid var(--line);margin-top:2.5rem;padding-top:1rem}
.words{padding-left:1.1rem;margin:.5rem 0;max-width:60rem}.words li{margin:.15rem 0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1rem 0;padding:0}
.figures>div{border:1px solid var(--line);border-left:.4rem solid var(--line);border-radius:.4rem;padding:.55rem .75rem;
background:var(--soft)}
.figures dt{font-size:.8rem;color:var(--muted);margin:0}
.figures dd{margin:0}.figures .value{font-size:1.2rem;font-weight:700;line-height:1.3;overflow-wrap:anywhere}
.figures .unsure{font-size:.8em;font-weight:400;white-space:nowrap}
.figures .why{font-size:.8rem;color:var(--muted);overflow-wrap:anywhere}
.figures .good{border-left-color:var(--good)}.figures .bad{border-left-color:var(--bad);background:var(--bad-soft)}
.figures .doubt{border-left-color:var(--doubt);background:var(--doubt-soft)}
.tone{font-weight:700;white-space:nowrap}.tone.good{color:var(--good)}.tone.bad{color:var(--bad)}
.tone.doubt{color:var(--doubt)}
figure{margin:1rem 0}figcaption{font-size:.85rem;color:var(--muted)}
svg{display:block;width:100%;height:auto;font-family:FONT}
svg text{font-size:12px}
svg a{cursor:pointer}
.medium,.narrow{display:none}svg.defs{position:absolute;width:0;height:0}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;margin:.5rem 0 0;padding:0;list-style:none;font-size:.82rem}
.legend li{display:flex;align-items:center;gap:.4rem}.legend svg{width:1.6rem;height:.9rem;flex:none}
.table{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;color:var(--muted);font-size:.85rem;padding-bottom:.25rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem .35rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600}thead th{color:var(--muted);font-size:.82rem;border-bottom:2px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.time{font-variant-numeric:tabular-nums;white-space:nowrap}
td,th{overflow-wrap:break-word}
.badge{display:inline-block;white-space:nowrap;min-width:1.35rem;padding:0 .3rem;border-radius:.7rem;
background:var(--text);color:var(--back);font-size:.75rem;font-weight:700;text-align:center;text-decoration:none;line-height:1.35rem}
code,pre,.line{font-family:MONO;font-size:.8rem}
.line{display:block;background:var(--soft);border-left:3px solid var(--line);padding:.2rem .5rem;margin:.15rem 0;
white-space:pre-wrap;overflow-wrap:anywhere}
.place{font-family:MONO;font-size:.8rem;color:var(--muted);overflow-wrap:anywhere}
details{margin:.2rem 0}summary{cursor:pointer;color:var(--link)}
details.lines>summary{font-size:.85rem}
.lines ol{list-style:none;margin:.3rem 0;padding:0}.lines li{padding:.3rem 0;border-bottom:1px solid var(--line)}
:target{background:var(--mark);scroll-margin-top:1rem}
.share{display:inline-block;height:.6rem;background:var(--phase);min-width:1px;vertical-align:middle}
@media (max-width:62rem){.wide{display:none}.medium{display:block}}
@media (max-width:46rem){
body{font-size:15px}main,header,footer{padding-left:.9rem;padding-right:.9rem}
.medium{display:none}.narrow{display:block}
table.stack,table.stack caption,table.stack tbody,table.stack tr,table.stack td,table.stack th{display:block;width:100%}
table.stack thead{position:absolute;left:-100rem}
table.stack tr{border-bottom:2px solid var(--line);padding:.4rem 0}
table.stack td,table.stack th{border:0;padding:.1rem 0;text-align:left;white-space:normal;overflow-wrap:anywhere}
table.stack td[data-name]::before{content:attr(data-name) ": ";color:var(--muted);font-size:.82rem}
table.stack td:empty{display:none}
}
"""
_PRINT: Final = """
html{font-size:10pt}body{font-size:9.5pt;line-height:1.35;background:#fff;color:#000}main,header,footer{max-width:none;padding:0}
a{color:inherit;text-decoration:none}.skip,nav.sections{display:none}
.wide,.narrow{display:none}.medium{display:block}
section.incident{break-before:page;border-top:0;margin-top:0}section.incident:first-of-type{break-before:auto}
h2,h3,caption,thead{break-after:avoid}svg,tr,.figures>div,.lines li{break-inside:avoid}
details::details-content{content-visibility:visible;display:block;block-size:auto}
summary{list-style:none;color:inherit}.table{overflow:visible}h3{margin-top:1rem}
table{font-size:8.5pt}.figures{grid-template-columns:repeat(5,1fr);gap:.4rem}.figures .value{font-size:1rem}
.line,.place,code,pre{font-size:6.5pt;line-height:1.3}.line{padding:.1rem .3rem;margin:0}.lines li{padding:.1rem 0}
td,th{padding:.2rem .4rem .2rem 0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
@page{margin:14mm}
"""
