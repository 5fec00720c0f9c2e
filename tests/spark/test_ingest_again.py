"""Repeated runs: nothing twice, nothing lost, whatever happened to the files in between."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.bundle import BundleError
from spark_jobs.engine.base import Engine
from spark_jobs.ingest import job as ingest
from spark_jobs.ingest.given import IngestError
from spark_jobs.ingest.job import Ingested
from spark_jobs.ingest.local import IngestSettings
from spark_jobs.workspace import Workspace
from tests.spark.ingest_world import odd_file, table
from tests.support.slow import both_engines, mostly_slow

SECOND = 1_000_000
BEGIN = 1_790_000_000_000_000


def line(number: int, proc: str = "p:1", **more: Any) -> bytes:
    event = {
        "cluster": "made", "node": "node1", "source": "client", "proc": proc, "seq": number,
        "ts_wall": BEGIN + number * SECOND, "kind": "publish", "msg_id": f"{proc}:{number}", **more,
    }  # fmt: skip
    return json.dumps(event).encode() + b"\n"


class Place:
    """A folder of logs and a workspace."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.logs, self.workspace = engine, folder / "logs", Workspace(str(folder / "work"))
        self.logs.mkdir()
        self._turn = 0

    def write(self, name: str, *lines: bytes, folder: Path | None = None) -> Path:
        path = (folder or self.logs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        self._turn += 1
        os.utime(path, ns=(0, (BEGIN + self._turn * SECOND) * 1000))
        return path

    def run(self, *inputs: str | Path, **settings: Any) -> Ingested:
        return ingest.run(
            self.engine, self.workspace, [str(one) for one in inputs or [self.logs]], IngestSettings(**settings)
        )

    def rows(self) -> list[dict[str, Any]]:
        return table(self.engine, self.workspace)

    def keys(self) -> list[tuple[str, int]]:
        return [(row["file"], row["line_no"]) for row in self.rows()]

    def faults(self) -> list[dict[str, Any]]:
        self.workspace.load(self.engine, "faults")
        return self.engine.rows("select * from faults order by file, line_no, value, wanted")

    def files(self) -> dict[str, dict[str, Any]]:
        self.workspace.load(self.engine, "files")
        return {row["name"]: row for row in self.engine.rows("select * from files")}


@pytest.fixture
def place(duck: Engine, tmp_path: Path) -> Place:
    return Place(duck, tmp_path)


@pytest.fixture
def places(engine: Engine, tmp_path: Path) -> Place:
    """With each engine."""
    return Place(engine, tmp_path)


def fresh(place: Place, tmp_path: Path, *inputs: str | Path) -> list[dict[str, Any]]:
    """What one run over the files as they are now gives."""
    workspace = Workspace(str(tmp_path / "fresh"))
    ingest.run(place.engine, workspace, [str(one) for one in inputs or [place.logs]])
    return table(place.engine, workspace)


def test_a_segment_grows(places: Place, tmp_path: Path):
    places.write("c-0001.jsonl.open", line(1), line(2), line(3)[:25])
    assert places.run().added == 3
    assert [row["kind"] for row in places.rows()] == ["publish", "publish", "torn"]
    places.write("c-0001.jsonl.open", line(1), line(2), line(3), line(4))
    done = places.run()
    assert (done.added, done.events, done.changed) == (1, 4, True)
    assert [row["kind"] for row in places.rows()] == ["publish"] * 4
    assert places.files()["c-0001.jsonl"]["state"] == "open"
    (places.logs / "c-0001.jsonl.open").rename(places.logs / "c-0001.jsonl")
    done = places.run()
    assert (done.added, done.events) == (0, 4)
    assert places.keys() == [("c-0001.jsonl", number) for number in (1, 2, 3, 4)]
    assert places.files()["c-0001.jsonl"]["state"] == "read"
    assert places.rows() == fresh(places, tmp_path)


@pytest.mark.slow
def test_a_segment_grows_below_a_url(spark: Engine, tmp_path: Path):
    place = Place(spark, tmp_path)
    place.write("c-0001.jsonl.open", line(1), line(2)[:25])
    place.write("node1.log", text(1), text(2))
    url = f"file://{place.logs}"
    assert place.run(url).added == 4
    place.write("c-0001.jsonl.open", line(1), line(2), line(3))
    place.write("c-0002.jsonl.open", line(1, "p:2")[:25])
    assert (place.run(url).added, place.run(url).changed) == (2, False)
    assert [row["kind"] for row in place.rows()] == ["publish"] * 3 + ["torn"] + ["state"] * 2
    place.write("node1.log", text(1), text(2), text(3))  # its rows share a Parquet file with nothing else now
    place.write("c-0002.jsonl.open", line(1, "p:2"))
    assert place.run(url).added == 1
    assert place.rows() == fresh(place, tmp_path, url)


@pytest.mark.parametrize("seed", mostly_slow(range(12), 4))
def test_growing_files_of_any_lines(place: Place, tmp_path: Path, seed: int):
    """Cut anywhere, the same rows and counts come as from the whole."""
    data = line(1) + odd_file(seed, 60)
    chance = random.Random(seed)
    for cut in sorted(chance.sample(range(len(data)), 4)):
        place.write("c-0001.jsonl", data[:cut])
        if cut > 20:
            place.run()
    place.write("c-0001.jsonl", data)
    place.run()
    found, counted, faults = place.rows(), place.files(), place.faults()
    assert found == fresh(place, tmp_path)
    other = Place.__new__(Place)
    other.engine, other.workspace = place.engine, Workspace(str(tmp_path / "fresh"))
    assert counted == other.files()
    assert faults == other.faults()


def test_faults_of_an_unfinished_line_are_not_named_twice(place: Place):
    wrong = line(2, term="high")
    place.write("c.jsonl.open", line(1), wrong[:-1])
    place.run()
    assert [(row["line_no"], row["value"]) for row in place.faults()] == [(2, "term='high'")]
    place.write("c.jsonl.open", line(1), wrong, line(3, term="low"))
    place.run()
    assert [row["line_no"] for row in place.faults()] == [2, 3]
    assert place.files()["c.jsonl"]["faulty"] == 2


def test_a_segment_with_another_name_or_packed_or_twice_is_known(place: Place):
    place.write("c-0001.jsonl", line(1), line(2))
    place.run()
    place.write("kept/c.jsonl.gz", gzip.compress(line(1) + line(2) + line(3)))
    (place.logs / "c-0001.jsonl").unlink()
    assert place.run().added == 1
    assert place.keys() == [("c-0001.jsonl", number) for number in (1, 2, 3)]
    place.write("copy.jsonl", line(1))
    assert place.run().added == 0
    assert place.files()["copy.jsonl"]["state"] == "copy"
    assert place.files()["copy.jsonl"]["why"] == "the same as c-0001.jsonl"


@both_engines
def test_a_segment_that_is_doubled_without_its_head_counts_once(places: Place):
    places.write("c.jsonl", *map(line, range(1, 7)))
    places.write("kept/c.jsonl", line(3)[40:], *map(line, range(4, 9)))  # cut in the middle of a line, and newer
    whole = [("c.jsonl", number) for number in range(1, 7)]
    assert places.run().events == 8
    assert places.keys() == [*whole, ("kept/c.jsonl", 5), ("kept/c.jsonl", 6)]
    assert places.files()["kept/c.jsonl"]["covered"] == 3
    assert places.run().changed is False


def test_what_is_doubled_later_counts_once(place: Place):
    place.write("c.jsonl", *map(line, range(1, 5)))
    place.run()
    place.write("tail.jsonl", line(3), line(4)[:-1])  # its last line has no end
    assert place.run().added == 0
    place.write("c.jsonl", *map(line, range(1, 7)))
    place.write("tail.jsonl", *map(line, range(3, 7)))
    assert place.run().added == 2
    assert sorted(row["seq"] for row in place.rows()) == [1, 2, 3, 4, 5, 6]
    assert place.files()["tail.jsonl"]["covered"] == 4


def test_two_processes_in_a_doubled_file_lose_nothing(place: Place):
    """Of the second one both files have all, and the copy's name comes first."""
    whole = [*map(line, range(1, 5)), *(line(number, "p:2") for number in range(1, 4))]
    place.write("b.jsonl", *whole)
    place.write("a.jsonl", *whole[2:])
    assert place.run().events == 7
    assert sorted((row["proc"], row["seq"]) for row in place.rows()) == [
        *(("p:1", number) for number in range(1, 5)),
        *(("p:2", number) for number in range(1, 4)),
    ]


def test_a_process_that_counts_again_from_one_loses_nothing(place: Place):
    place.write("a.jsonl", *map(line, range(1, 5)))
    place.write("b.jsonl", *(line(number, ts_wall=BEGIN + (100 + number) * SECOND) for number in range(2, 5)))
    assert place.run().events == 7 == len(place.rows())


def test_another_segment_under_a_known_name_loses_nothing(place: Place):
    place.write("c.jsonl", line(1), line(2))
    place.run()
    place.write("c.jsonl", line(1, "p:2"))
    assert place.run().added == 1
    assert place.keys() == [("c.jsonl", 1), ("c.jsonl", 2), ("logs/c.jsonl", 1)]
    assert place.run().changed is False


def test_files_that_are_gone_keep_their_rows(places: Place):
    places.write("a.jsonl", line(1))
    places.write("node1.log", text(1))
    places.run()
    shutil.rmtree(places.logs)
    places.write("b.jsonl", line(1, "p:2"))
    assert places.run().events == 3
    assert places.keys() == [("a.jsonl", 1), ("b.jsonl", 1), ("node1.log", 1)]


# ---- text logs ------------------------------------------------------------------------------------------------------


def text(number: int, new: str = "ready") -> bytes:
    """A broker's line, BEGIN + number s."""
    moment = datetime.fromtimestamp(BEGIN // SECOND + number, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} [HA] notice: c0a3b9db({new}) catchup -> {new}: it is {number}\n".encode()


def test_a_text_log_grows_and_is_rotated(places: Place):
    places.write("node1.log", text(1), text(2)[:30])
    assert places.run().added == 2
    places.write("node1.log", text(1), text(2), text(3))
    assert places.run().added == 1
    assert [row["kind"] for row in places.rows()] == ["state"] * 3
    (places.logs / "node1.log").rename(places.logs / "node1.log.1")
    places.write("node1.log", text(4))
    assert places.run().added == 1
    assert places.keys() == [("node1.log", 1), *(("node1.log.1", number) for number in (1, 2, 3))]
    assert {row["node"] for row in places.rows()} == {"node1"}


def broker(number: int, node: str = "node1", **more: Any) -> bytes:
    return line(number, f"qpidd:{node}", **{"node": node, "source": "broker", "kind": "state", "msg_id": None, **more})


def test_text_rows_that_segments_cover_are_left_out(places: Place):
    places.write("node1.log", text(2), text(40))
    places.write("node2.log", text(2))
    assert places.run().events == 3
    places.write("events/node1-0001.jsonl", broker(1), broker(5))
    done = places.run()
    assert (done.added, done.events) == (1, 4)
    assert places.keys() == [("events/node1-0001.jsonl", 1), ("events/node1-0001.jsonl", 2), ("node1.log", 2),
                             ("node2.log", 1)]  # fmt: skip
    assert {name: row["covered"] for name, row in places.files().items() if row["covered"]} == {"node1.log": 1}


def test_a_log_that_names_no_node_is_covered_by_the_brokers_id(place: Place):
    place.write("var/log/qpidd.log", text(2))
    place.write("node1-0001.jsonl", broker(1, kind="start", attrs={"broker_id": "c0a3b9db" + "0" * 24}), broker(5))
    assert place.run().events == 2


def test_the_time_between_two_processes_is_not_covered(place: Place):
    place.write("node1.log", text(2), text(20), text(32))
    place.write("node1-0001.jsonl", broker(1), broker(5))
    place.write("node1-0002.jsonl", line(30, "qpidd:2", node="node1", source="broker", kind="state"),
                line(35, "qpidd:2", node="node1", source="broker", kind="state"))  # fmt: skip
    place.run()
    assert [row["line_no"] for row in place.rows() if row["file"] == "node1.log"] == [2]


def test_zones_are_used_for_brokers_own_logs(place: Place):
    place.write("node1.log", text(1))
    place.write("node2.log", text(1))
    place.run(zones={"node1": "+02:00", "*": "UTC"})
    assert [row["ts_wall"] - BEGIN for row in place.rows()] == [-7200 * SECOND + SECOND, SECOND]


# ---- several inputs -------------------------------------------------------------------------------------------------


def test_inputs_with_the_same_names_inside_are_told_apart(places: Place, tmp_path: Path):
    for node in ("node1", "node2"):
        places.write("qpidd.log", text(1), folder=tmp_path / "in" / node)
    both = tmp_path / "in/node2", tmp_path / "in/node1"
    assert places.run(*both).events == 2
    assert [(row["file"], row["node"]) for row in places.rows()] == [
        ("node1/qpidd.log", "node1"), ("node2/qpidd.log", "node2")
    ]  # fmt: skip
    assert places.run(*reversed(both)).changed is False


def test_single_files_of_the_same_name(place: Place, tmp_path: Path):
    paths = [place.write("qpidd.log", text(1), folder=tmp_path / node / "log") for node in ("node1", "node2")]
    place.run(*paths)
    assert [(row["file"], row["node"]) for row in place.rows()] == [
        ("node1/log/qpidd.log", "node1"), ("node2/log/qpidd.log", "node2")
    ]  # fmt: skip


def test_an_input_that_comes_later_does_not_rename_the_first(place: Place, tmp_path: Path):
    place.write("qpidd.log", text(1), folder=tmp_path / "node1")
    place.write("qpidd.log", text(1), folder=tmp_path / "node2")
    place.run(tmp_path / "node1")
    place.run(tmp_path / "node1", tmp_path / "node2")
    assert place.keys() == [("qpidd.log", 1), ("node2/qpidd.log", 1)][::-1]


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        ({"a/e.jsonl": "x", "a/node1.log": "", "b/e.jsonl": "y", "b/c/node1.log": ""}, {}, ["x", "y"]),
        ({"e.jsonl": "x", "deep/down/node1.log": ""}, {}, ["x"]),
        ({"a/e.jsonl": "x", "b/e.jsonl": "y", "node1.log": ""}, {}, ["logs"]),
        ({"node1.log": ""}, {}, ["logs"]),
        ({"cluster=z/a/node1.log": "", "e.jsonl": "x"}, {}, ["z"]),
        ({"e.jsonl": "x", "node1.log": ""}, {"cluster": "said"}, ["said"]),
    ],
)
def test_clusters_of_those_who_name_none(place: Place, names, settings, expected):
    for name, cluster in names.items():
        place.write(name, line(1, name, cluster=cluster) if cluster else text(1))
    place.run(**settings)
    found = {row["file"]: row["cluster"] for row in place.rows()}
    assert [found[name] for name in sorted(found) if name.endswith(".log")] == expected


