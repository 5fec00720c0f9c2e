"""The fast reader of segments says what event_json says, whatever the lines hold and wherever the blocks end."""

from __future__ import annotations

import io
import random

import pytest

from spark_jobs.ingest.segments import pieces
from spark_jobs.ingest.tables import Resume
from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from spark_jobs.parse.json_blocks import LINE_MAX, Reader
from spark_jobs.parse.segments import Joined, table
from tests.spark.ingest_world import LONG, in_order, odd_file
from tests.support.slow import mostly_slow


def slow(data: bytes):
    """As Bundle gives the lines."""
    lines, file = [], io.BufferedReader(io.BytesIO(data))
    while line := file.readline(LINE_MAX):
        if len(line) == LINE_MAX and not line.endswith(b"\n"):
            while (more := file.readline(LINE_MAX)) and not more.endswith(b"\n"):
                pass
            line += b"\n"
        lines.append(line)
    context = Context("here", "node9")
    return in_order(event_json.parse_file("f", lines, context, "client")), context.tally


def fast(data: bytes, size: int):
    context = Context("here", "node9")
    blocks = list(blocks_of(data, size))
    reader = Reader("f", "here", "node9")
    joined = Joined(reader.name, context, {"source": "client", "cluster": "here", "node": "node9"})
    read = ((block.table, table(joined.rows(block))) for block in (reader.block(*one) for one in blocks))
    return in_order(row for tables in read for found in tables for row in found.to_pylist()), context.tally


def blocks_of(data: bytes, size: int):
    """Blocks of `size` lines."""
    lines = data.split(b"\n")
    whole = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    for begin in range(0, len(whole), size):
        yield b"".join(whole[begin : begin + size]), begin + 1


@pytest.mark.parametrize("seed", mostly_slow(range(60), 10))
def test_random_lines(seed):
    data = odd_file(seed, random.Random(seed).choice([1, 5, 200]))
    rows, tally = slow(data)
    for size in (1, 7, 1000):
        found, counted = fast(data, size)
        assert found == rows
        assert counted == tally


def line(text: str) -> bytes:
    return b'{"source":"client","kind":"ack","ts_wall":5' + text.encode() + b"}\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        line("") * 3,
        line(',"ts_res":2147483648') + line(""),
        line(',"seq":-9223372036854775808'),
        line(',"seq":1.0') + line(',"seq":"1"'),
        line(',"attrs":{}') + line(',"attrs":null') + line(',"attrs":{"k":null}') + line(',"attrs":{"k":"v"}'),
        line(',"attrs":{"at":"2026-01-01 00:00:00"}') + line(',"attrs":{"at":"never"}'),
        line(',"attrs":{"n":1}') + line(',"attrs":{"n":"1"}'),
        line(',"msg_id":"p:3","attrs":{"last":"p:2"}'),
        line(',"msg_id":"p:3","attrs":{"last":"p:9"}'),
        line(',"msg_id":"odd","attrs":{"last":"odd"}'),
        line(',"msg_id":""'),
        line(',"reason":"\\ud800"'),
        line(',"reason":"\\u0000"'),
        line(',"file":"mine"'),
        line("") + b'{"source":"client","kind":"ac',
        # a torn line's row says who wrote the line before, in the block before as well
        line(',"proc":"p:1","client_id":"c"') + b'{"sour\n' + line(',"proc":"p:2"') + b'{"so' + line(""),
        line("").rstrip() + b',"source":"b"}\n' + line(""),
        # one object in two lines, and two in one
        b'{"source":"client","kind":"ack"\n,"ts_wall":1}\n' + line("") + line("").strip() + line(""),
        LONG + b"\n" + line("") + LONG,
        line(',"reason":"' + "x" * (LINE_MAX - 57) + '"'),
        line(',"reason":"' + "x" * (LINE_MAX - 56) + '"'),
    ],
)
def test_special_lines(data):
    rows, tally = slow(data)
    for size in (1, 2, 1000):
        assert fast(data, size) == (rows, tally)


def test_most_lines_are_read_fast():
    """Else the equality above says nothing about the fast reader."""
    lines = [line(f',"seq":{n},"msg_id":"p:{n}","attrs":{{"last":"p:{n + 1}"}}') for n in range(1, 500)]
    block = Reader("f").block(b"".join(lines), 1)
    assert (block.table.num_rows, block.odd) == (499, [])
    block = Reader("f").block(b"".join([*lines, b"{}\n", *lines]), 1)
    assert (block.table.num_rows, [odd.line_no for odd in block.odd]) == (998, [500])


@pytest.mark.parametrize("seed", range(30))
def test_pieces_are_the_file(seed, monkeypatch):
    """Whatever the reads give: the octets, the numbers of the lines, and where whole lines end."""
    chance = random.Random(seed)
    monkeypatch.setattr("spark_jobs.ingest.segments.BLOCK", chance.choice([1, 7, 50, 1 << 20]))
    data = b"\n".join(b"x" * chance.choice([0, 1, 5, 60]) for _ in range(chance.randrange(12)))
    begin = data.rfind(b"\n", 0, chance.randrange(len(data) + 1)) + 1
    resume = Resume(begin, {"lines": data.count(b"\n", 0, begin)})
    found = list(pieces(io.BytesIO(data), resume, lambda line_no, error: pytest.fail(str(error))))
    assert b"".join(piece.data for piece in found) == data[begin:]
    for piece in found:
        assert piece.first == data.count(b"\n", 0, piece.octets - len(piece.data)) + 1
        assert piece.whole == piece.data.endswith(b"\n")
    assert all(piece.whole for piece in found[:-1])


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr("spark_jobs.ingest.segments.BLOCK", 1 << 16)
    data = b"a\n" + b"x" * (3 * LINE_MAX) + b"\nb\n"
    found = list(pieces(io.BytesIO(data), Resume(), lambda *_: None))
    assert sum(len(piece.data) for piece in found) < LINE_MAX + (1 << 17)
    assert found[-1].octets == len(data) and b"\nb\n" in found[-1].data
    assert sum(piece.data.count(b"\n") for piece in found) == 3
