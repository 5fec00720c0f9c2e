"""What goes to the workers of a cluster, and what README.md says about it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import spark_jobs
from spark_jobs import schema
from spark_jobs.engine import package
from spark_jobs.engine.session import settings
from tests.spark import standalone

README = Path(spark_jobs.__path__[0], "README.md")


def test_the_zip_is_the_package(tmp_path: Path) -> None:
    zipped = package.zipped(tmp_path / package.NAME)
    root = Path(spark_jobs.__path__[0])
    wanted = {f"spark_jobs/{path.relative_to(root).as_posix()}" for path in root.rglob("*.py")}
    with zipfile.ZipFile(zipped) as archive:
        names = archive.namelist()
    assert wanted <= set(names) and "spark_jobs/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_same_files_give_the_same_octets(tmp_path: Path) -> None:
    one, other = package.zipped(tmp_path / "a.zip"), package.zipped(tmp_path / "b.zip")
    assert one.read_bytes() == other.read_bytes()


def test_the_zip_is_written_by_a_program_and_can_be_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark_jobs.engine.package", "-o", package.NAME]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    program = "import spark_jobs.schema as s; print(s.__file__, len(s.COLUMNS))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": package.NAME}, check=True,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    place, columns = found.stdout.split()
    assert package.NAME in place and int(columns) == len(schema.COLUMNS)


def test_a_master_on_this_machine_is_reached_by_the_loopback() -> None:
    name = "spark.driver.bindAddress"
    hosts = ("127.0.0.1", "localhost", "master", "10.0.0.1")
    found = {host: settings(f"spark://{host}:7077", 4, None, {}).get(name) for host in hosts}
    assert found == {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "master": None, "10.0.0.1": None}


def test_shuffles_are_left_to_spark_if_its_cores_are_unknown() -> None:
    assert "spark.sql.shuffle.partitions" not in settings("yarn", None, None, {})
    assert settings("yarn", 12, None, {})["spark.sql.shuffle.partitions"] == "12"


def test_the_documented_jars_fit_the_bundled_client() -> None:
    if standalone.missing() == "no pyspark":
        pytest.skip("no pyspark: no jars")
    jars = [path.name for path in (standalone.spark_home() / "jars").glob("hadoop-client-api-*.jar")]
    bundled = [name.removeprefix("hadoop-client-api-").removesuffix(".jar") for name in jars]
    named = set(re.findall(r"org\.apache\.hadoop:hadoop-aws:([\w.]+)", README.read_text()))
    assert named == set(bundled), "README.md: --packages org.apache.hadoop:hadoop-aws:VERSION"
