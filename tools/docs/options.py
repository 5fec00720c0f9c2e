"""Options of a parser, as rows; no I/O."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple


class Option(NamedTuple):
    """`names`: as they are typed, with the placeholder of the value; `help`: with its default filled in."""

    names: tuple[str, ...]
    value: str
    help: str
    words: tuple[str, ...]


class Group(NamedTuple):
    title: str
    options: tuple[Option, ...]


def groups(parser: argparse.ArgumentParser, without: argparse.ArgumentParser | None = None) -> Iterator[Group]:
    """The groups that have options or arguments; `without` those that this other parser has, too."""
    known = {name for action in (without._actions if without else ()) for name in action.option_strings}
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if not _left_out(action, known)]
        if actions:
            yield Group(str(group.title or ""), tuple(_option(parser, action) for action in actions))


def _left_out(action: argparse.Action, known: set[str]) -> bool:
    if isinstance(action, argparse._SubParsersAction | argparse._HelpAction) or action.help == argparse.SUPPRESS:
        return True
    return bool(known & set(action.option_strings))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    formatter = parser._get_formatter()
    text = formatter._expand_help(action).strip() if action.help else ""
    words = tuple(str(word) for word in action.choices) if action.choices and action.metavar else ()
    if not action.option_strings:
        return Option((formatter._format_args(action, action.dest.upper()),), "", text, words)
    value = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
    return Option(tuple(action.option_strings), value, text, words)
