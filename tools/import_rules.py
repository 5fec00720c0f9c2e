"""A kind of contract for `lint-imports`: what each room may import; everything else is refused.

    [importlinter:contract:NAME]
    type = allowed
    rooms =
        ha.promotion: ha.model qpidd_py.errors

A name covers what is below it; one without a dot (`qpidd_py`) covers its `__init__` alone.  The standard library is
free: the contracts of type `forbidden` say which part of it is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowedContract(Contract):
    type_name = "allowed"
    rooms = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        rooms: Any = self.rooms
        found = [each for line in rooms for each in _others(graph, *_parse(line))]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} imports {imported}, which its room may not use")


def _parse(line: str) -> tuple[str, tuple[str, ...]]:
    room, _, names = line.partition(":")
    return room.strip(), tuple(names.split())


def _others(graph: ImportGraph, room: str, allowed: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The imports of a room that are not allowed."""
    for module in sorted({room, *graph.find_descendants(room)}):
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if not any(_covers(name, imported) for name in (room, *allowed)):
                yield module, imported


def _covers(name: str, module: str) -> bool:
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or module == name:
        return True
    return module.startswith(name + ".") and "." in name
