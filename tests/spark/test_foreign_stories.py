"""Clusters of others, in four releases' words and three collectors' layouts: the answers, and no wrong word with any
of their files missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.schema import Event
from spark_jobs.solve import reconstruct
from spark_jobs.solve.signs import Facts, attr, is_done, is_fenced, subject
from tests.spark.foreign_stories import DIALECTS, STORIES, Foreign
from tests.spark.foreign_world import LAYOUTS
from tests.spark.test_foreign_bundle import said
from tests.spark.truth.reading import events, facts

Row = dict[str, Any]
Case = tuple[int, int, int]
"""Numbers of a story, a dialect and a layout."""
CASES: Final[tuple[Case, ...]] = tuple(
    (story, dialect, (story + dialect) % len(LAYOUTS))
    for story in range(len(STORIES))
    for dialect in range(len(DIALECTS))
)


@cache
def told(case: Case) -> Foreign:
    story, dialect, layout = case
    return STORIES[story](DIALECTS[dialect], LAYOUTS[layout])


@cache
def found(case: Case, names: frozenset[str] | None = None) -> tuple[list[Event], dict[str, list[Row]]]:
    """(facts, tables) of these files; None: all."""
    files = {name: lines for name, lines in told(case).cluster.files().items() if names is None or name in names}
    rows = facts(events(files))
    return rows, reconstruct.tables(rows, (), "made")


def named(case: Case) -> str:
    return f"{STORIES[case[0]].__name__} {DIALECTS[case[1]].name}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_answers(case: Case) -> None:
    story, (_, rows) = told(case), found(case)
    if story.type is None and STORIES[case[0]].__name__ == "migrated" and DIALECTS[case[1]].old:
        return  # to the second, what ended may have begun elsewhere later
    assert [row["type"] for row in rows["incidents"]] == ([story.type] if story.type else []), rows["incidents"]
    for row in rows["incidents"]:
        assert (row["old_primary"], row["new_primary"]) == (story.old, story.new), row["why"]
        assert all(text in row["why"] for text in story.says), row["why"]
    assert {row["resource"]: moved(row) for row in rows["resources"]} == dict(story.moves)
    assert {row["rule"] for row in rows["hints"]} >= set(story.hints)
    assert story.old or not rows["dual"]
    back = [row["end"] for row in rows["resources"] if row["end"] is not None]
    assert all(row["end"] >= end for row in rows["incidents"] for end in back)
    wrong(*found(case))


@pytest.mark.parametrize("case", [case for case in CASES if STORIES[case[0]].__name__ == "left_in_order"], ids=named)
def test_a_node_that_names_no_other_is_not_all_of_the_cluster(case: Case) -> None:
    mine = [name for name in told(case).cluster.files() if "n2" in name]
    for names in ([mine[0]], [mine[-1]], mine):
        _, tables = found(case, frozenset(names))
        assert [row["type"] for row in tables["incidents"]] == ["down"]
        assert "whether the other nodes went on" in tables["incidents"][0]["why"]


def moved(row: Row) -> tuple[str, str, str | None]:
    return row["what"], row["old_node"], row["new_node"]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_files_may_be_missing(data: st.DataObject) -> None:
    """The answer becomes weaker, and never wrong."""
    case = data.draw(st.sampled_from(CASES), label="case")
    names = sorted(told(case).cluster.files())
    kept = data.draw(st.sets(st.sampled_from(names), min_size=1), label="kept")
    story, (rows, tables) = told(case), found(case, frozenset(kept))
    weaker = {story.type, "unknown", *(("moved",) if story.moves else ())}
    weaker |= {"fencing"} if any(map(is_fenced, found(case)[0])) else set()  # where no log here knows of a primary
    for row in tables["incidents"]:
        assert row["type"] in weaker, row["why"]
        assert row["old_primary"] in (story.old, None) and row["new_primary"] in (story.new, None), row
    for row in tables["resources"]:
        if row["what"] == "stopped" and (row["resource"], row["old_node"]) in story.ended:
            continue
        true = story.moves.get(row["resource"], ("", "", None))
        assert row["old_node"] == true[1] and row["new_node"] in (true[2], None), row
        assert row["what"] in (true[0], "stopped"), row
    assert all(row["verdict"] != "certain" for row in tables["dual"])
    assert not [text for text in said(tables) if any(words in text for words in story.never)]
    wrong(rows, tables)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_one_file_more_is_never_worse(data: st.DataObject) -> None:
    """What was found without it is found with it."""
    case = data.draw(st.sampled_from(CASES), label="case")
    names = set(told(case).cluster.files())
    more = data.draw(st.sampled_from(sorted(names)), label="more")
    kept = frozenset(data.draw(st.sets(st.sampled_from(sorted(names - {more})), min_size=1), label="kept"))
    story, (_, less), (_, all_) = told(case), found(case, kept), found(case, kept | {more})
    if story.type in {row["type"] for row in less["incidents"]}:
        assert story.type in {row["type"] for row in all_["incidents"]}
    assert moves(less) & story.moves.items() <= moves(all_)


def moves(tables: dict[str, list[Row]]) -> set[tuple[str, tuple[str, str, str | None]]]:
    return {(row["resource"], moved(row)) for row in tables["resources"]}


# ---- words, and the rows that could say otherwise -------------------------------------------------------------------

Wrong = Callable[[Sequence[Event], str], Iterable[Event]]
DENIALS: Final[tuple[tuple[str, Wrong], ...]] = (
    (r"no log here asks for fencing()", lambda rows, _: filter(speaks_of_fencing, rows)),
    (r"(\S+) was never reported as fenced", lambda rows, name: (e for e in rows if is_fenced(e) and e["peer"] == name)),
    (
        r"node (\S+) was to be fenced, and no log here says that it was",
        lambda rows, name: (e for e in rows if is_fenced(e) and e["peer"] == name),
    ),
    (r"no log here shows (?:a promotion|that another)()", lambda rows, _: (e for e in rows if is_done(e, "promote"))),
    (r"no log here says who asked()", lambda rows, _: (e for e in rows if e.get("planned"))),
    (r"no line here says that anything had failed()", lambda rows, _: filter(is_trouble, rows)),
    (r"no log here shows a failure()", lambda rows, _: filter(is_trouble, rows)),
    (r"no line here says when (n\d) ended", lambda rows, name: (e for e in rows if ends(e, name))),
    (r"no line here says since when (n\d) was primary", lambda rows, name: (e for e in rows if asks(e, name))),
    (r"no log here says whether (n\d)(?:, n\d)* went on", lambda rows, name: after_the_stops(rows, name)),
)


def speaks_of_fencing(event: Event) -> bool:
    kinds = ("will_fence", "fence_request", "fence_delay", "fence_op_done", "fence_notify", "self_fenced", "fence_wait")
    return event["kind"] in kinds or (event["kind"], attr(event, "task")) == ("plan", "fence")


def is_trouble(event: Event) -> bool:
    kinds = ("token_lost", "leave_missed", "daemon_exit", "sched_failed_op", "op_unexpected", "sbd_reset", "sbd_late")
    gone = event.get("new") == "lost" or attr(event, "left") != "" or event.get("result") == "not running"
    return event["kind"] in kinds or gone or speaks_of_fencing(event)


def ends(event: Event, node: str) -> bool:
    return subject(event) == node and (is_fenced(event) or is_done(event, "demote"))


def asks(event: Event, node: str) -> bool:
    return event["kind"] == "initiate" and attr(event, "task") == "promote" and subject(event) == node


def after_the_stops(rows: Sequence[Event], node: str) -> Iterable[Event]:
    last = max((row["ts_hi"] for row in rows if row["kind"] in ("stop_request", "stopped")), default=0)
    return (row for row in rows if row.get("node") == node and row["ts_lo"] > last)


def wrong(rows: Sequence[Event], tables: dict[str, list[Row]]) -> None:
    """Fails if a text denies what a row says, or speaks of a primary where none is known."""
    begin = min((row["begin"] for row in tables["incidents"]), default=0)
    for text in said(tables):
        for pattern, against in DENIALS:
            for match in re.finditer(pattern, text):
                said_otherwise = [event for event in against(rows, match[1]) if event["ts_lo"] >= begin]
                assert not said_otherwise, (text, said_otherwise[0])
        if not Facts.of(rows).has_primary:
            plain = text.replace("which node was the primary", "").replace("knows of a primary", "")
            assert "broker" not in plain and "primary" not in plain, text
    for row in tables["resources"]:
        again = (e for e in rows if is_done(e, "start") and attr(e, "resource") == row["resource"])
        assert row["what"] != "stopped" or not [e for e in again if e["ts_lo"] > row["begin"]], row
