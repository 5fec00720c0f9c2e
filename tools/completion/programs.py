"""Our programs as shell completion needs them, from their parsers."""

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Final

from client_lib.cli.values import LEVELS
from ha.model.status import EXPECTATIONS
from qpidd_py.cli import qpid_config
from tools import programs
from tools.completion.model import Path, Place, Program, options_of, wants_files

VALUES: Final[Mapping[str, Mapping[str, Iterable[str]]]] = {
    "qpid-ha": {"--expect": EXPECTATIONS},
    **{program: {"--log-enable": [f"{level}+" for level in LEVELS]} for program in ("qpid-send", "qpid-receive")},
}
"""Of options whose parser does not list them."""
HELP: Final = {"help": "the commands", "help-all": "all commands with all options"}
MEMBER_ACTIONS: Final = {"list": "who belongs to the cluster", "add": "one more", "remove": "one less"}
"""The parser takes any word there; its help names these."""


def all_programs() -> list[Program]:
    return [Program(found.name, _places(found)) for found in programs.programs().values()]


def _places(program: programs.Program) -> Mapping[Path, Place]:
    values = VALUES.get(program.name, {})
    options = options_of(program.general, values)
    if program.name == qpid_config.PROGRAM:
        return {path: Place(options, words) for path, words in _words_of_usage().items()}
    words = {command.name: command.text for command in program.commands}
    places: dict[Path, Place] = {(): Place(options, words | (HELP if program.name == "qpid-ha" else {}))}
    for command in program.commands:
        found = options_of(command.parser, values)
        places[(command.name,)] = Place(found, _actions(command.parser), wants_files(command.parser))
    return places


def _actions(parser: argparse.ArgumentParser) -> Mapping[str, str]:
    """The second word of `qpid-ha member` and `qpid-ha salvage`."""
    action = next((action for action in parser._actions if action.dest == "action"), None)
    if action is None:
        return {}
    return dict.fromkeys(map(str, action.choices), "") if action.choices else MEMBER_ACTIONS


def _words_of_usage() -> Mapping[Path, dict[str, str]]:
    """Of qpid-config, whose parser has one list of words."""
    places: dict[Path, dict[str, str]] = {(): {}}
    for line in qpid_config.USAGE.splitlines():
        path: Path = ()
        for word in line.partition("]")[2].split():
            if word == "TYPE":
                places[path] = dict.fromkeys(qpid_config.KINDS, "")
            if not re.fullmatch("[a-z]+(-[a-z]+)*", word) or word == "overview":
                break
            places.setdefault(path, {})[word] = ""
            path = (*path, word)
            places.setdefault(path, {})
    return places
