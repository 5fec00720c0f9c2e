"""The sources of the documentation: the parsers of the programs, and the tables of states, events and columns."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_lib.cli import receive, send
from client_lib.cli.common import EXIT_CODES as CLIENT_EXIT_CODES
from ha.model.status import TRANSITIONS, State
from ha.qpid_cluster import main as local_manager
from ha.qpid_ha import parser as cli_parser
from qpidd_py.cli import qpid_config, qpid_metrics, qpid_passwd, qpid_stat, qpidd_journal
from qpidd_py.config import GROUPS
from qpidd_py.logrules import category
from qpidd_py.options import command_line
from qpidd_py.plugins import load_plugins
from spark_jobs.cli import main as failover_report
from spark_jobs.cli.errors import EXIT_CODES as REPORT_EXIT_CODES
from spark_jobs.schema import BROKER_KINDS, CLIENT_KINDS, COLUMNS, MANAGER_KINDS

__all__ = [
    "BROKER_KINDS",
    "CLIENT_EXIT_CODES",
    "CLIENT_KINDS",
    "COLUMNS",
    "MANAGER_KINDS",
    "REPORT_EXIT_CODES",
    "TRANSITIONS",
    "Command",
    "Program",
    "State",
    "category",
    "programs",
]

ROOT = Path(__file__).resolve().parents[2]
STATES = {
    State.STANDALONE: "not a member of a cluster",
    State.JOINING: "started, or deposed; has heard no primary of the present epoch",
    State.CATCHUP: "a primary feeds it; what it holds is not complete",
    State.READY: "listed by the primary: nothing is confirmed that it does not hold",
    State.RECOVERING: "promoted; serves clients, and holds all confirms back for the backups that it expects",
    State.ACTIVE: "promoted; confirms",
}


@dataclass(frozen=True)
class Command:
    """A program, or one of its commands, with its parser."""

    name: str
    text: str
    parser: argparse.ArgumentParser


@dataclass(frozen=True)
class Program:
    """`general`: the parser without a command; `commands` are empty for a program that has none."""

    name: str
    text: str
    general: argparse.ArgumentParser
    commands: tuple[Command, ...] = ()
    synopsis: tuple[str, ...] = ()


def programs() -> Mapping[str, Program]:
    """All programs that are installed, by name."""
    ours = (_qpidd(), _qpid_ha(), *_broker_tools(), _qpid_cluster(), _qpidd_journal(), _qpid_passwd())
    found = (*ours, *_client_tools(), _failover_report())
    return {program.name: program for program in found}


def broker_groups() -> list[type]:
    """Options of the broker and its plug-ins."""
    return [*GROUPS, *(group for plugin in load_plugins() for group in plugin.option_groups)]


def _qpidd() -> Program:
    return Program("qpidd", "AMQP 0-9-1 message broker", command_line(broker_groups()), synopsis=("qpidd [OPTIONS]",))


def _qpid_ha() -> Program:
    commands = tuple(
        Command(name, command.text, cli_parser.command_parser(name)) for name, command in cli_parser.COMMANDS.items()
    )
    general = cli_parser.common_parser(cli_parser.PROGRAM, "")
    return Program(
        cli_parser.PROGRAM, "ask and command brokers of a cluster", general, commands, ("qpid-ha COMMAND [OPTIONS]",)
    )


def _broker_tools() -> list[Program]:
    texts = {
        qpid_config: "list and change queues, exchanges and bindings",
        qpid_stat: "show what a broker has and does",
        qpid_metrics: "serve the metrics of a broker to Prometheus",
    }
    return [
        Program(tool.PROGRAM, text, tool.make_parser(), synopsis=tuple(filter(None, tool.USAGE.splitlines())))
        for tool, text in texts.items()
    ]


def _qpid_cluster() -> Program:
    parser = local_manager._parser()
    text = "resource manager for one machine; writes the files of real clusters"
    return Program("qpid-cluster", text, parser, _verbs(parser), ("qpid-cluster [--config FILE] COMMAND [OPTIONS]",))


def _client_tools() -> list[Program]:
    texts = {send: "send messages over fail-overs", receive: "receive messages over fail-overs"}
    return [
        Program(tool.PROGRAM, text, tool.make_parser(), synopsis=(f"{tool.PROGRAM} [-b URL] -a ADDRESS [OPTIONS]",))
        for tool, text in texts.items()
    ]


def _qpidd_journal() -> Program:
    parser = qpidd_journal.make_parser()
    text = "look at the journal of a broker that does not run"
    return Program(qpidd_journal.PROGRAM, text, parser, _verbs(parser), (f"{qpidd_journal.PROGRAM} VERB FOLDER",))


def _qpid_passwd() -> Program:
    parser = qpid_passwd.make_parser()
    text = "the user file of a broker"
    return Program(qpid_passwd.PROGRAM, text, parser, _verbs(parser), (f"{qpid_passwd.PROGRAM} VERB FILE [NAME]",))


def _failover_report() -> Program:
    parser = failover_report.make_parser()
    name = failover_report.PROGRAM
    text = "say from the logs what happened in a fail-over"
    return Program(name, text, parser, _verbs(parser), (f"{name} VERB [OPTIONS]",))


def _verbs(parser: argparse.ArgumentParser) -> tuple[Command, ...]:
    action: Any = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    texts = {str(choice.dest): str(choice.help) for choice in action._choices_actions}
    return tuple(Command(name, texts[name], found) for name, found in action.choices.items())
