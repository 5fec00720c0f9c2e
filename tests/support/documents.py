"""The blocks of code on our pages: README.md, CONTRIBUTING.md and docs/.

A block is fenced and says what it is: `console` (commands behind `$ `, each with what it prints), `sh` (commands),
`python` or `text`.  A few older pages indent their blocks by four columns; those with an import are programs.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4}.*\n|^\n)+", re.MULTILINE)
_IMPORT = re.compile(r"^(import|from) ", re.MULTILINE)


class Block(NamedTuple):
    """`section`: the heading above it."""

    page: Path
    section: str
    language: str
    text: str


class Command(NamedTuple):
    """`said`: the lines that the page shows as its output."""

    block: Block
    line: str
    said: list[str]


def blocks(page: Path) -> Iterator[Block]:
    """In their order; of indented ones programs only, as language `python`."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCED.finditer(text):
        yield Block(page, _section(text[: found.start()]), found["language"], textwrap.dedent(found["text"]))
    rest = _FENCED.sub("", text)
    for block in map(textwrap.dedent, _INDENTED.findall(rest)):
        if _IMPORT.search(block):
            yield Block(page, "", "python", block.strip() + "\n")


def _section(before: str) -> str:
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", before), re.MULTILINE)
    return headings[-1] if headings else ""


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def commands(block: Block) -> list[Command]:
    """Of a `console` or `sh` block; a line that ends in a backslash goes on."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "sh":
            found += [Command(block, line.strip(), [])] if line.strip() else []
        elif line.startswith("$ "):
            found.append(Command(block, line[2:], []))
        else:
            found[-1].said.append(line)
    return found


def programs() -> Iterator[tuple[str, str]]:
    """Every Python program of a page, with a name."""
    for page in PAGES:
        found = [block.text for block in blocks(page) if block.language == "python"]
        yield from ((f"{page.stem}-{number}", program) for number, program in enumerate(found, 1))
