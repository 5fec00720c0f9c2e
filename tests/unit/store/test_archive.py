"""Archives: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.archive.restoring import check_content
from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.operations import queue_operation
from qpidd_py.store.archive import ArchiveError, Header, Message, decode_message, decode_object, encode_message
from qpidd_py.store.archive_file import ArchiveFile, ArchiveWriter, NewFile

HEADER = Header("2026-11-24T09:00:00Z", "node1", "1.7", True)
PLAIN = b"\0\x3c\0\0" + (4).to_bytes(8, "big") + b"\0\0"
"""A content header without properties, of a body of four octets."""
MESSAGE = Message("q\udce4", 1 << 48 | 7, True, 5, b"ex", b"\xff", PLAIN, b"\0\1\2\3", "id-a")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.jsonl"
    with NewFile(path) as new:
        writer = ArchiveWriter(new.stream, HEADER)
        writer.object(encode_table(queue_operation("q", 1, True, False, False, {"x-max-length": 3})))
        writer.message(MESSAGE)
        writer.finish()
        new.finish()
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ArchiveError) as caught:
        ArchiveFile(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_what_is_written_is_read(file: Path) -> None:
    archive = ArchiveFile(file)
    assert archive.header == HEADER and archive.end[:2] == (1, 1)
    made, message = archive.values()
    assert decode_object(made)["arguments"] == {"x-max-length": 3} and made["name"] == "q"
    assert decode_message(message) == MESSAGE and message["properties"] == {}
    assert file.stat().st_mode & 0o777 == 0o600


def test_every_cut_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert refusal(file)
    file.write_bytes(whole)
    assert ArchiveFile(file)


def test_every_flipped_octet_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        assert refusal(file), at


def test_the_words_of_refusals(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'{"archive":1,', b'{"archive":3,', 1))
    assert refusal(file) == "archive of format 3, this version reads up to 2: a newer version wrote it"
    file.write_bytes(whole[: whole.rindex(b'{"end"')])
    assert refusal(file) == "it is cut off: the last line is missing"
    file.write_bytes(whole.replace(b"AAECAw==", b"AAECBA=="))
    assert refusal(file) == "it is damaged: its checksum is another one"
    file.write_bytes(b"\x1f\x8b\x08\0")
    assert refusal(file).startswith("not a line of an archive")
    file.write_bytes(b'{"salvage": 1}\n')
    assert refusal(file) == "not an archive of qpidd: the first line says something else"


def test_another_file_is_not_replaced_and_nothing_is_left_behind(file: Path) -> None:
    other = file.with_name("notes")
    other.write_text("mine")
    for path in (other, file.parent):
        with pytest.raises(FileExistsError):
            NewFile(path)
    with pytest.raises(KeyError), NewFile(file) as new:
        new.stream.write(b"half")
        raise KeyError
    assert ArchiveFile(file) and sorted(path.name for path in file.parent.iterdir()) == ["notes", "some.jsonl"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (MESSAGE._replace(body=b"\0"), "does not fit a body of 1 octets"),
        (MESSAGE._replace(header=b"\0\x3c"), "cut off"),
        (MESSAGE._replace(header=PLAIN[:12] + b"\x80\0"), "content header"),
        (MESSAGE._replace(routing_key=b"k" * 256), "more than 255 octets"),
    ],
)
def test_what_no_client_could_have_published_is_not_restored(message: Message, why: str) -> None:
    check_content(MESSAGE)
    with pytest.raises(ArchiveError, match=why):
        check_content(message)
    assert encode_message(message)
