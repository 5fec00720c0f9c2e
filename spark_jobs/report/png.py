"""SVG as PNG: by resvg (the extra `png`), else by a Chromium that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCALE: Final = 2
_SIZE: Final = re.compile(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"')
_TIMEOUT_S: Final = 60


class MissingTool(ValueError):
    """Nothing here turns SVG into PNG."""


class Failed(RuntimeError):
    """The tool did not make a picture."""


def png(svg: str) -> bytes:
    """A picture, SCALE times as large as the drawing says.  Raises MissingTool, Failed."""
    try:
        import resvg_py
    except ImportError:
        return by_browser(svg, browser())
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=SCALE))


def browser() -> str:
    """The path of a Chromium; raises MissingTool."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise MissingTool(
            "PNG needs the package resvg-py (pip install 'qpidd-py[png]') or Chromium (apt-get install chromium); "
            "neither is installed; SVG needs nothing"
        )
    return found


def by_browser(svg: str, program: str) -> bytes:
    """Raises Failed."""
    match = _SIZE.search(svg)
    if match is None:
        raise Failed("the drawing has no size")
    size = ",".join(str(round(float(value))) for value in match.groups())
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "drawing.html"), Path(folder, "drawing.png")
        page.write_text(f"<!doctype html><meta charset=utf-8><style>body{{margin:0}}</style>{svg}", encoding="utf-8")
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [
            f"--user-data-dir={folder}/profile",
            f"--window-size={size}",
            f"--force-device-scale-factor={SCALE}",
        ]
        command += [f"--screenshot={picture}", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if not picture.exists():
            raise Failed(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")
        return picture.read_bytes()
