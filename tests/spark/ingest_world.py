"""Files for ingest, and what the plain parsers say of them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_jobs import schema
from spark_jobs.bundle import Bundle
from spark_jobs.engine.base import Engine
from spark_jobs.ingest.tables import Cover
from spark_jobs.ingest.texts import covered
from spark_jobs.parse import detect
from spark_jobs.parse.almanac import almanac
from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.survey import survey
from spark_jobs.schema import Event
from spark_jobs.workspace import Workspace
from tests.spark.truth import nodes, processes, watches
from tests.spark.truth.reading import MODIFIED

Files = Mapping[str, list[bytes]]
TEXTS = ("pacemaker", "corosync", "syslog")
VALUES = (
    1, 2**40, -(2**63), 2**62, 2**63 - 1, 2**63, -5, 0, 1.5, "x", "", None, True, False, {"a": 1}, {"last": "p:3"}, [],
    "2020-01-01 00:00:00", "p:1", "é", "\ud800", {"last": "p:0"}, {"k": "2020-01-01"}, {"k": None}, {"l": "q", "n": 3},
)  # fmt: skip
IDS = ("p:1", "p:2", "weird", "p:007", "a:b:9", "p:" + "9" * 18, "p:" + "9" * 19, "", "p:0", ":5", "p:٣")
ATTRS = ({}, {"last": "p:2"}, {"last": "p:1", "count": "3"}, {"z": "2020-01-01"}, None, {"last": "p:0"}, {"last": "w"})
LONG = b'{"source":"client","kind":"ack","ts_wall":5,"reason":"' + b"x" * (1 << 20) + b'"}'


def odd_line(chance: random.Random) -> bytes:
    """A line of a segment, often with something wrong, without its end."""
    event: dict[str, Any] = {
        "source": chance.choice(["client", "broker", "client"]),
        "kind": chance.choice(["publish", "state", "confirm"]),
        "ts_wall": chance.randrange(10**16),
    }
    if chance.random() < 0.5:
        event["msg_id"] = chance.choice(IDS)
    if chance.random() < 0.4:
        event["attrs"] = chance.choice(ATTRS)
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        event[chance.choice([*schema.NAMES, "new1", "new2"])] = chance.choice(VALUES)
    if chance.random() < 0.03:
        event.pop(chance.choice(list(event)))
    separators = chance.choice([(",", ":"), (", ", ": ")])
    text = json.dumps(event, ensure_ascii=chance.random() < 0.5, separators=separators).encode("utf-8", "surrogatepass")
    return _damaged(text, chance)


def _damaged(text: bytes, chance: random.Random) -> bytes:
    half = text[: len(text) // 2]
    ways = [
        half, text + text, half + text, b" " + text + b"\r", b"\0\0", b"", text.replace(b'"', b"\xff", 1),
        b'{"a":1}{"a":2}', b'{"source":"x","kind":"y","ts_wall":1,"kind":"state"}', b"{}", LONG, b"\xef\xbb\xbf" + text,
        b'{"source":"client","kind":"ack","ts_wall":1e3}', b"[" + text + b"]",
    ]  # fmt: skip
    return chance.choice(ways) if chance.random() < 0.15 else text


def odd_file(seed: int, lines: int) -> bytes:
    chance = random.Random(seed)
    ending = chance.choice([b"", b"\n", b'\n{"sour'])
    return b"\n".join(odd_line(chance) for _ in range(lines)) + ending


def story_files() -> dict[str, list[bytes]]:
    """All stories side by side, each in a folder that names its cluster; and odd files."""
    found: dict[str, list[bytes]] = {}
    made = [make() for make in (*processes.STORIES, *nodes.STORIES, *watches.STORIES)]
    for number, files in enumerate([*(story.files for story in made), nodes.cleanup().files()]):
        name = f"s{number:02d}"
        for file, lines in files.items():
            # the stories' processes share names, the first lines of real segments are their own
            found[f"cluster={name}/{file}"] = [line.replace(b'"made"', f'"{name}"'.encode()) for line in lines]
    for seed in range(6):
        found[f"cluster=odd/{seed}-0001.jsonl"] = _lines(odd_file(seed, 250))
    found["cluster=odd/client-0001.jsonl.open"] = [b'{"source":"client","kind":"publish","ts_wall":1,"attrs":{"n":1}}']
    return found


def _lines(data: bytes) -> list[bytes]:
    whole = data.split(b"\n")
    return [line + b"\n" for line in whole[:-1]] + ([whole[-1]] if whole[-1] else [])


def written(folder: Path, files: Files, modified: int = MODIFIED) -> Path:
    for name, lines in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        os.utime(path, ns=(0, modified * 1000))
    return folder


def parsed(folder: Path) -> tuple[list[Event], dict[str, Tally]]:
    """The rows and the counts of each file, by nothing but the parsers; folders name the clusters."""
    rows: list[Event] = []
    tallies: dict[str, Tally] = {}
    clusters: dict[str, list[tuple[str, str, list[bytes]]]] = {}
    with Bundle(folder) as bundle:
        for file in bundle:
            name = file.name.removesuffix(".open")
            kind = detect.detect(name, file.head())
            if kind is not None:
                cluster = name.split("/")[0].removeprefix("cluster=")
                clusters.setdefault(cluster, []).append((name, kind, list(file.lines())))
    for cluster, files in clusters.items():
        for name, tally, found in _cluster(cluster, files):
            tallies[name] = tally
            rows += found
    return rows, tallies


def _cluster(cluster: str, files: list[tuple[str, str, list[bytes]]]) -> list[tuple[str, Tally, list[Event]]]:
    surveys = [survey(name, lines) for name, kind, lines in files if kind in TEXTS]
    modified = {name: MODIFIED for name, kind, _ in files if not kind.endswith("_json")}
    found = almanac(surveys, zones={}, modified=modified, now=None)
    done = []
    for name, kind, lines in sorted(files, key=lambda file: not file[1].endswith("_json")):
        context = Context(cluster=cluster, mtime=MODIFIED, almanac=found)
        done.append((name, context.tally, list(detect.PARSERS[kind](name, lines, context))))
    covers = _covers([row for _, _, rows in done for row in rows if row["source"] in ("broker", "qpid-cluster")], files)
    json_files = {name for name, kind, _ in files if kind.endswith("_json")}
    return [
        (name, tally, [row for row in rows if name in json_files or not covered(row, covers)])
        for name, tally, rows in done
    ]


def _covers(rows: list[Event], files: list[tuple[str, str, list[bytes]]]) -> list[Cover]:
    """Only what segments say; by the process."""
    segments = {name for name, kind, _ in files if kind == "broker_json"}
    times: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        if row["file"] in segments and row["kind"] != "torn":
            times.setdefault((row["node"], row["source"], row.get("proc", "")), []).append(row["ts_wall"])
    return [Cover(*key, min(found), max(found)) for key, found in times.items()]


def plain(row: Mapping[str, Any]) -> Event:
    """What is NULL is absent; maps as dictionaries."""
    found = {name: value for name, value in row.items() if value is not None}
    if "attrs" in found:
        found["attrs"] = dict(found["attrs"])
    return found


def table(engine: Engine, workspace: Workspace) -> list[Event]:
    workspace.load(engine, "events_raw")
    return in_order(engine.rows("select * from events_raw"))


def in_order(rows: Any) -> list[Event]:
    return sorted((plain(row) for row in rows), key=_key)


def _key(row: Event) -> tuple[str, int, bool, str]:
    """Of a torn line and what was appended to it, the torn one first."""
    return row["file"], row["line_no"], row["kind"] != "torn", json.dumps(row, sort_keys=True, default=str)
