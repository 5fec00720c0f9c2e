"""Made logs as files on disk, and what the whole pipeline says about them: ingest, all jobs, the JSON of the report."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from spark_jobs import pipeline
from spark_jobs.engine.base import Engine
from spark_jobs.report import files as report_files
from spark_jobs.workspace import Workspace
from tests.spark.truth.reading import MODIFIED
from tests.spark.truth.world import Files

Answer = dict[str, Any]
SETTINGS = pipeline.Settings(zones={"*": "UTC"}, reference="node3")


def folder(files: Files, place: Path, order: random.Random | None = None, packed: bool = False) -> str:
    """The files, created in this order; `packed`: each as .gz."""
    for name in _shuffled(files, order):
        path = place / (f"{name}.gz" if packed else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = b"".join(files[name])
        path.write_bytes(gzip.compress(content) if packed else content)
        os.utime(path, (MODIFIED / 1e6, MODIFIED / 1e6))
    return str(place)


def tarball(files: Files, place: Path, order: random.Random | None = None) -> str:
    """A .tar.gz of them, in this order."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / "in.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in _shuffled(files, order):
            content = b"".join(files[name])
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), MODIFIED // 1_000_000
            tar.addfile(member, io.BytesIO(content))
    return str(path)


def _shuffled(files: Files, order: random.Random | None) -> list[str]:
    return list(files) if order is None else order.sample(sorted(files), len(files))


def answer(engine: Engine, inputs: Iterable[str], place: Path, settings: pipeline.Settings = SETTINGS) -> Answer:
    """name -> text of every JSON file of the report; `place` keeps the workspace, for another run."""
    workspace = Workspace(str(place / "out" / "work"))
    failed = pipeline.run(engine, workspace, list(inputs), settings)
    assert failed == []
    written = report_files.write(engine, workspace, place / "out", formats=("json",))
    return {path.name: path.read_text() for path in written}


def parsed(found: Answer) -> Answer:
    return {name: json.loads(text) for name, text in found.items()}


def bare(value: Any) -> Any:
    """Without places (file and line), and what was read: both differ when a file is split."""
    if isinstance(value, dict):
        kept = {name: bare(item) for name, item in value.items() if not _is_place(name)}
        return dict(sorted(kept.items()))
    if isinstance(value, list):
        return [bare(item) for item in value]
    return value


def _is_place(name: str) -> bool:
    names = ("evidence", "file", "line_no", "place", "ingest", "raw", "also")
    return name in names or name.endswith(("_file", "_line"))


def clusters(variants: Mapping[str, Files]) -> Files:
    """Each of them a cluster of its own in one input: name -> files of cluster `made`."""
    return {
        f"{cluster}/{name}": [_of_cluster(line, cluster) if ".jsonl" in name else line for line in lines]
        for cluster, files in variants.items()
        for name, lines in files.items()
    }


def _of_cluster(line: bytes, cluster: str) -> bytes:
    return line.replace(b'"cluster": "made"', f'"cluster": "{cluster}"'.encode(), 1)


def tables(
    engine: Engine, files: Files, place: Path, *names: str, settings: pipeline.Settings = SETTINGS
) -> dict[str, list[dict[str, Any]]]:
    """Tables of the workspace after all jobs; `events` are the facts on one axis."""
    workspace = Workspace(str(place / "work"))
    assert pipeline.run(engine, workspace, [folder(files, place / "in")], settings) == []
    workspace.load(engine, *names)
    return {name: engine.rows(f"select * from {name}") for name in names}


def thinned(files: Files, seed: int, share: float, where: Callable[[str], bool] = lambda _: True) -> Files:
    """Without a share of the lines of the files that are chosen."""
    chance = random.Random(seed)
    return {
        name: [line for line in lines if chance.random() >= share] if where(name) else lines
        for name, lines in sorted(files.items())
    }
