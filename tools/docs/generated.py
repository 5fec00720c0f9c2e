"""The texts that replace `<!-- generated: NAME -->` in docs/, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ha.model.status import TRANSITIONS, State
from qpidd_py.logrules import category
from qpidd_py.options import live_options
from spark_jobs.schema import BROKER_KINDS, CLIENT_KINDS, COLUMNS, MANAGER_KINDS
from tools.docs import figures
from tools.docs.exit_codes import CODES, rows
from tools.docs.log_lines import LEVELS, log_lines
from tools.docs.markdown import cell, code, option_row, option_tables, table
from tools.docs.options import groups
from tools.programs import broker_groups, programs

ROOT: Final = Path(__file__).resolve().parents[2]
STATES: Final = {
    State.STANDALONE: "not a member of a cluster",
    State.JOINING: "started, or deposed; has heard no primary of the present epoch",
    State.CATCHUP: "a primary feeds it; what it holds is not complete",
    State.READY: "listed by the primary: nothing is confirmed that it does not hold",
    State.RECOVERING: "promoted; serves clients, and holds all confirms back for the backups that it expects",
    State.ACTIVE: "promoted; confirms",
}


def options(name: str) -> str:
    """All options of a program: the general ones, then those of each command."""
    program = programs()[name]
    synopsis = "```text\n" + "\n".join(program.synopsis) + "\n```\n\n"
    parts = [synopsis + option_tables(groups(program.general), 3)]
    for command in program.commands:
        found = [option for group in groups(command.parser, program.general) for option in group.options]
        shown = table(("option", ""), map(option_row, found)) if found else ""
        parts.append(f"### {name} {command.name}\n\n{command.text[:1].upper()}{cell(command.text)[1:]}.\n\n{shown}")
    return "\n".join(parts)


def live() -> str:
    return ", ".join(code(name) for name in live_options(broker_groups())) + "\n"


def states() -> str:
    return table(("state", ""), ((code(state.value), cell(text)) for state, text in STATES.items()))


def transitions() -> str:
    found = ((code(old.value), code(new.value), cell(why)) for (old, new), why in TRANSITIONS.items())
    return table(("from", "to", "when"), found)


def columns() -> str:
    found = ((code(column.name), column.type, cell(column.note)) for column in COLUMNS if column.written)
    return table(("field", "type", ""), found)


def kinds() -> str:
    sources = {"broker": BROKER_KINDS, "client": CLIENT_KINDS, "qpid-cluster": MANAGER_KINDS}
    found = ((source, ", ".join(code(kind) for kind in sorted(found))) for source, found in sources.items())
    return table(("source", "kinds"), found)


def log_table() -> str:
    """A table for each level, with the category that `log-enable` knows."""
    parts = []
    lines = log_lines(ROOT)
    for level in LEVELS:
        found = [(code(line.text), category(line.module), code(line.module)) for line in lines if line.level == level]
        parts.append(f"## {level}\n\n{table(('line', 'category', 'module'), found)}")
    return "\n".join(parts)


def exit_codes(name: str) -> str:
    return table(("code", ""), ((number, cell(meaning)) for number, meaning in rows(CODES[name])))


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    **{f"options of {name}": lambda name=name: options(name) for name in programs()},  # type: ignore[misc]
    **{f"exit codes of {name}": lambda name=name: exit_codes(name) for name in CODES},  # type: ignore[misc]
    "live options of qpidd": live,
    "states": states,
    "transitions": transitions,
    "figure of the states": figures.states,
    "figure of a confirm": figures.life_of_a_message,
    "fields of an event": columns,
    "kinds of events": kinds,
    "log messages": log_table,
}
