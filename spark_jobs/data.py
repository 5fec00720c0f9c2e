"""Tables of words and patterns, which lie next to the code as TOML; also in the zip that workers have."""

import tomllib
from importlib.resources import files
from typing import Any


def table(package: str, name: str) -> dict[str, Any]:
    """What PACKAGE/NAME.toml holds."""
    return tomllib.loads(text(package, f"{name}.toml"))


def text(package: str, name: str) -> str:
    """A file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")