def test_logs_of_several_nodes_without_any_name_are_one_cluster(place: Place, tmp_path: Path):
    paths = [place.write(f"{node}.log", text(1), folder=tmp_path / "in") for node in ("node1", "node2")]
    place.run(*paths)
    assert {row["cluster"] for row in place.rows()} == {"cluster"}


# ---- what is wrong --------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_listed(places: Place):
    places.write("a.jsonl", line(1))
    places.write("photo.png", b"\x89PNG\r\n\0\0\0")
    places.write("cut.jsonl.gz", gzip.compress(b"".join(line(n, "p:3") for n in range(1, 400)))[:-40])
    places.write("broken.log.gz", b"\x1f\x8b\x08\0damaged")
    (places.logs / "link.log").symlink_to("a.jsonl")
    done = places.run()
    states = {name: row["state"] for name, row in places.files().items()}
    assert states == {
        "a.jsonl": "read", "photo.png": "other", "cut.jsonl": "damaged", "broken.log.gz": "refused",
        "link.log": "refused",
    }  # fmt: skip
    assert [name for name, _ in done.refused] == ["broken.log.gz", "cut.jsonl", "link.log"]
    assert 300 < places.files()["cut.jsonl"]["events"] < 400
    assert places.run().changed is False


@pytest.mark.parametrize("name", ["absent", "absent.tar.gz"])
def test_an_input_that_is_not_there(place: Place, tmp_path: Path, name: str):
    with pytest.raises(BundleError, match=f"{name}: cannot be read: No such file"):
        place.run(tmp_path / name)


