"""A Spark session: on this machine, on a stand-alone cluster, or the one that spark-submit began."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMON: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""For every session of ours.  ANSI mode stays as Spark 4 has it: on."""
LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
"""Else the driver listens at the machine's outer address.  The collector costs a tenth less than G1 on two cores."""
PARTITION_BYTES: Final = 32 * 1024 * 1024
"""Compressed bytes of input for one partition of a shuffle."""


def submitted(environ: Mapping[str, str]) -> bool:
    """Does this process run under spark-submit?"""
    return "PYSPARK_GATEWAY_PORT" in environ


def settings(master: str | None, shuffle: int, memory: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """What is set for a new session; `options` win."""
    chosen = {**COMMON, "spark.sql.shuffle.partitions": str(shuffle)}
    if master is not None and master.startswith("local"):
        chosen |= LOCAL
    if memory is not None:
        chosen["spark.driver.memory"] = memory
    return {**chosen, **options}


def shuffle_partitions(size: int, cores: int) -> int:
    """For `size` octets of Parquet: enough that one fits into memory, a multiple of the cores, at most 2000."""
    wanted = max(2 * cores, -(-size // PARTITION_BYTES))
    return int(min(2000, -(-wanted // cores) * cores))


def session(
    master: str | None = "local[*]",
    shuffle: int = 8,
    memory: str | None = None,
    options: Mapping[str, str] | None = None,
    environ: MutableMapping[str, str] | None = None,
) -> SparkSession:
    """The running session if there is one, else a new one.

    `master`: local[N], spark://HOST:PORT, yarn; what spark-submit was told wins.  `memory` of the driver, as `4g`.
    """
    from pyspark.sql import SparkSession

    environ = os.environ if environ is None else environ
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if submitted(environ):
        master = None
    elif master is not None and master.startswith("local"):
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("failover-report")
    for name, value in settings(master, shuffle, memory, options or {}).items():
        builder = builder.config(name, value)
    found = (builder if master is None else builder.master(master)).getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found
