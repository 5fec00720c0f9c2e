"""Our programs, asked for their parsers."""

import argparse
from typing import Any

from client_lib.cli import receive, send
from client_lib.cli.values import LEVELS
from ha.model.status import EXPECTATIONS
from ha.qpid_cluster import main as local_manager
from ha.qpid_ha import parser as cli_parser
from qpidd_py.cli import qpid_config, qpid_metrics, qpid_passwd, qpid_stat, qpidd_journal
from qpidd_py.config import GROUPS
from qpidd_py.options import command_line
from qpidd_py.plugins import load_plugins
from spark_jobs.cli import main as failover_report
from tools.completion.model import Path, Place, Program, options_of, wants_files

MEMBER_ACTIONS = {"list": "who belongs to the cluster", "add": "one more", "remove": "one less"}
"""The parser takes any word there; its help names these."""


def all_programs() -> list[Program]:
    ours = [qpidd(), qpid_ha(), qpid_config_(), *plain_tools(), qpid_cluster(), qpidd_journal_(), qpid_passwd_()]
    return [*ours, *client_tools(), failover_report_()]


def qpidd() -> Program:
    groups = [*GROUPS, *(group for plugin in load_plugins() for group in plugin.option_groups)]
    return Program("qpidd", {(): Place(options_of(command_line(groups), {}))})


def qpid_ha() -> Program:
    states = {"--expect": list(EXPECTATIONS)}
    commands = {name: command.text for name, command in cli_parser.COMMANDS.items()}
    general = options_of(cli_parser.common_parser(cli_parser.PROGRAM, ""), states)
    places: dict[Path, Place] = {
        (): Place(general, {**commands, "help": "the commands", "help-all": "all commands with all options"})
    }
    for name in commands:
        parser = cli_parser.command_parser(name)
        places[(name,)] = Place(options_of(parser, states), _actions(parser))
    return Program(cli_parser.PROGRAM, places)


def _actions(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The second word of `member` and `salvage`."""
    action = next((action for action in parser._actions if action.dest == "action"), None)
    if action is None:
        return {}
    return {str(choice): "" for choice in action.choices} if action.choices else MEMBER_ACTIONS


def qpid_config_() -> Program:
    options = options_of(qpid_config.make_parser(), {})
    places: dict[Path, dict[str, str]] = {(): {}}
    for line in qpid_config.USAGE.splitlines():
        path: Path = ()
        for word in line.partition("]")[2].split():
            if word == "TYPE":
                places[path] = dict.fromkeys(qpid_config.KINDS, "")
            if not word.isalpha() or not word.islower() or word == "overview":
                break
            places.setdefault(path, {})[word] = ""
            path = (*path, word)
            places.setdefault(path, {})
    return Program(qpid_config.PROGRAM, {path: Place(options, words) for path, words in places.items()})


def plain_tools() -> list[Program]:
    return [
        Program(tool.PROGRAM, {(): Place(options_of(tool.make_parser(), {}))}) for tool in (qpid_stat, qpid_metrics)
    ]


def qpid_cluster() -> Program:
    return _with_verbs("qpid-cluster", local_manager._parser())


def qpid_passwd_() -> Program:
    return _with_verbs(qpid_passwd.PROGRAM, qpid_passwd.make_parser())


def qpidd_journal_() -> Program:
    return _with_verbs(qpidd_journal.PROGRAM, qpidd_journal.make_parser())


def failover_report_() -> Program:
    return _with_verbs(failover_report.PROGRAM, failover_report.make_parser())


def _with_verbs(name: str, parser: argparse.ArgumentParser) -> Program:
    general = options_of(parser, {})
    commands: Any = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    texts = {str(choice.dest): str(choice.help) for choice in commands._choices_actions}
    places: dict[Path, Place] = {(): Place(general, texts)}
    for verb, command in commands.choices.items():
        places[(verb,)] = Place(options_of(command, {}), files=wants_files(command))
    return Program(name, places)


def client_tools() -> list[Program]:
    levels = {"--log-enable": [f"{level}+" for level in LEVELS]}
    return [Program(tool.PROGRAM, {(): Place(options_of(tool.make_parser(), levels))}) for tool in (send, receive)]