def test_an_input_without_logs(place: Place):
    place.write("a.yaml", b"x: 1\n")
    with pytest.raises(IngestError, match=r"logs: nothing that can be read \(a\.yaml: no log that we know\)"):
        place.run()
    with pytest.raises(IngestError, match="no input, wanted at least one"):
        ingest.run(place.engine, place.workspace, [])


def test_urls_that_are_not_there(spark: Engine, tmp_path: Path):
    with pytest.raises(IngestError, match=r"file:///.*/absent: there is nothing"):
        Place(spark, tmp_path).run(f"file://{tmp_path}/absent")


def test_duckdb_reads_no_object_stores(place: Place):
    with pytest.raises(IngestError, match=r"s3a://bucket/x: DuckDB reads this machine's files only"):
        place.run("s3a://bucket/x")


def test_duckdb_takes_urls_of_files(place: Place):
    place.write("a.jsonl", line(1))
    assert place.run(f"file://{place.logs}").events == 1


def test_what_a_run_left_that_was_cut_off_is_removed(place: Place, tmp_path: Path):
    place.write("a.jsonl", line(1))
    place.run()
    events = Path(place.workspace.path("events_raw"))
    (part,) = events.glob("*.parquet")
    shutil.copy(part, events / "r00002-clients-0.parquet")
    assert len(place.rows()) == 2
    place.run()
    assert len(place.rows()) == 1


