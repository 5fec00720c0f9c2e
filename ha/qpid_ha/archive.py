"""`qpid-ha backup` and `restore`: between a broker and an archive (`qpidd_py/store/archive.py`)."""

from __future__ import annotations

import marshal
import sys
import tempfile
import time
from array import array
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from ha.qpid_ha.ask import primary_of
from ha.qpid_ha.output import format_octets
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from qpidd_py.cli.output import print_json
from qpidd_py.cli.target import Options, Parser, UsageError
from qpidd_py.core import decode_ids
from qpidd_py.store.archive import Header, Message, position_text
from qpidd_py.store.archive_file import ArchiveFile, ArchiveWriter, NewFile

TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
TEXT: Final = 120_000
"""Characters of lines in one request."""
REPORT: Final = 2.0
"""Seconds between two lines on the progress."""


def add_arguments(command: str, parser: Parser) -> None:
    if command == "backup":
        parser.add_argument(
            "file", type=Path, metavar="FILE", help="made readable for its owner only; replaces a backup"
        )
        parser.add_argument("--messages", action="store_true", help="messages, too")
    else:
        parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="of `backup` or `qpidd-journal export`")
        text = "delete what an interrupted restore has left, and admit clients to the empty cluster"
        parser.add_argument("--abandon", action="store_true", help=text)


