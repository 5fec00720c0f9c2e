"""However files are called, split or ordered: the same answer; less evidence never makes a verdict more certain."""

import pytest

from spark_jobs.solve.reconstruct import TABLES, tables
from tests.spark.truth import files, nodes, processes, watches
from tests.spark.truth.reading import events, facts
from tests.spark.truth.story import check

STORIES = [make for group in (processes, nodes, watches) for make in group.STORIES]
RANK = {"excluded": 2, "possible": 0, "certain": 2}


def bare(found):
    """Without the places, which differ when files are split."""
    return {name: [{key: row[key] for key in row if not is_place(key)} for row in rows] for name, rows in found.items()}


def is_place(key):
    return key in ("evidence", "file", "line_no") or key.endswith(("_file", "_line"))


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_order_of_files_and_lines_does_not_matter(make):
    story = make()
    found = story.rows()
    assert story.rows(files.shuffled(story.files, seed=1)) == found
    assert bare(story.rows(files.shuffled(story.files, seed=2, lines_too=True))) == bare(found)


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_order_of_facts_does_not_matter(make):
    story = make()
    rows = facts(events(story.files, **story.options))
    assert tables(reversed(rows), story.client_rows(), "made") == tables(rows, story.client_rows(), "made")


@pytest.mark.parametrize("make", [nodes.crash, nodes.partition], ids=lambda make: make.__name__)
def test_rotated_logs(make):
    story = make()
    rotated = files.rotated(story.files, "node3/pacemaker.log", 9)
    assert bare(story.rows(rotated)) == bare(story.rows())


@pytest.mark.parametrize("name", ["node2/events/node2-0001.jsonl", "node3/events/node3-0001.jsonl"])
def test_torn_last_line_is_said(name):
    story = processes.kill()
    found = story.rows(files.torn(story.files, name))
    assert f"{name} is torn at its end" in found["incidents"][0]["unknown"]
    check(story, found)


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_fewer_lines_never_make_a_verdict_more_certain(make):
    """The clocks are those of all lines: here the question is what is concluded from the rest."""
    story = make()
    rows = facts(events(story.files, **story.options))
    whole = verdicts(tables(rows, story.client_rows(), "made"))
    for seed in range(40):
        kept = files.thinned({"all": rows}, seed, 0.02 + seed % 4 * 0.15)["all"]
        for pair, verdict in verdicts(tables(kept, story.client_rows(), "made")).items():
            before = whole.get(pair)
            assert before is None or verdict == before or RANK[verdict] < RANK[before], (pair, before, verdict, seed)


def test_without_the_end_of_the_old_one_nothing_is_excluded():
    """What the test above would miss if thinning changed nothing."""
    story = processes.kill()
    rows = facts(events(story.files))
    kept = [row for row in rows if row["kind"] != "exit" and (row["kind"], row["node"]) != ("start", "node1")]
    (pair,) = tables(kept, (), "made")["dual"]
    assert (pair["verdict"], pair["margin_ms"]) == ("possible", None)
    assert pair["why"] == "no line here says when node1 ended"


def verdicts(found):
    return {(row["old_node"], row["new_node"]): row["verdict"] for row in found["dual"]}


def test_running_twice_gives_the_same_ids():
    one, other = (processes.kill().rows()["incidents"][0]["incident"] for _ in range(2))
    assert one == other
    assert len({make().rows()["incidents"][0]["incident"] for make in STORIES[:4]}) > 1


def test_id_does_not_depend_on_file_names():
    story = processes.kill()
    moved = {f"elsewhere/{name}": lines for name, lines in story.files.items()}
    assert story.rows(moved)["incidents"][0]["incident"] == story.rows()["incidents"][0]["incident"]


PYTHON = {"string": str, "bigint": int, "boolean": bool, "double": float, "array<string>": list}


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_rows_are_as_the_tables_are_declared(make):
    for name, rows in make().rows().items():
        for row in rows:
            assert row.keys() == TABLES[name].keys()
            assert all(value is None or type(value) is PYTHON[TABLES[name][key]] for key, value in row.items()), row
