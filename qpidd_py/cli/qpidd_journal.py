"""`qpidd-journal`: looks at the journal of a broker that does not run, and saves what can be read of a damaged one.

    inspect [FOLDER]            its segments, and where it begins and ends
    verify [FOLDER]             checks every octet
    dump [FOLDER]               every operation, as one JSON object a line
    export [FOLDER]             what a broker with this journal would hold, as an archive (`qpid-ha restore` reads it)
    repair [FOLDER] --to OTHER  writes what can be read into a new folder

Exit codes: 0 done, and the journal is whole; 1 it is damaged, or the command could not be carried out; 2 wrong command
line.  Nothing is ever changed in FOLDER.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from qpidd_py.amqp.fields import decode_operation
from qpidd_py.amqp.json_object import read_object
from qpidd_py.broker.snapshot import decode_snapshot
from qpidd_py.cli.output import ShowVersion, print_json, print_table, run_tool
from qpidd_py.core import decode_ids, records
from qpidd_py.process import lock_path, running_pid
from qpidd_py.store.archive_file import NewFile
from qpidd_py.store.disk import Folder
from qpidd_py.store.export import export
from qpidd_py.store.layout import Kind, segment_name
from qpidd_py.store.recovery import CARRY, QUEUE, TAKEN, Damaged, Found, Frame, frames, scan
from qpidd_py.store.writer import JournalEnd, Roll, Work, Writer

PROGRAM: Final = "qpidd-journal"
_TEXTS: Final = {
    "inspect": "show the segments, and where the journal begins and ends",
    "verify": "check every octet; exit code 1 if the journal is damaged",
    "dump": "print every operation, as one JSON object a line",
    "export": "print configuration and waiting messages, as JSON lines that `qpid-ha restore` takes",
    "repair": "write what can be read into a new folder",
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description="look at the journal of a broker that does not run")
    parser.add_argument("--version", action=ShowVersion)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in _TEXTS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("folder", type=Path, help="the folder `journal` in the broker's data directory")
        if name in ("inspect", "verify"):
            verb.add_argument("--json", action="store_true", help="print JSON")
        if name == "export":
            text = "write this file, readable for its owner only; without it: to standard output"
            verb.add_argument("--output", type=Path, metavar="FILE", help=text)
        if name == "repair":
            verb.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a folder that does not exist")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return run_tool(lambda _: _VERBS[options.verb](options), arguments, f"{PROGRAM}: ")


def _open(path: Path) -> Folder:
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder; expected the folder `journal` of a data directory")
    if pid := running_pid(lock_path(path.resolve().parent)):
        raise ValueError(f"the broker with pid {pid} writes {path}; stop it, or copy the folder")
    return Folder(path)


def _read(disk: Folder) -> tuple[Found, str]:
    """What can be read, and what is damaged behind it."""
    found = Found()
    try:
        scan(disk, found=found)
    except Damaged as error:
        return found, str(error)
    return found, ""


def _inspect(options: argparse.Namespace) -> int:
    found, damage = _read(_open(options.folder))
    if options.json:
        print_json(_facts(found, damage))
    else:
        segments = found.segments
        rows = [[segment_name(item.generation), *map(str, (item.first, item.last, item.octets))] for item in segments]
        print_table(["segment", "first frame", "last frame", "octets"], rows)
        for name, value in _facts(found, damage).items():
            if name != "segments":
                print(f"{name}: {value}")
    return 1 if damage else 0


def _facts(found: Found, damage: str) -> dict[str, Any]:
    segments = [
        {"name": segment_name(item.generation), "first": item.first, "last": item.last, "octets": item.octets}
        for item in found.segments
    ]
    ends = {"begins": segment_name(found.head), "frames": found.end.number, "octets": found.octets}
    return {"segments": segments, **ends, "torn": found.torn, "damage": damage}


def _verify(options: argparse.Namespace) -> int:
    found, damage = _read(_open(options.folder))
    if options.json:
        print_json({"whole": not damage, "damage": damage, "frames": found.end.number, "octets": found.octets})
    else:
        print(damage or f"whole: {found.end.number} frames, {found.octets} octets in {len(found.segments)} segments")
    return 1 if damage else 0


def _dump(options: argparse.Namespace) -> int:
    disk = _open(options.folder)
    found, damage = _read(disk)
    for frame in frames(disk, found):
        for operation in _operations(frame):
            print(json.dumps({"frame": frame.number, **operation}, default=repr))
    if damage:
        print(f"{PROGRAM}: {damage}", file=sys.stderr)
    return 1 if damage else 0


def _operations(frame: Frame) -> Iterator[dict[str, Any]]:
    if frame.kind in (Kind.SNAPSHOT, Kind.ADOPTED):
        configuration = [decode_operation(payload) for _, payload in decode_snapshot(frame.body)]
        operation = "snapshot" if frame.kind == Kind.SNAPSHOT else "adopted"
        yield {"operation": operation, "position": frame.position, "configuration": configuration}
    elif frame.kind == Kind.HEAD:
        carry, generation = frame.head
        yield {"operation": "head", "carry": carry, "begins": segment_name(generation)}
    elif frame.kind == Kind.BASE:
        yield {"operation": "base", "carry": frame.carry}
    elif frame.kind == Kind.NOTE:
        yield {"operation": "note", **read_object(frame.body)}
    elif frame.kind in (Kind.DIFFERENCE, Kind.GIVEN_UP):
        yield {"operation": Kind(frame.kind).name.lower().replace("_", "-")}
    elif frame.kind == Kind.TAKEN:
        yield {"operation": "taken", "difference": frame.first(TAKEN), "position": frame.position}
    elif frame.kind in (Kind.DROP, Kind.MERGE):
        number, ids = frame.first(QUEUE), frame.body[QUEUE.size :]
        yield {
            "operation": Kind(frame.kind).name.lower(),
            "queues": [number],
            **({"ids": decode_ids(ids)} if ids else {}),
        }
    elif frame.kind == Kind.CARRIED:
        yield from (_record(record, carried=True) for record in records(frame.body[CARRY.size :]))
    else:
        yield from (_record(record) for record in records(frame.body))


def _record(record: tuple[str, int, int, list[int], Any], carried: bool = False) -> dict[str, Any]:
    operation, _, position, queues, payload = record
    found: dict[str, Any] = {"operation": operation, "position": position, "queues": queues}
    if operation == "enqueue":
        route, header, body = payload
        found |= {"route": route.decode("latin-1"), "header_octets": len(header), "body_octets": len(body)}
    elif operation == "dequeue":
        found["ids"] = payload
    elif operation == "returned":
        found["counts"] = [{"ids": run[:2], "count": run[2], "waits": run[3], "level": run[4]} for run in payload]
    elif operation == "config":
        found["change"] = decode_operation(payload)
    return {**found, **({"carried": True} if carried else {})}


def _repair(options: argparse.Namespace) -> int:
    disk = _open(options.folder)
    if options.to.exists():
        raise FileExistsError(f"{options.to} exists; expected a folder that does not")
    found, damage = _read(disk)
    segments = {item.first: item for item in found.segments if item.generation >= found.head}
    if not segments:
        raise ValueError(f"nothing of {options.folder} can be read from its beginning: {damage or 'it is empty'}")
    writer = Writer(Folder(options.to), JournalEnd(min(segments) - 1))
    for frame in frames(disk, found):
        begin: list[Work] = []
        if frame.number in segments:
            begin.append(Roll(segments[frame.number].generation, segments[frame.number].octets))
        writer.commit([*begin, frame.octets])
    print(f"{found.end.number - min(segments) + 1} frames written to {options.to}; {damage or 'nothing is damaged'}")
    return 1 if damage else 0


def _export(options: argparse.Namespace) -> int:
    disk = _open(options.folder)
    found, damage = _read(disk)
    if not found.segments:
        raise ValueError(f"nothing of {options.folder} can be read: {damage or 'it is empty'}")
    if options.output is None:
        waiting = export(disk, found, damage, sys.stdout.buffer)
    else:
        with NewFile(options.output) as file:
            waiting = export(disk, found, damage, file.stream)
            file.finish()
    told = f"{waiting.messages} messages and {waiting.objects} objects of the configuration exported"
    print(f"{told}; {damage or 'nothing is damaged'}", file=sys.stderr if options.output is None else sys.stdout)
    return 1 if damage else 0


_VERBS: Final = {"inspect": _inspect, "verify": _verify, "dump": _dump, "export": _export, "repair": _repair}

if __name__ == "__main__":
    sys.exit(main())
