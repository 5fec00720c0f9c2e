"""Definitions to and from a file, for `qpidctl`; the format is RabbitMQ's, see `definitions`.                    Shell.

An import checks what it can of the whole file before it makes anything.  What the broker refuses on the way stops it
there; to import a file again changes nothing that is as the file says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.cli.asking import Ask
from qpidd_py.cli.definitions import LISTED, DefinitionError, Plan, exported, field, plan
from qpidd_py.cli.method_socket import with_fields
from qpidd_py.cli.target import UsageError
from qpidd_py.cli.whole_file import whole


def export_definitions(file: str, ask: Ask) -> None:
    """`-`: standard output.  It has the hashes of the passwords: nobody else may read a new file."""
    found = exported(*[ask(method, vhost=None) for method in LISTED])
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    if file == "-":
        print(text, end="")
    elif Path(file).exists() and not Path(file).is_file():
        Path(file).write_text(text, "utf-8")  # a pipe or a device, which must stay one
    else:
        with whole(Path(file).resolve()) as target:
            target.write(text)


def import_definitions(file: str, ask: Ask) -> None:
    try:
        found = plan(_read(file), lambda: [item["name"] for item in ask("vhost.list")])
        frames = {vhost: [_declaration(item) for item in items] for vhost, items in found.declared.items()}
    except DefinitionError as error:
        raise UsageError(str(error)) from None
    _make(found, frames, ask)


def _read(file: str) -> Mapping[str, Any]:
    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file}: wanted an object")
    return found


def _make(found: Plan, frames: Mapping[str, list[Frame]], ask: Ask) -> None:
    for order in found.requests:
        ask(order.method, **order.arguments)
    for vhost, declarations in frames.items():
        with ask.methods(vhost) as broker:
            for each in declarations:
                broker.call(each)


def _declaration(item: Mapping[str, Any]) -> Frame:
    """Raises DefinitionError."""
    arguments = field(item, "arguments", dict, {})
    if item["what"] == "binding":
        return _binding(item, arguments)
    flags: dict[str, Any] = {"durable": field(item, "durable", bool, True)}
    flags["auto_delete"] = field(item, "auto_delete", bool, False)
    name = field(item, "name", str)
    if item["what"] == "queue":
        return with_fields(commands.Queue.Declare(), queue=name, arguments=arguments, **flags)
    flags |= {"exchange_type": field(item, "type", str, "direct"), "internal": field(item, "internal", bool, False)}
    return with_fields(commands.Exchange.Declare(), exchange=name, arguments=arguments, **flags)


def _binding(item: Mapping[str, Any], arguments: Mapping[str, Any]) -> Frame:
    source, destination = field(item, "source", str), field(item, "destination", str)
    fields = {"routing_key": field(item, "routing_key", str, ""), "arguments": arguments}
    if field(item, "destination_type", str) == "queue":
        return with_fields(commands.Queue.Bind(), queue=destination, exchange=source, **fields)
    return with_fields(commands.Exchange.Bind(), destination=destination, source=source, **fields)
