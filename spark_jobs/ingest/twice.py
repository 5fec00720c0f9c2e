"""Rows that two segments have: a copy without its head, or two states of one file.

A copy that begins with the same line is known by it (`ingest.plan`) and not read.  Any other one is read, and then the
numbers of one process in two files overlap.  A row of the later file is left out if an earlier one has a row of the
same process, number, kind and time; so a process that counts anew loses nothing.  Logs without such an overlap cost
nothing here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from spark_jobs.engine.base import Engine, Row
from spark_jobs.ingest.tables import Catalog, Resume, State
from spark_jobs.schema import NAMES

_SAME: Final = ("source", "proc", "seq", "kind", "ts_wall")


def overlapping(states: Iterable[State]) -> list[Row]:
    """later, earlier: segments of one cluster and time that may have the same rows of `owner`, a process.  Of each
    process one segment is never the later one, so one row of it stays."""
    spans: dict[tuple[str, str, str], list[tuple[int, int, State]]] = defaultdict(list)
    for state in states:
        for proc, (first, last) in Resume.of(state.resume).seqs.items():
            spans[state.cluster, state.kind, proc].append((first, last, state))
    found: list[Row] = []
    for (_, _, proc), of in sorted(spans.items()):
        ordered = sorted(of, key=lambda span: (span[0], -span[1], span[2].name))
        for number, (first, _, state) in enumerate(ordered):
            found += [
                {"later": state.name, "earlier": other.name, "owner": proc}
                for _, last, other in ordered[:number]
                if last >= first and _at_one_time(other, state)
            ]
    return found


def _at_one_time(one: State, other: State) -> bool:
    times = (one.first_ts, one.last_ts, other.first_ts, other.last_ts)
    return None in times or (one.first_ts <= other.last_ts and other.first_ts <= one.last_ts)  # type: ignore[operator]


def drop(engine: Engine, place: str, catalog: Catalog, prefix: str) -> None:
    """Replaces the parts that hold such rows, and counts these as covered.  `place`: of events_raw."""
    pairs = overlapping(catalog.files.values())
    if not pairs:
        return
    engine.table("file_pairs", "later string, earlier string, owner string", pairs)
    _listed(engine, place, catalog.parts)
    known = ", ".join(f"a.{column}" for column in _SAME)
    same = "a.file = earlier and a.proc = owner"
    engine.view("rows_before", f"select distinct later, {known} from all_parts as a join file_pairs on {same}")
    parts = [
        new
        for number, part in enumerate(catalog.parts)
        for new in _without(engine, place, catalog, part, f"{prefix}-once-{number}")
    ]
    catalog.parts = parts
    _listed(engine, place, parts)
    rows = engine.rows(
        "select file, count(*) as n from all_parts where file in (select later from file_pairs) group by file"
    )
    kept = {row["file"]: row["n"] for row in rows}
    for name in {pair["later"] for pair in pairs}:
        state = catalog.files[name]
        catalog.files[name] = replace(state, covered=state.events - kept.get(name, 0))


def _listed(engine: Engine, place: str, parts: Sequence[str]) -> None:
    """The view `all_parts`: the folder may hold others, which do not count."""
    for number, part in enumerate(parts):
        engine.load(f"part_{number}", f"{place}/{part}")
    columns = ", ".join(("file", *_SAME))
    engine.view("all_parts", " union all ".join(f"select {columns} from part_{n}" for n in range(len(parts))))


def _without(engine: Engine, place: str, catalog: Catalog, part: str, prefix: str) -> list[str]:
    """The part, or what takes its place."""
    engine.load("part_before", f"{place}/{part}")
    same = " and ".join(f"b.{column} = p.{column}" for column in _SAME)
    joined = f"from part_before as p left join rows_before as b on b.later = p.file and {same}"
    if not engine.rows(f"select 1 as n {joined} where b.later is not null limit 1"):
        return [part]
    columns = ", ".join(f"p.{column}" for column in NAMES)
    made = engine.append(f"select {columns} {joined} where b.later is null", place, prefix)
    sharing = {file: state for file, state in catalog.files.items() if state.part == part}
    catalog.files |= {file: replace(state, part=made[0]) for file, state in sharing.items()}
    return made
