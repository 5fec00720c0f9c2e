"""Documents of incidents as `failover-report report` writes them, made from the stories or by chance."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_jobs.solve.phases import NAMES
from tests.spark.truth.reading import events, facts
from tests.spark.truth.story import Story

Document = dict[str, Any]
DAY = 86_400_000_000
START = 1_780_315_200_000_000
"""us: 2026-06-01 12:00:00 UTC"""


def of_story(story: Story, cluster: str = "made") -> Iterator[Document]:
    """What is in a document of the fleet's interest."""
    found = story.rows()
    last = max(row["ts_est"] for row in facts(events(story.files, **story.options)))
    for incident in found["incidents"]:
        mine = {name: _of(incident["incident"], found[name]) for name in ("phases", "dual")}
        yield {"incident": {**incident, "cluster": cluster}, **mine, "observed": {"begin": 0, "end": last}}


def _of(incident: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["incident"] == incident]


def made(
    number: int, seed: int = 0, cluster: str = "c1", slower: float = 1.0, version: str = "1.0", **more: Any
) -> Document:
    """A kill, `number` days after START; promotion takes about 150 ms, times `slower`."""
    chance = random.Random(f"{seed} {number}")
    begin = START + number * DAY
    lengths = {name: round(chance.lognormvariate(11.9, 0.25)) for name in NAMES}
    lengths["promotion"] = round(lengths["promotion"] * slower)
    end = begin + sum(lengths[name] for name in ("detection", "decision", "promotion"))
    ends = dict.fromkeys(NAMES, begin) | {"promotion": end, "recovering": end + lengths["recovering"]}
    ends |= {"redundancy": end + lengths["redundancy"]}
    phases = [_phase(name, ends[name], lengths[name]) for name in NAMES]
    margin = round(chance.gauss(80, 20), 3)
    dual = {"margin_ms": margin, "margin_lo_ms": margin - 2, "margin_hi_ms": margin + 2, "verdict": "excluded"}
    incident = {
        "cluster": cluster, "incident": f"{seed:04x}{number:08x}", "type": "kill", "begin": begin, "end": end,
        "planned": False, "failover": True, "old_primary": "n1", "new_primary": "n2", "dual": "excluded",
    }  # fmt: skip
    total = {"attempts": 100, "confirmed": 90, "lost": 0, "unmarked": 0, "unaccounted": 2}
    document = {
        "format": "failover-report 1.0", "number": 1, "cluster": cluster, "incident": incident, "phases": phases,
        "dual": [dual], "outage_union": {"any_down": 200_000, "ts_begin": begin, "ts_end": begin + 200_000},
        "messages": {"total": total}, "observed": {"begin": begin - DAY, "end": end + DAY}, "versions": [version],
    }  # fmt: skip
    return document | more


def _phase(name: str, end: int, length: int) -> dict[str, Any]:
    """Known to 1 ms."""
    return {
        "phase": name, "known": True, "censored": False, "begin": end - length, "begin_lo": end - length - 500,
        "begin_hi": end - length + 500, "end": end, "end_lo": end - 500, "end_hi": end + 500,
        "duration_us": length, "duration_lo_us": length - 1000, "duration_hi_us": length + 1000,
    }  # fmt: skip


def never_recovered(number: int, **more: Any) -> Document:
    """Promoted, and never active; the logs end 30 s later."""
    document = made(number, **more)
    for row in document["phases"]:
        if row["phase"] in ("recovering", "redundancy", "path"):
            row |= {"known": False, "censored": True, "duration_us": None, "duration_lo_us": 30_000_000, "end": None}
            row |= {"duration_hi_us": None, "end_lo": None, "end_hi": None}
    document["incident"]["end"] = None
    return document


def write(folder: Path, documents: Mapping[str, Document]) -> Path:
    """Each as the incident of a report of its own."""
    for name, document in documents.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "incident-1.json").write_text(json.dumps(document))
        (folder / name / "report.json").write_text("{}")
    return folder
