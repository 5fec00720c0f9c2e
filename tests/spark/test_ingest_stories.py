"""Every way of reading gives the parsers' own rows: all stories' files, and odd ones."""

from __future__ import annotations

import dataclasses
import gzip
import tarfile
from pathlib import Path

import pytest

from spark_jobs.engine.base import Engine
from spark_jobs.ingest import job as ingest
from spark_jobs.parse.context import Tally
from spark_jobs.workspace import Workspace
from tests.spark.ingest_world import in_order, parsed, story_files, table, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("stories"), story_files())


@pytest.fixture(scope="module")
def truth(folder: Path):
    rows, tallies = parsed(folder)
    assert len({row["cluster"] for row in rows}) > 20 and len(rows) > 3000
    return in_order(rows), tallies


def agree(engine: Engine, place: Path, source: str, truth) -> None:
    rows, tallies = truth
    workspace = Workspace(str(place))
    done = ingest.run(engine, workspace, [source])
    assert table(engine, workspace) == rows
    counts = ("lines", "events", "unknown", "torn", "faulty", "continued", "dropped", "undated")
    workspace.load(engine, "files", "faults", "notes")
    found = {row["name"]: tuple(row[name] for name in counts) for row in engine.rows("select * from files")}
    assert found == {name: tuple(getattr(tally, name) for name in counts) for name, tally in tallies.items()}
    faults = {(f.file, f.line_no, f.value, f.wanted) for tally in tallies.values() for f in tally.faults}
    assert {tuple(row.values()) for row in engine.rows("select * from faults")} == faults
    assert (done.events, done.added, done.changed) == (len(rows), len(rows), True)
    again = ingest.run(engine, workspace, [source])
    assert (again.added, again.changed) == (0, False)
    assert table(engine, workspace) == rows


def test_a_folder(engine: Engine, folder: Path, tmp_path: Path, truth):
    agree(engine, tmp_path, str(folder), truth)


def test_a_url_in_tasks(spark: Engine, folder: Path, tmp_path: Path, truth):
    agree(spark, tmp_path, f"file://{folder}", truth)


def test_a_tarball_of_packed_files(duck: Engine, folder: Path, tmp_path: Path, truth):
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                packed = tmp_path / "one.gz"
                packed.write_bytes(gzip.compress(path.read_bytes()))
                member = archive.gettarinfo(packed, f"{path.relative_to(folder)}.gz")
                member.mtime = path.stat().st_mtime
                with packed.open("rb") as file:
                    archive.addfile(member, file)
    agree(duck, tmp_path / "work", str(tmp_path / "all.tar"), truth)


@pytest.mark.slow
def test_a_tarball_in_tasks(spark: Engine, folder: Path, tmp_path: Path, truth):
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in/all.tar.gz", "w:gz") as archive:
        archive.add(folder, ".")
    agree(spark, tmp_path / "work", f"file://{tmp_path}/in/all.tar.gz", truth)


def test_tallies_have_no_other_numbers():
    """Else a count would be missing above."""
    numbers = {field.name for field in dataclasses.fields(Tally) if field.type == "int"}
    assert numbers == {"lines", "events", "unknown", "torn", "faulty", "continued", "dropped", "undated"}
