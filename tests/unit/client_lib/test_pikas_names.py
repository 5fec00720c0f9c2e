"""Of pika we use public names only, and inherit nothing but exceptions and data; our methods are called as its."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pika.channel
import pytest

from client_lib.connecting.methods import Channel

LIBRARY = Path(__file__).parents[3] / "client_lib"
FILES = sorted(LIBRARY.rglob("*.py"))
DATA = ("pika.adapters.blocking_connection.ReturnedMessage", "pika.connection.Parameters")
"""What programs written for pika hand to us, or get."""
OURS = ("open", "require_open", "ask", "send", "ended", "frame", "forget_consumer", "select_confirms", "basic_cancel")


def imported(tree: ast.Module) -> dict[str, str]:
    """Name in the module → what of pika it is."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.asname or alias.name.split(".")[0], alias.asname and alias.name) for alias in node.names]
            found.update({name: whole or name for name, whole in names if (whole or name).split(".")[0] == "pika"})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pika":
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def said(node: ast.AST, names: dict[str, str]) -> str | None:
    """The dotted name of something of pika."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        of = said(node.value, names)
        return f"{of}.{node.attr}" if of else None
    return None


def faults(text: str) -> list[str]:
    tree = ast.parse(text)
    names = imported(tree)
    used = {whole for node in ast.walk(tree) if (whole := said(node, names))} | set(names.values())
    bases = {
        said(base, names) or "" for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases
    }
    private = {name for name in used if any(part.startswith("_") for part in name.split(".") if part != "__version__")}
    machinery = {name for name in used if name.startswith(("pika.adapters", "pika.connection", "pika.channel"))}
    inherited = {name for name in bases if name and "exceptions" not in name} - {"pika.BasicProperties"}
    return sorted(private | inherited | {name for name in machinery if not name.startswith(DATA)} - set(_parents()))


def _parents() -> list[str]:
    return ["pika.adapters", "pika.adapters.blocking_connection", "pika.connection"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LIBRARY)))
def test_public_names_only(path: Path) -> None:
    assert faults(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pika\npika.frame._decode(b'')",
        "from pika.adapters import base_connection\nbase_connection._Shim()",
        "from pika import SelectConnection\nclass Mine(SelectConnection): ...",
        "import pika\nclass Mine(pika.PlainCredentials): ...",
        "from pika.adapters.select_connection import IOLoop as Loop\nLoop()",
        "import pika.channel as channels\nchannels.Channel",
    ],
)
def test_the_check_finds(text: str) -> None:
    assert faults(text)


def _methods() -> list[str]:
    names = [
        name for name, _ in inspect.getmembers(Channel, inspect.isfunction) if not name.startswith(("_", "add_on"))
    ]
    return [name for name in names if name not in OURS]


@pytest.mark.parametrize("name", _methods())
def test_methods_take_the_arguments_of_pikas(name: str) -> None:
    ours, theirs = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (Channel, pika.channel.Channel))
    assert theirs[: len(ours)] == ours
