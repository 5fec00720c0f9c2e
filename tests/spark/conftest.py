"""One Spark session for all tests of a process: beginning one costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.session import context
from spark_jobs.engine.spark import SMALL, SparkEngine
from tests.spark import standalone


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """local[2]; ends with its JVM.  Without generated code and the JVM's second compiler: both take longer than our few
    rows (half of the processor time of a whole pipeline)."""
    if reason := standalone.no_java():
        pytest.skip(reason)
    options = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": standalone.QUICK,
    }
    from pyspark.sql import SparkSession

    begun = context("local[2]", shuffle=4, memory="2g", options=options)
    yield SparkSession.builder.getOrCreate()
    begun.stop()


@pytest.fixture
def spark(spark_session: Any) -> Iterator[SparkEngine]:
    engine = SparkEngine(spark_session.sparkContext)
    yield engine
    engine.close()


@pytest.fixture(params=[0, SMALL])
def spark_sized(spark_session: Any, request: pytest.FixtureRequest) -> Iterator[SparkEngine]:
    """All tables are Spark's; only events are."""
    engine = SparkEngine(spark_session.sparkContext, small=request.param)
    yield engine
    engine.close()


@pytest.fixture
def duck() -> Iterator[DuckEngine]:
    engine = DuckEngine(threads=2)
    yield engine
    engine.close()


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.slow), "duck"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Both give the same to the octet, see test_pipeline_properties.py: `make test` asks DuckDB, and Spark where a test
    asks for `both_engines`."""
    found: Engine = request.getfixturevalue(request.param)
    return found
