"""The programs that are installed, with their parsers: for the documentation and for shell completion."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from client_lib.cli import receive, send
from ha.qpid_cluster import main as qpid_cluster
from ha.qpid_ha import parser as qpid_ha
from qpidd_py.cli import (
    qpid_config,
    qpid_metrics,
    qpid_passwd,
    qpid_printevents,
    qpid_route,
    qpid_stat,
    qpidctl,
    qpidd_journal,
)
from qpidd_py.config import GROUPS
from qpidd_py.http import main as qpid_http
from qpidd_py.options import command_line
from qpidd_py.plugins import load_plugins
from qpidd_py.shovel import main as qpid_shovel
from spark_jobs.cli import main as failover_report

CLUSTER = "{} [--config FILE] COMMAND [OPTIONS]"
CLIENT = "{} [-b URL] -a ADDRESS [OPTIONS]"


@dataclass(frozen=True)
class Command:
    """One of a program's commands, with its parser."""

    name: str
    text: str
    parser: argparse.ArgumentParser


@dataclass(frozen=True)
class Program:
    """`general`: the parser without a command; `commands` are empty for a program that has none."""

    name: str
    text: str
    general: argparse.ArgumentParser
    commands: tuple[Command, ...]
    synopsis: tuple[str, ...]


def programs() -> Mapping[str, Program]:
    """All of them, by name."""
    tools: tuple[tuple[Any, str, str], ...] = (  # module, text, synopsis
        (qpid_config, "list and change queues, exchanges and bindings", qpid_config.USAGE),
        (qpid_stat, "show what a broker has and does", qpid_stat.USAGE),
        (qpid_http, "serve RabbitMQ's management API for a broker", qpid_http.USAGE),
        (qpid_route, "routes between brokers, which qpid-shovel serves", qpid_route.USAGE),
        (qpid_shovel, "move messages between brokers, as the parameters of a broker say", qpid_shovel.USAGE),
        (qpid_metrics, "serve the metrics of a broker to Prometheus", qpid_metrics.USAGE),
        (qpid_printevents, "print what happens in brokers, live", qpid_printevents.USAGE),
        (qpidctl, "users, what they may do, and what a broker has", "{} [OPTIONS] VERB [ARGUMENTS]"),
        (qpidd_journal, "look at the journal of a broker that does not run", "{} VERB FOLDER"),
        (qpid_passwd, "the user file of a broker", "{} VERB FILE [NAME]"),
        (qpid_cluster, "resource manager for one machine; writes the files of real clusters", CLUSTER),
        (send, "send messages over fail-overs", CLIENT),
        (receive, "receive messages over fail-overs", CLIENT),
        (failover_report, "say from the logs what happened in a fail-over", "{} VERB [OPTIONS]"),
    )
    others = (_program(tool.PROGRAM, text, tool.make_parser(), synopsis) for tool, text, synopsis in tools)
    return {program.name: program for program in (_qpidd(), _qpid_ha(), *others)}


def broker_groups() -> list[type]:
    """Options of the broker and its plug-ins."""
    return [*GROUPS, *(group for plugin in load_plugins() for group in plugin.option_groups)]


def _program(name: str, text: str, parser: argparse.ArgumentParser, synopsis: str) -> Program:
    return Program(name, text, parser, _commands(parser), tuple(synopsis.format(name).splitlines()))


def _commands(parser: argparse.ArgumentParser) -> tuple[Command, ...]:
    verbs = next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
    if verbs is None:
        return ()
    texts = {choice.dest: str(choice.help) for choice in verbs._choices_actions}
    return tuple(Command(name, texts[name], found) for name, found in verbs.choices.items())


def _qpidd() -> Program:
    return _program("qpidd", "AMQP 0-9-1 message broker", command_line(broker_groups()), "{} [OPTIONS]")


def _qpid_ha() -> Program:
    """Its parser does not know the commands, which are imported one by one."""
    listed = qpid_ha.COMMANDS.items()
    commands = tuple(Command(name, command.text, qpid_ha.command_parser(name)) for name, command in listed)
    general, synopsis = qpid_ha.common_parser(qpid_ha.PROGRAM, ""), f"{qpid_ha.PROGRAM} COMMAND [OPTIONS]"
    return Program(qpid_ha.PROGRAM, "ask and command brokers of a cluster", general, commands, (synopsis,))
