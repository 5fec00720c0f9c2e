"""Tables of words and patterns, which lie next to the code as TOML; also in the zip that workers have."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

Row = Mapping[str, Any]
"""A row of a table, or a part of a document, that is only read."""


def table(package: str, name: str) -> dict[str, Any]:
    """What PACKAGE/NAME.toml holds."""
    return tomllib.loads(text(package, f"{name}.toml"))


def text(package: str, name: str) -> str:
    """A file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")
