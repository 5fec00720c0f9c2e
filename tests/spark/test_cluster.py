"""Everything once on a stand-alone cluster: spark-submit, and the program itself, give what DuckDB gives here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_jobs
from spark_jobs.engine import package
from tests.spark import standalone
from tests.spark.clients_log import segments
from tests.spark.truth import nodes, processes
from tests.spark.watch_world import Fleet

pytestmark = [
    pytest.mark.slow,  # four JVMs; the same tables in one: test_pipeline.py, the same octets: test_cli_report.py
    pytest.mark.skipif(bool(standalone.missing()), reason=f"{standalone.missing()}: no Spark cluster"),
    pytest.mark.timeout(900),
]
MESSAGES = 12_000
SMALL = {"spark.driver.maxResultSize": "1m", "spark.sql.autoBroadcastJoinThreshold": "100k"}
"""Their rows are some 10 MB: a driver that collects them fails."""
OPTIONS = ("--tz", "*=UTC", "--format", "json")
MAIN = Path(spark_jobs.__path__[0], "main.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standalone.Cluster]:
    with standalone.cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """What comes first: a partition with Pacemaker's logs, and clients who have written a lot."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    fleet.lay(nodes.partition(), "blue")
    for name, data in segments("red", MESSAGES).items():
        fleet.write(f"cluster=red/{name}", data)
    return fleet


def test_by_spark_submit(cluster: standalone.Cluster, fleet: Fleet) -> None:
    zipped = package.zipped(fleet.place / package.NAME)
    arguments = ("report", fleet.raw.as_uri(), "-o", str(fleet.out), *OPTIONS)
    done = standalone.submit(cluster.url, zipped, MAIN, *arguments, **SMALL)
    assert "partition" in done.stdout, done.stdout
    assert cluster.executors_of(cluster.applications()[-1]) == standalone.WORKERS
    assert fleet.found() == fleet.at_once()
    total = json.loads((fleet.out / "report.json").read_text())["messages"]["total"]
    assert (total["lost"], total["unaccounted"]) == (0, 1), "no broker's log says which clients there were"


def test_by_the_program_itself(cluster: standalone.Cluster, fleet: Fleet) -> None:
    """Into the same workspace, what has come meanwhile: only that is computed, and told."""
    fleet.lay(processes.kill(), "green")
    conf = [f"--conf={name}={value}" for name, value in {**standalone.CONF, **SMALL}.items()]
    command = ["watch", fleet.raw.as_uri(), "-o", str(fleet.out), "--tz", "*=UTC", "--master", cluster.url, *conf]
    program = [sys.executable, str(MAIN), *command]
    done = subprocess.run(program, env=standalone.environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "green: " in done.stdout, done.stdout
    assert fleet.found() == fleet.at_once()
