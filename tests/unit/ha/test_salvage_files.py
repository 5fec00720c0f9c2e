"""Salvage files on disk, and what management does with them; the primary is a real broker behind a socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from ha.dial import Dial
from ha.model.environment import Answer, Json, Outcome
from ha.model.position import make
from ha.model.salvaged import Grade, Header, Record
from ha.salvage import files as salvage_files
from ha.salvage.copies import Copies, keys_from_json
from ha.salvage.door import SalvageDoor
from ha.salvage.files import SalvageFiles
from ha.salvage.lines import SalvageError, decode_record
from ha.salvage.publisher import Publisher, RestoreOutcome
from ha.salvage.restorer import Peers, Restorer
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.core import Queue
from qpidd_py.errors import LinkError
from tests.support.memory import publish_octets
from tests.support.socket_broker import SocketBroker, closed_port

HEADER = Header("node1", "id-1", "node2", 3, 4)
NOW = 1_800_000_000.0
NAME = "20270115T080000Z-3.jsonl"


def record(number: int, queue: str = "orders", body: bytes = b"body", **properties: Any) -> Record:
    octets = publish_octets(body, "q", message_id=f"id{number}", **properties)
    start = 8 + int.from_bytes(octets[3:7], "big")
    header = octets[start + 7 : start + 7 + int.from_bytes(octets[start + 3 : start + 7], "big")]
    return Record("id-a", make(2, number), queue, Grade.CONFIRMED, False, 0, b"", b"q", header, body)


@pytest.fixture
def files(tmp_path: Path) -> SalvageFiles:
    return SalvageFiles(tmp_path / "salvage", 1 << 20, lambda: NOW)


def written(files: SalvageFiles, records: list[Record], finish: bool = True) -> str:
    file = files.begin(HEADER)
    file.add(records)
    if finish:
        file.finish()
    return file.name


# ---- the disk --------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(files: SalvageFiles) -> None:
    records = [record(number, body=bytes([number]) * number) for number in range(4)]
    assert written(files, records) == NAME
    assert list(files.records(NAME)) == list(enumerate(records, 1))
    summary = files.summary(NAME)
    assert (summary.header, summary.found, summary.complete, summary.restored) == (HEADER, 4, True, 0)
    assert files.time(NAME) == NOW


def test_files_of_one_second_have_their_own_names(files: SalvageFiles) -> None:
    names = [written(files, [record(1)]) for _ in range(3)]
    assert names == [NAME, NAME.replace("-3", "-3-2"), NAME.replace("-3", "-3-3")]
    assert files.names() == sorted(names)


@pytest.mark.parametrize("cut", [2, 5, 60])
def test_a_torn_last_line_costs_that_line_and_is_said(files: SalvageFiles, tmp_path: Path, cut: int) -> None:
    written(files, [record(number) for number in range(4)], finish=False)
    path = tmp_path / "salvage" / NAME
    path.write_bytes(path.read_bytes()[:-cut])
    assert [number for number, _ in files.records(NAME)] == [1, 2, 3]
    summary = files.summary(NAME)
    assert (summary.found, summary.complete, summary.header.messages) == (3, False, 4)


def test_a_line_in_the_middle_that_cannot_be_read_costs_that_line(
    files: SalvageFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(files, [record(number) for number in range(4)])
    path = tmp_path / "salvage" / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff{}\n", *lines[3:]]))
    with caplog.at_level(logging.WARNING, "ha"):
        assert [number for number, _ in files.records(NAME)] == [1, 3, 4]
    assert "message 2 cannot be read" in caplog.text


def test_a_cancelled_file_is_gone(files: SalvageFiles) -> None:
    file = files.begin(HEADER)
    file.add([record(1)])
    assert files.names() == [NAME]
    file.cancel()
    assert files.names() == []


class FullDisk:
    """A file that takes `room` octets."""

    def __init__(self, file: IO[bytes], room: int) -> None:
        self._file, self._room = file, room

    def write(self, octets: bytes) -> None:
        self._room -= len(octets)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(octets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [10, 400])
def test_a_full_disk_is_an_error_of_the_link(files: SalvageFiles, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    real = salvage_files.create
    monkeypatch.setattr(salvage_files, "create", lambda path: FullDisk(real(path), room))
    with pytest.raises(LinkError, match="No space left"):
        written(files, [record(1, body=bytes(400))])
    if room > 300:
        assert files.names() == [NAME]  # what was begun is for its writer to cancel
    else:
        assert files.names() == []


def test_the_limit_is_for_all_files_together(tmp_path: Path) -> None:
    files = SalvageFiles(tmp_path / "salvage", 3000, lambda: NOW)
    written(files, [record(1, body=bytes(1000))])
    with pytest.raises(LinkError, match="ha-salvage-limit of 3000 octets is reached"):
        written(files, [record(2, body=bytes(1000))])
    files.discard(NAME)
    files.discard(files.names()[0])
    written(files, [record(2, body=bytes(1000))])


@pytest.mark.parametrize("limit", [0, 100])
def test_nothing_is_kept_without_a_place(limit: int) -> None:
    files = SalvageFiles(None, limit)
    assert written(files, [record(1)]) == ""
    assert (files.names(), files.limit) == ([], 0)


def test_marks_tell_what_became_of_each_message(files: SalvageFiles, tmp_path: Path) -> None:
    written(files, [record(number) for number in range(6)])
    files.mark(NAME, "tried", [1, 2, 3, 4])
    files.mark(NAME, "restored", [1, 2])
    files.mark(NAME, "refused", [3])
    marks = files.marks(NAME)
    assert (marks.restored, marks.tried) == ({1, 2}, {4})
    with (tmp_path / "salvage" / f"{NAME}.restored").open("ab") as file:
        file.write(b'{"restored":[4')
    assert files.marks(NAME).tried == {4}
    assert files.summary(NAME).restored == 2
    files.discard(NAME)
    assert list((tmp_path / "salvage").iterdir()) == []


@pytest.mark.parametrize("name", ["", "../ha-state.json", "x.jsonl", f"{NAME}.restored", f"../salvage/{NAME}", NAME])
def test_other_names_are_no_files_of_ours(files: SalvageFiles, name: str) -> None:
    with pytest.raises(SalvageError, match="no salvage file"):
        files.summary(name)
    with pytest.raises(SalvageError, match="no salvage file"):
        files.discard(name)


# ---- to the primary --------------------------------------------------------------------------------------------------


@pytest.fixture
def primary() -> Iterator[SocketBroker]:
    with SocketBroker() as broker:
        yield broker


def declare(broker: SocketBroker, name: str, **arguments: Any) -> Queue:
    names = {name.replace("_", "-"): value for name, value in arguments.items()}
    return broker.broker.vhost.declare_queue(None, name, True, False, False, names)[0].core


def asked(
    files: SalvageFiles, primary: str, *requests: dict[str, Any], others: dict[str, SalvageFiles | None] | None = None
) -> list[dict[str, Any]]:
    """One after the other.  `others`: by address; None does not answer."""
    known = others or {}

    async def run() -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()

        def request(address: str, method: str, arguments: Json, limit: float, done: Callable[[Answer], None]) -> None:
            def reply(value: Json) -> None:
                done(Answer(Outcome.ANSWERED, value.get("result", {}), value.get("error", "")))

            there = known[address]
            if there is None:
                loop.call_soon(done, Answer(Outcome.SILENT))
            else:
                doors.append(door_of(loop, there, "other", peers))
                doors[-1].request(arguments, "", reply)

        peers = Peers(lambda: primary, lambda: list(known), request)
        door = door_of(loop, files, "node1", peers)
        doors = [door]
        answers = []
        for arguments in requests:
            answer: asyncio.Future[dict[str, Any]] = loop.create_future()
            door.request(arguments, "", answer.set_result)
            answers.append(await answer)
        for each in doors:
            each.stop()
        return answers

    return asyncio.run(run())


def door_of(loop: asyncio.AbstractEventLoop, files: SalvageFiles, broker: str, peers: Peers) -> SalvageDoor:
    return SalvageDoor(
        loop, files, Restorer(loop, files, broker, peers, Dial(Login()), lambda record: ("", record.queue))
    )


def restored(files: SalvageFiles, primary: str) -> dict[str, Any]:
    (answer,) = asked(files, primary, {"action": "restore", "file": NAME})
    assert answer["ok"], answer
    result: dict[str, Any] = answer["result"]
    return result


def test_messages_go_back_to_their_queues(files: SalvageFiles, primary: SocketBroker) -> None:
    orders, other = declare(primary, "orders"), declare(primary, "other")
    bodies = [b"", b"a", bytes(300_000), *(b"m%d" % number for number in range(600))]
    records = [record(number, "other" if number % 3 else "orders", body) for number, body in enumerate(bodies)]
    written(files, records)
    result = restored(files, primary.address)
    assert (result["restored"], result["stay"], result["error"], result["next"]) == (len(bodies), [], "", 0)
    assert [item[5] for item in orders.peek(1000)] == bodies[::3]
    assert other.ready == len(bodies) - orders.ready
    _, _, exchange, routing_key, header, _ = orders.peek(1)[0]
    assert (exchange, routing_key) == (b"", b"orders")
    assert b"id0" in header
    assert b"x-recovered" in header
    again = restored(files, primary.address)
    assert (again["restored"], again["before"], again["maybe_twice"]) == (0, len(bodies), 0)
    assert orders.ready + other.ready == len(bodies)


def test_what_no_queue_takes_stays(files: SalvageFiles, primary: SocketBroker) -> None:
    orders = declare(primary, "orders")
    small = declare(primary, "small", x_max_length=1, x_overflow="reject-publish")
    queues = ["gone", "orders", "small", "gone", "small", "orders", "gone", "small"]
    written(files, [record(number, queue) for number, queue in enumerate(queues)])
    result = restored(files, primary.address)
    assert result["restored"] == orders.ready + small.ready == 3
    assert result["stay"] == [
        {"queue": "gone", "why": "no such queue at the primary", "messages": 3},
        {"queue": "small", "why": "refused by the queue", "messages": 2},
    ]
    gone = declare(primary, "gone")
    result = restored(files, primary.address)
    assert (result["restored"], result["before"], result["maybe_twice"], gone.ready) == (3, 3, 0, 3)
    assert [item["queue"] for item in result["stay"]] == ["small"]


def test_what_an_interrupted_restore_has_sent_is_sent_again_and_said(
    files: SalvageFiles, primary: SocketBroker
) -> None:
    orders = declare(primary, "orders")
    written(files, [record(number) for number in range(5)])
    files.mark(NAME, "tried", [1, 2, 3])
    files.mark(NAME, "restored", [1])
    result = restored(files, primary.address)
    assert (result["restored"], result["before"], result["maybe_twice"]) == (4, 1, 2)
    assert orders.ready == 4


def test_what_several_brokers_have_put_aside_is_restored_once(
    files: SalvageFiles, primary: SocketBroker, tmp_path: Path
) -> None:
    """node1 and node3 hold the same, node3 one more, and one under the same id from a rival; node4 is down."""
    orders = declare(primary, "orders")
    records = [record(number) for number in range(600)]
    rival = replace(record(7, body=b"rival"), leader="id-b")
    written(files, records)
    third = SalvageFiles(tmp_path / "third", 1 << 20, lambda: NOW)
    written(third, [*records, record(600), rival, record(7, "other queue")])
    others = {"node3:1": third, "node4:1": None}
    (answer,) = asked(files, primary.address, {"action": "restore", "file": NAME}, others=others)
    assert (answer["result"]["restored"], answer["result"]["untold"]) == (600, ["node4:1"])
    assert third.summary(NAME).restored == 600
    assert restored(third, primary.address)["restored"] == 2
    assert [item[5] for item in orders.peek(1000)][600:] == [b"body", b"rival"]


def test_two_files_of_one_broker_with_the_same_message_are_restored_once(
    files: SalvageFiles, primary: SocketBroker
) -> None:
    orders = declare(primary, "orders")
    written(files, [record(1), record(2)])
    second = written(files, [record(2), record(3)])
    assert restored(files, primary.address)["restored"] == 2
    assert files.marks(second).restored == {1}
    assert asked(files, primary.address, {"action": "restore", "file": second})[0]["result"]["restored"] == 1
    assert orders.ready == 3


def test_keys_survive_a_file_that_grows(files: SalvageFiles) -> None:
    copies = Copies(files)
    file = files.begin(HEADER)
    file.add([record(1)])
    keys = keys_from_json([["id-a", "2.1", "orders"], ["id-a", "2.2", "orders"]])
    assert copies.restored_elsewhere(keys) == 1
    file.add([record(2)])
    file.finish()
    assert copies.restored_elsewhere(keys) == 1
    assert files.marks(NAME).restored == {1, 2}


@pytest.mark.parametrize("keys", [None, 7, ["abc"], [["a", "b", "c"]], [["a", "1.1"]], [["a", 5, "q"]]])
def test_what_are_no_keys(files: SalvageFiles, keys: object) -> None:
    (answer,) = asked(files, "", {"action": "restored", "messages": keys})
    assert answer["error"].startswith("not the keys of messages")


def test_a_header_that_cannot_be_read_stays(files: SalvageFiles, primary: SocketBroker) -> None:
    declare(primary, "orders")
    written(files, [Record("id-a", 1, "orders", Grade.RECEIVED, False, 0, b"", b"", b"\0\x3c", b""), record(2)])
    result = restored(files, primary.address)
    assert result["restored"] == 1
    assert result["stay"][0]["why"].startswith("its content header cannot be read")


def test_without_a_primary_nothing_is_tried(files: SalvageFiles) -> None:
    written(files, [record(1)])
    (answer,) = asked(files, "", {"action": "restore", "file": NAME})
    assert answer == {"ok": False, "error": "the primary is not known"}
    result = restored(files, f"127.0.0.1:{closed_port()}")
    assert "refused" in result["error"] or "Connect call failed" in result["error"]
    assert files.marks(NAME).tried == set()


def test_showing_a_long_file_reads_each_message_once(files: SalvageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page after page; a page out of order is found, too."""
    written(files, [record(number, body=b"x" * number) for number in range(40)])
    decoded: list[bytes] = []

    def decode(line: bytes) -> Record:
        decoded.append(line)
        return decode_record(line)

    monkeypatch.setattr(salvage_files, "decode_record", decode)
    pages = [{"action": "show", "file": NAME, "offset": offset, "limit": 4} for offset in range(0, 40, 4)]
    answers = [answer["result"] for answer in asked(files, "", *pages)]
    assert [message["number"] for page in answers for message in page["messages"]] == list(range(1, 41))
    assert [page["left"] for page in answers] == list(range(36, -1, -4))
    assert len(decoded) == 40
    decoded.clear()
    (answer,) = asked(files, "", {"action": "show", "file": NAME, "offset": 38, "limit": 9})
    assert [message["number"] for message in answer["result"]["messages"]] == [39, 40]


