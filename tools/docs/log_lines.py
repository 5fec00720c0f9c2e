"""Every line that the broker and its HA plug-in log, found in their sources.                     Shell: reads files.

Two ways of logging are known: `log.warning("text %s", ...)` of Python's logging, and the port of the pure parts,
`env.log("warning", f"text {value}")`. What stands for a value in the text becomes a word between ‹ and ›.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

LEVELS: Final = ("critical", "error", "warning", "notice", "info", "debug")
FOLDERS: Final = ("qpidd_py", "ha")
_PERCENT: Final = re.compile(r"%(?:\.\d+)?[rsdgf]")


class Line(NamedTuple):
    """`module`: dotted; `text`: with values as ‹words›."""

    level: str
    module: str
    text: str


def log_lines(root: Path) -> list[Line]:
    """Most urgent first, then by module and place."""
    found = [line for folder in FOLDERS for path in sorted((root / folder).rglob("*.py")) for line in _of(path, root)]
    return sorted(dict.fromkeys(found), key=lambda line: (LEVELS.index(line.level), line.module))


def _of(path: Path, root: Path) -> Iterator[Line]:
    module = ".".join(path.relative_to(root).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            for level, text in _logged(node.func, node.args):
                if text.strip("‹›") and re.search(r"[a-z]{3}.*[ :]|: ", re.sub("‹[^›]*›", "", text)):
                    yield Line(level, module, text)


def _logged(function: ast.Attribute, arguments: list[ast.expr]) -> Iterator[tuple[str, str]]:
    if function.attr == "exception" and _is_logger(function.value) and arguments:
        yield "error", _percent(arguments)
    elif function.attr in LEVELS and _is_logger(function.value) and arguments:
        yield function.attr, _percent(arguments)
    elif function.attr == "write" and len(arguments) > 1 and (level := _level(arguments[0])):  # of Floods
        yield level, _percent(arguments[1:])
    elif function.attr == "log" and len(arguments) == 2:
        levels, texts = _constants(arguments[0]), _texts(arguments[1])
        if len(levels) == len(texts):  # `"warning" if failure else "notice", failure or "done"`
            yield from zip(levels, texts, strict=True)
        else:
            yield from ((level, text) for level in levels for text in texts)


def _level(node: ast.expr) -> str:
    """Of `logging.WARNING` or `NOTICE`; empty for anything else."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lower() if name.isupper() and name.lower() in LEVELS else ""


def _is_logger(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("log", "logger")


def _constants(node: ast.expr) -> list[str]:
    return [item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and item.value in LEVELS]


def _percent(arguments: list[ast.expr]) -> str:
    """`"%s is open", name` as `‹name› is open`."""
    values = iter(arguments[1:])
    text = "".join(part for part in _texts(arguments[0])[:1])
    return _PERCENT.sub(lambda _: _word(next(values, None)), text)


def _texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value)]
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        parts = [_word(part.value) if isinstance(part, ast.FormattedValue) else _texts(part)[0] for part in node.values]
        return ["".join(parts)]
    return [_word(node)]


def _word(node: ast.expr | None) -> str:
    """A name for a value: the last one that the expression has."""
    names = [item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)] if node else []
    names = names or [item.id for item in ast.walk(node) if isinstance(item, ast.Name)] if node else []
    return f"‹{names[0].strip('_').replace('_', ' ')}›" if names else "‹value›"