class ProgressLines:
    """Lines on standard error."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._began = self._said = time.monotonic()

    def at(self, done: int, total: int = 0) -> None:
        """`done` of `total` octets."""
        now, total = time.monotonic(), total or self._total
        if now - self._said >= REPORT and done:
            self._said, rate = now, done / (now - self._began)
            left = f"{max(0, total - done) / rate:.0f} s remain"
            sizes = f"{format_octets(done)} of {format_octets(max(total, done))}"
            print(f"{self._what}: {sizes}, {format_octets(rate)}/s, {left}", file=sys.stderr)


class Requests:
    """Requests on one connection, each with its own time limit."""

    def __init__(self, broker: ManagementSocket, method: str, deadline: Deadline) -> None:
        self._broker, self._method, self._seconds = broker, method, deadline.seconds

    def __call__(self, action: str, **arguments: Any) -> Any:
        return self._broker.request(self._method, {"action": action, **arguments}, Deadline(self._seconds))


# ---- backup ----------------------------------------------------------------------------------------------------------


def backup(options: Options, target: Target, deadline: Deadline) -> int:
    with NewFile(options.file) as new, tempfile.TemporaryFile(dir=options.file.parent) as spool:
        with ManagementSocket(target, deadline) as broker:
            copy = Copy(Requests(broker, "ha.backup", deadline), spool, options.messages)
        now, position = time.strftime(TIME, time.gmtime()), position_text(copy.position)
        header = Header(now, copy.broker, position, options.messages, hosts=copy.hosts)
        writer = ArchiveWriter(new.stream, header)
        for payload in copy.objects:
            writer.object(payload)
        for message in copy.messages():
            writer.message(message)
        writer.finish()
        new.finish()
    found = {"file": str(options.file), "objects": writer.objects, "messages": writer.messages}
    if copy.remember and options.messages:
        print(f"not copied: the keys that {', '.join(copy.remember)} remember of other messages", file=sys.stderr)
    if options.json:
        print_json({**found, "position": header.position, "broker": header.broker, "octets": writer.octets})
    else:
        print(f"{options.file}: {writer.objects} objects and {writer.messages} messages at position {header.position}")
    return 0


class Copy:
    """A copy that a broker has made (`ha/archive/copying.py`): complete when the constructor returns."""

    def __init__(self, ask: Requests, spool: IO[bytes], with_messages: bool) -> None:
        """Raises BrokerError and OSError."""
        begun = ask("begin", messages=with_messages)
        self.broker, self.position = str(begun["broker"]), 0
        self.objects: list[bytes] = []
        self.remember: list[str] = begun.get("remember", [])
        """Queues whose remembered keys are not copied; a broker of an older version does not say."""
        self.hosts = bool(begun.get("hosts", False))
        self._spool = spool
        self._leaders = {int(epoch): str(leader) for epoch, leader in begun["leaders"]}
        self._ids: dict[int, bytes] = {}
        self._names: dict[int, tuple[str, str, int]] = {}
        """Number of a queue -> its virtual host and name, and up to which id messages were handed out."""
        progress, octets = ProgressLines("copied", begun["octets"]), begun["octets"]
        while not (answer := ask("next", id=begun["id"])).get("end"):
            self._take(answer)
            progress.at(octets - answer.get("left", 0))

    def _take(self, answer: dict[str, Any]) -> None:
        self.position = answer.get("position", self.position)
        if rows := answer.get("messages"):
            marshal.dump(rows, self._spool)
        self.objects += map(b64decode, answer.get("objects", ()))
        for item in answer.get("held", ()):
            number = item["number"]
            self._names[number] = item.get("vhost", "/"), item["queue"], item["handed_out"]
            self._ids[number] = self._ids.get(number, b"") + b64decode(item["ids"])

    def messages(self) -> Iterator[Message]:
        """What the queues held at `position`.  Raises BrokerError if something of it was not copied."""
        held = {number: Held(ids) for number, ids in self._ids.items()}
        for number, id, redelivered, arrival, exchange, routing_key, header, body in self._rows():
            if number in held and held[number].take(id):
                host, name, handed_out = self._names[number]
                source, key = (part.encode("utf-8", "surrogateescape") for part in (exchange, routing_key))
                content, again = (b64decode(header), b64decode(body)), redelivered or id <= handed_out
                leader = self._leaders.get(id >> 48, "")
                yield Message(name, id, again, arrival, source, key, *content, leader, host)
        if lacking := sum(queue.left for queue in held.values()):
            raise BrokerError(f"{lacking} messages came to the broker out of order while they were copied: try again")

    def _rows(self) -> Iterator[Any]:
        self._spool.flush()
        self._spool.seek(0)
        while True:
            try:
                yield from marshal.load(self._spool)
            except EOFError:
                return


class Held:
    """The ids that a queue held."""

    def __init__(self, ids: bytes) -> None:
        ranges = decode_ids(ids)
        self._lows, self._highs = (array("Q", (item[end] for item in ranges)) for end in (0, 1))
        self.left = sum(high - low + 1 for low, high in ranges)
        """How many were not taken yet."""

    def take(self, id: int) -> bool:
        at = bisect_right(self._lows, id) - 1
        found = at >= 0 and id <= self._highs[at]
        self.left -= found
        return found


# ---- restore ---------------------------------------------------------------------------------------------------------


def restore(options: Options, target: Target, deadline: Deadline) -> int:
    if options.abandon == bool(options.file):
        raise UsageError("wanted either FILE or --abandon")
    archive = None if options.abandon else ArchiveFile(options.file, ProgressLines("checked", 0).at)
    with ManagementSocket(primary_of(target, deadline), deadline) as broker:
        ask = Requests(broker, "ha.restore", deadline)
        return _abandon(ask, options) if archive is None else _restore(ask, archive, options)


def _abandon(ask: Requests, options: Options) -> int:
    found = ask("abandon")
    if options.json:
        print_json(found)
    else:
        print("what was restored is deleted; clients are admitted" if found["again"] else "no restore was interrupted")
    return 0


def _restore(ask: Requests, archive: ArchiveFile, options: Options) -> int:
    if archive.header.damage:
        print(f"{archive.path} is what could be read of a damaged journal: {archive.header.damage}", file=sys.stderr)
    begun = ask("begin")
    try:
        counts = _send(ask, begun["id"], archive)
    except (BrokerError, OSError, KeyboardInterrupt) as error:
        what = str(error) or "interrupted"
        hint = "no client is admitted until it is restored again, or `qpid-ha restore --abandon` was called"
        raise BrokerError(f"{what}; the restore is not finished: {hint}") from error
    if options.json:
        print_json({"file": str(archive.path), "again": begun["again"], **counts})
    else:
        if begun["again"]:
            print("what an interrupted restore had left was deleted before")
        print(f"{counts['messages']} messages and {counts['objects']} objects are restored, on all brokers in sync")
    return 0


def _send(ask: Requests, id: int, archive: ArchiveFile) -> dict[str, Any]:
    progress, done = ProgressLines("restored", archive.size), 0
    for text in _texts(archive):
        ask("lines", id=id, text=text)
        done += len(text)
        progress.at(done)
    counts: dict[str, Any] = ask("end", id=id, objects=archive.end.objects, messages=archive.end.messages)
    return counts


def _texts(archive: ArchiveFile) -> Iterator[str]:
    """The lines of the archive in pieces; a long line may be in several."""
    text = ""
    for line in archive.lines():
        text += line.decode()
        if len(text) >= TEXT:
            yield from (text[start : start + TEXT] for start in range(0, len(text), TEXT))
            text = ""
    if text:
        yield text
