"""Names, clusters and what is known again: decided from descriptions of files."""

from __future__ import annotations

import random

import pytest

from spark_jobs.ingest.plan import Found, head_of, inside, labels, plan
from spark_jobs.ingest.tables import State


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/srv/node1.tar.gz", "/srv/logs/"], ["node1", "logs"]),
        (["/a/x/logs", "/b/x/logs"], ["a/x/logs", "b/x/logs"]),
        (["/a/logs", "/b/logs.tgz"], ["a/logs", "b/logs"]),
        (["/a/logs", "/a/logs.tgz"], ["a/logs", "a/logs~2"]),
        (["/n1/qpidd.log", "/n2/qpidd.log"], ["n1/qpidd.log", "n2/qpidd.log"]),
        (["/a/p-0001.jsonl.open"], ["p-0001.jsonl"]),
        (["s3a://bucket/clusters/one", "hdfs://name/one"], ["clusters/one", "name/one"]),
        (["/"], ["input"]),
    ],
)
def test_labels(paths, expected):
    for order in (paths, paths[::-1]):
        found = labels(order)
        assert [found[path] for path in paths] == expected


def test_names_without_what_says_how_a_file_is_kept():
    assert inside("a/c-0001.jsonl.open", packed=False) == ("a/c-0001.jsonl", True)
    assert inside("a/c-0001.jsonl.open.gz", packed=True) == ("a/c-0001.jsonl", True)
    assert inside("pacemaker.log.2.gz", packed=True) == ("pacemaker.log.2", False)
    assert inside("not-packed.gz", packed=False) == ("not-packed.gz", False)


def test_heads():
    segment = b'{"source":"client","proc":"p","seq":1,"cluster":"c"}\n'
    head, named = head_of("client_json", [segment, b"torn"])
    assert head.startswith("s:") and named == "c"
    assert head_of("client_json", [segment, segment])[0] == head
    assert not head_of("client_json", [b'{"source":"client","kind":"ack"}\n'])[0].startswith("s:")
    assert head_of("client_json", [b'{"source":"cl']) == ("", "")
    assert head_of("pacemaker", [b"a\n"]) == head_of("pacemaker", [b"a\n", b"b\n"])
    # each is a moment of its own, and begins as all others do
    assert head_of("crm_mon", [b"<?xml?>\n", b"1\n"]) != head_of("crm_mon", [b"<?xml?>\n", b"2\n"])


def log(label: str, name: str, head: str = "h", **more) -> Found:
    return Found(label, name, "pacemaker", 1, 1, head, place=f"{label}:{name}", **more)


def test_the_order_of_what_was_found_does_not_matter():
    files = [log(label, name, f"{label}{name}") for label in ("x", "y") for name in ("a.log", "b.log", "c/a.log")]
    files += [Found("x", f"{n}.jsonl", "client_json", n, n, "s:same", "one", place=n) for n in (1, 2, 3)]
    wanted = plan(files, {})
    for seed in range(20):
        assert plan(random.Random(seed).sample(files, len(files)), {}) == wanted
    assert len({task.state.name for task in wanted}) == len(files)
    assert [task.state.name for task in wanted if task.todo == "lines"] == ["x/3.jsonl"]


def test_a_snapshot_that_took_the_place_of_another_does_not_replace_its_rows():
    before = {"crm.xml": State("crm.xml", "in", "in", "crm_mon", events=5, head="h1", mtime=1, size=9)}
    (task,) = plan([Found("in", "crm.xml", "crm_mon", 2, 9, "h2", place="x")], before)
    assert (task.todo, task.state.name, task.known) == ("text", "in/crm.xml", None)


def test_what_cannot_be_read_any_more_keeps_its_rows():
    before = {"a.log": State("a.log", "in", "in", "pacemaker", events=5, head="h", mtime=1, size=9)}
    (task,) = plan([Found("in", "a.log", "", 2, 9, why="Permission denied")], before)
    assert (task.todo, task.state.events, task.state.why) == ("keep", 5, "Permission denied")


def test_a_log_of_another_cluster_is_read_again():
    before = {"a.log": State("a.log", "in", "old", "pacemaker", head="h", mtime=1, size=1)}
    assert [task.todo for task in plan([log("in", "a.log")], before, "old")] == ["keep"]
    assert [task.todo for task in plan([log("in", "a.log")], before, "new")] == ["text"]