def test_parquet_that_is_a_table_of_events_is_read_where_it_lies(places: Place, tmp_path: Path):
    places.write("a.jsonl", line(1), line(2))
    places.run()
    given = tmp_path / "given"
    places.engine.save("select * from events_raw", str(given))
    other = Place.__new__(Place)
    other.engine, other.workspace = places.engine, Workspace(str(tmp_path / "other"))
    assert other.run(given).events == 2
    assert other.run(given).changed is False
    assert other.rows() == places.rows()
    places.write("b.jsonl", line(1, "p:9"), folder=tmp_path / "more")
    assert other.run(given, tmp_path / "more").events == 3
    assert len(other.rows()) == 3
    assert other.files()["given"]["state"] == "given"


def test_parquet_of_something_else(place: Place, tmp_path: Path):
    place.engine.save("select 1 as kind", str(tmp_path / "other"))
    with pytest.raises(IngestError, match="other: not a table of events: it lacks the columns attrs, boot_id"):
        place.run(tmp_path / "other")


def test_progress_ends_at_the_end(place: Place):
    place.write("a.jsonl", line(1))
    place.write("node1.log", text(1))
    seen: list[Sequence[int]] = []
    ingest.run(place.engine, place.workspace, [str(place.logs)], progress=lambda *at: seen.append(at))
    assert seen[-1][0] == seen[-1][1] == sum(path.stat().st_size for path in place.logs.iterdir())
    assert all(done <= total for done, total in seen)
