"""Which files the stream gives, and how often."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.watch import stream as watch_stream

YEAR = 365 * 86_400


class Stream:
    """Remembers what it was given."""

    def __init__(self, session: Any, place: Path, batch: int = 2) -> None:
        self.session, self.place, self.batch = session, place, batch
        self.input = str(place / "in")
        self.batches: list[list[str]] = []

    def take(self, paths: Sequence[str]) -> None:
        self.batches.append(sorted(str(Path(path).relative_to(self.input)) for path in paths))

    def run(self) -> list[str]:
        """What was new, in any order."""
        self.batches = []
        count = watch_stream.run(self.session, self.input, str(self.place / "checkpoint"), self.take, self.batch)
        found = sorted(name for batch in self.batches for name in batch)
        assert count == len(found)
        return found

    def write(self, name: str, data: bytes = b"{}\n", age: int = 0) -> Path:
        path = Path(self.input) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        now = path.stat().st_mtime
        os.utime(path, (now - age, now - age))
        return path


@pytest.fixture
def stream(spark_session: Any, tmp_path: Path) -> Stream:
    return Stream(spark_session, tmp_path)


def test_closed_segments_are_given_once(stream: Stream) -> None:
    names = ["node1/b-0001.jsonl", "node1/b-0002.jsonl", "c 1%20ö-0001.jsonl", "deep/er/c-0001.jsonl.gz"]
    for name in names:
        stream.write(name, gzip.compress(b"{}\n") if name.endswith("gz") else b"{}\n")
    for name in ("node1/b-0003.jsonl.open", "pacemaker.log", ".hidden.jsonl", "_work/x.jsonl"):
        stream.write(name)
    assert stream.run() == sorted(names)
    assert [len(batch) for batch in stream.batches] == [2, 2]
    assert stream.run() == []
    opened = Path(stream.input, "node1/b-0003.jsonl.open")
    opened.rename(opened.with_name("b-0003.jsonl"))
    assert stream.run() == ["node1/b-0003.jsonl"]


def test_logs_that_come_late_are_not_left_out(stream: Stream) -> None:
    stream.write("new.jsonl")
    assert stream.run() == ["new.jsonl"]
    stream.write("old.jsonl", age=2 * YEAR)
    assert stream.run() == ["old.jsonl"]


def test_a_file_that_grows_is_not_given_again(stream: Stream) -> None:
    """Why segments must be closed before they are seen."""
    path = stream.write("a.jsonl")
    assert stream.run() == ["a.jsonl"]
    path.write_bytes(b"{}\n{}\n")
    assert stream.run() == []


def test_what_fails_is_raised_as_it_is_and_given_again(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        stream.write(f"{number}.jsonl", age=10 - number)

    def fail(paths: Sequence[str]) -> None:
        if len(stream.batches) == 1:
            raise ZeroDivisionError("of ours")
        Stream.take(stream, paths)

    monkeypatch.setattr(stream, "take", fail)
    with pytest.raises(ZeroDivisionError, match="of ours"):
        stream.run()
    assert stream.batches == [["0.jsonl", "1.jsonl"]]
    monkeypatch.undo()
    assert stream.run() == ["2.jsonl"]