def test_a_file_that_changes_between_two_pages_is_read_anew(files: SalvageFiles) -> None:
    file = files.begin(HEADER)
    file.add([record(1), record(2)])
    page = {"action": "show", "file": NAME, "limit": 1}

    async def main(door: SalvageDoor) -> list[Json]:
        first = await door._show({**page, "offset": 0})
        file.add([record(3)])
        return [first, await door._show({**page, "offset": 1})]

    peers = Peers(lambda: "", list, lambda *_: None)
    loop = asyncio.new_event_loop()
    try:
        door = door_of(loop, files, "a", peers)
        first, second = loop.run_until_complete(main(door))
    finally:
        loop.close()
        file.cancel()
    assert (first["left"], second["left"]) == (1, 1)
    assert [message["number"] for message in second["messages"]] == [2]


def test_a_long_restore_answers_in_time_and_says_where_to_go_on(
    files: SalvageFiles, primary: SocketBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = declare(primary, "orders")
    written(files, [record(number) for number in range(600)])
    monkeypatch.setattr("ha.salvage.restorer.TURN", 0.0)
    requests = [{"action": "restore", "file": NAME, "after": after} for after in (0, 256, 512)]
    results = [answer["result"] for answer in asked(files, primary.address, *requests)]
    assert [result["next"] for result in results] == [256, 512, 600]
    assert [result["restored"] for result in results] == [256, 256, 88]
    assert orders.ready == 600


def test_list_show_and_discard(files: SalvageFiles) -> None:
    written(files, [record(1), record(2, body=b"\xff"), record(3)])
    files.mark(NAME, "tried", [1, 3])
    files.mark(NAME, "restored", [1])
    page = {"action": "show", "file": NAME, "offset": 1, "limit": 1}
    listed, shown, page_two, dropped, empty = (
        answer["result"]
        for answer in asked(
            files,
            "",
            {"action": "list"},
            {"action": "show", "file": NAME},
            page,
            {"action": "discard", "file": NAME},
            {"action": "list"},
        )
    )
    (file,) = listed["files"]
    expected = {"file": NAME, "found": 3, "messages": 4, "restored": 1, "complete": True, "primary": "node2"}
    assert expected.items() <= file.items()
    assert [(m["number"], m["state"], m["body"]) for m in shown["messages"]] == [
        (1, "restored", "body"),
        (2, "", {"base64": "/w=="}),
        (3, "tried", "body"),
    ]
    assert ([m["number"] for m in page_two["messages"]], page_two["left"], shown["left"]) == ([2], 1, 0)
    assert (dropped["dropped"], empty["files"]) == (2, [])


@pytest.mark.parametrize(
    "request_",
    [
        {"action": "show", "file": "x"},
        {"action": "show", "file": NAME, "offset": -1},
        {"action": "show"},
        {"action": "discard", "file": "../x"},
        {"action": "restore", "file": "x"},
        {"action": "restore", "file": NAME, "after": "x"},
    ],
)
def test_requests_that_make_no_sense(files: SalvageFiles, request_: dict[str, Any]) -> None:
    written(files, [record(1)])
    (answer,) = asked(files, "127.0.0.1:1", request_)
    assert not answer["ok"]
    assert answer["error"]


def test_an_action_that_does_not_exist(files: SalvageFiles) -> None:
    with pytest.raises(LinkError, match="expected list, show, restore, restored, discard"):
        asked(files, "", {"action": "burn"})


def test_the_publisher_tells_when_the_connection_ends(primary: SocketBroker) -> None:
    publisher = Publisher(Login("nobody", "x", "EXTERNAL"))
    with socket.create_connection(("127.0.0.1", primary.port)) as connection:
        connection.sendall(publisher.take_output())
        with pytest.raises(LinkError, match="mechanism"):
            publisher.feed(connection.recv(65536))
    assert RestoreOutcome.RESTORED.value == "restored"
