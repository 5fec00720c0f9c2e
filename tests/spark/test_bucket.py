"""Logs, tables and documents in a bucket: s3a:// is used for what it is, not only documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark import bucket, standalone
from tests.spark.truth import processes
from tests.spark.watch_world import Fleet


@pytest.fixture
def endpoint() -> Any:
    pytest.importorskip("moto.server", reason="the package moto is not installed")
    if reason := standalone.missing():
        pytest.skip(reason)
    with bucket.served() as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_watch_maintain_and_fleet_in_a_bucket(endpoint: str, tmp_path: Path) -> None:
    client = bucket.client(endpoint)
    client.create_bucket(Bucket=bucket.BUCKET)
    fleet = Fleet(tmp_path)
    fleet.lay(processes.kill(), "blue")
    for file in filter(Path.is_file, fleet.raw.rglob("*")):
        client.put_object(Bucket=bucket.BUCKET, Key=f"raw/{file.relative_to(fleet.raw)}", Body=file.read_bytes())
    work = f"s3a://{bucket.BUCKET}/work"
    done = bucket.run(
        endpoint,
        ["watch", f"s3a://{bucket.BUCKET}/raw", "-o", str(fleet.out), "--work", work, "--table-format", "delta"],
        ["maintain", str(fleet.out), "--work", work, "--snapshots", "0s"],
        ["fleet", work, "-o", str(tmp_path / "fleet.json")],
    )
    if any(text in done.stderr + done.stdout for text in bucket.UNREACHED):
        pytest.skip("hadoop-aws cannot be fetched from Maven's repository")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "blue: process died, node1 → node2, 148 ms" in done.stdout and "files joined" in done.stdout
    told = json.loads((fleet.out / "incident-1.json").read_text())
    fleet.at_once()
    wanted = json.loads((tmp_path / "at-once/incident-1.json").read_text())
    assert {**told, "workspace": ""} == {**wanted, "workspace": ""}
    found = client.list_objects_v2(Bucket=bucket.BUCKET, Prefix="work/incidents/cluster=blue/date=2026-06-01/")
    assert sum(item["Key"].endswith(".parquet") for item in found["Contents"]) == 1
    assert "blue" in (tmp_path / "fleet.json").read_text()
