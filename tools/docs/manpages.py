"""Manual pages, from the parsers that also make `--help`; text in, text out.

No date and no version are in a page: the same options give the same octets, so a test can compare.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tools.docs.exit_codes import CODES, rows
from tools.docs.options import Group, Option, groups
from tools.programs import Command, Program, programs

SECTIONS: Final = {"qpidd": 8, "qpid-ha": 8, "qpid-cluster": 8}
"""Of programs for administrators; 1 otherwise."""
TITLES: Final = {1: "User Commands", 8: "System Administration"}
FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "qpidd": {
        "/etc/qpid/qpidd.conf": "options as NAME=VALUE; the command line and QPID_NAME in the environment win",
        "/var/lib/qpidd": "data directory of the installed broker: lock, vote, event logs, salvage",
    },
    "qpid-ha": {"/etc/qpid/qpidd.conf": "login and address, when no broker is given"},
    "qpid-cluster": {"config/cluster.yaml": "cluster file"},
}


def files() -> dict[str, str]:
    """Name of the file, and the page."""
    return {f"{name}.{section(name)}": page(program) for name, program in programs().items()}


def section(name: str) -> int:
    return SECTIONS.get(name, 1)


def page(program: Program) -> str:
    """The manual page of a program."""
    number = section(program.name)
    parts = [f'.TH {_plain(program.name).upper()} {number} "" "qpidd-py" "{TITLES[number]}"']
    parts += [".SH NAME", f"{_plain(program.name)} \\- {_plain(program.text)}", ".SH SYNOPSIS"]
    parts += _lines(program.synopsis)
    parts += [".SH DESCRIPTION", *_paragraphs(program.general.description or _sentence(program.text))]
    parts += [".SH OPTIONS", *_groups(groups(program.general))]
    if program.commands:
        parts += [".SH COMMANDS", *(line for command in program.commands for line in _command(program, command))]
    parts += [*_files(program.name), ".SH EXIT STATUS", *_codes(CODES[program.name])]
    parts += [*_examples(program.general), ".SH SEE ALSO", _see_also(program.name)]
    return "\n".join(parts) + "\n"


def _command(program: Program, command: Command) -> Iterator[str]:
    yield f".SS {_plain(f'{program.name} {command.name}')}"
    yield from _paragraphs(_sentence(command.parser.description or command.text))
    found = [option for group in groups(command.parser, program.general) for option in group.options]
    yield from _options(found)
    examples = list(_example_lines(command.parser))
    if examples:
        yield from (".PP", *_lines(examples))


def _groups(found: Iterable[Group]) -> Iterator[str]:
    for group in found:
        if group.title not in ("options", "positional arguments"):
            yield f".SS {_plain(group.title[:1].upper() + group.title[1:])}"
        yield from _options(group.options)


def _options(found: Iterable[Option]) -> Iterator[str]:
    for option in found:
        value = f" \\fI{_plain(option.value)}\\fR" if option.value else ""
        words = f" One of {', '.join(option.words)}." if option.words else ""
        yield ".TP"
        yield ", ".join(f"\\fB{_plain(name)}\\fR{value}" for name in option.names)
        yield _text(option.help + words)


def _files(name: str) -> Iterator[str]:
    if name in FILES:
        yield ".SH FILES"
        for path, text in FILES[name].items():
            yield from (".TP", f"\\fI{_plain(path)}\\fR", _text(text))


def _codes(text: str) -> Iterator[str]:
    for number, meaning in rows(text):
        yield from (".TP", f"\\fB{_plain(number)}\\fR", _text(meaning))


def _examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    examples = list(_example_lines(parser))
    if examples:
        yield from (".SH EXAMPLES", *_lines(examples))


def _example_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What follows `examples:` in the help, until a line that is not indented."""
    inside = False
    for line in (parser.epilog or "").splitlines():
        if line.strip() == "examples:":
            inside = True
        elif inside and not line.startswith(" "):
            return
        elif inside:
            yield line.strip()


def _see_also(name: str) -> str:
    others = [other for other in CODES if other != name]
    return ", ".join(f"\\fB{_plain(other)}\\fR({section(other)})" for other in others)


def _lines(lines: Iterable[str]) -> list[str]:
    return [".nf", *map(_text, lines), ".fi"]


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _text(text: str) -> str:
    """A line of text: a dot or a quote at its start would be a request of troff."""
    plain = _plain(text.replace("\n", " "))
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def _plain(text: str) -> str:
    """Hyphens of options must be copied as typed, so each is a minus sign."""
    return text.replace("\\", "\\e").replace("-", "\\-")
