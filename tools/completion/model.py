"""The data of a program that shell completion needs; no I/O."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

Path = tuple[str, ...]
"""The words that lead to a place in a command line: ("add", "queue")."""


class Value(Enum):
    NONE = "the option stands alone"
    OPTIONAL = "one of its words may follow"
    WORD = "one of its words follows"
    FILE = "a file follows"
    OTHER = "something follows that a shell cannot know"


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    help: str
    value: Value = Value.NONE
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """What may come next after the words of a path; `words` with their explanations, or any file."""

    options: tuple[Option, ...]
    words: Mapping[str, str] = field(default_factory=dict)
    files: bool = False


@dataclass(frozen=True)
class Program:
    name: str
    places: Mapping[Path, Place]

    def options_with(self, *values: Value) -> list[Option]:
        """By name, from all places; an option that means two things to a shell is an error of the program."""
        found: dict[str, Option] = {}
        for place in self.places.values():
            for option in place.options:
                for name in option.names:
                    other = found.setdefault(name, option)
                    if (other.value, other.words) != (option.value, option.words):
                        raise ValueError(f"{self.name}: {name} takes {other.value} here and {option.value} there")
        chosen = {option.names: option for option in found.values() if option.value in values}
        return [chosen[names] for names in sorted(chosen)]


FILES = ("FILE", "PATH", "DIR", "INPUT", "OUT")
"""Placeholders."""
TAKES_NOTHING = (
    *(argparse._StoreTrueAction, argparse._HelpAction, argparse._VersionAction),
    argparse.BooleanOptionalAction,
)


def options_of(parser: argparse.ArgumentParser, words: Mapping[str, Iterable[str]]) -> tuple[Option, ...]:
    """`words`: values that the parser itself does not list, by the name of the option."""
    actions = [action for action in parser._actions if action.option_strings]
    return tuple(_option(action, words) for action in actions)


def wants_files(parser: argparse.ArgumentParser) -> bool:
    """True if a positional argument is a file."""
    return any(action.metavar in FILES for action in parser._actions if not action.option_strings)


def _option(action: argparse.Action, words: Mapping[str, Iterable[str]]) -> Option:
    names = tuple(action.option_strings)
    text = (action.help or "").replace("%%", "%").strip()
    listed = next((tuple(words[name]) for name in names if name in words), None) or _listed(action)
    if isinstance(action, TAKES_NOTHING):
        return Option(names, text)
    if listed:
        return Option(names, text, Value.OPTIONAL if action.nargs == "?" else Value.WORD, listed)
    return Option(names, text, Value.FILE if action.metavar in FILES else Value.OTHER)


def _listed(action: argparse.Action) -> tuple[str, ...]:
    """Choices, or a placeholder such as `yes|no`."""
    if action.choices:
        return tuple(str(choice) for choice in action.choices)
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return tuple(metavar.split("|")) if "|" in metavar else ()
