"""A Spark context: on this machine, on a stand-alone cluster, or the one that spark-submit began."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from spark_jobs.engine import package

if TYPE_CHECKING:
    from pyspark import SparkContext

COMMON: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""For every context of ours.  ANSI mode stays as Spark 4 has it: on."""
LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Else the driver listens at the machine's outer address."""
LOCAL: Final = {
    **LOOPBACK,
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions":
        "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=75000 -XX:Tier4MinInvocationThreshold=9000 "
        "-XX:Tier4CompileThreshold=225000 -XX:Tier4BackEdgeThreshold=600000",
}  # fmt: skip
"""The collector costs a tenth less than G1 on two cores.  Only what runs 15 times as often as by default is compiled
well: of 11 million events the compilers took a third of the processor time."""
QUICK: Final = {
    "spark.driver.extraJavaOptions":
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:NewRatio=1 -XX:InitialRAMPercentage=25",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.openCostInBytes": "65536",
}  # fmt: skip
"""For little data on this machine: what a JVM spends on compiling well, and on letting the heap grow, it never earns
back.  Plans are few and partitions as many as cores, so that adapting them costs more than it saves; and one small file
is work for all cores.
No class data sharing: its archive of 185 MB saves 6 of 38 CPU s, but Java 17 ends with a fatal error if that is cut
off, and does not start where it cannot be written."""
LITTLE: Final = 600_000_000
"""Octets of logs."""
PARTITION_BYTES: Final = 32 * 1024 * 1024
"""Compressed bytes of input for one partition of a shuffle."""


def submitted(environ: Mapping[str, str]) -> bool:
    """True if this process runs under spark-submit."""
    return "PYSPARK_GATEWAY_PORT" in environ


def settings(master: str | None, shuffle: int | None, memory: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """What is set for a new context; `options` win.  `shuffle`: partitions; None: Spark's default, which adaptive
    execution makes fewer where there is little."""
    chosen = dict(COMMON)
    if shuffle is not None:
        chosen["spark.sql.shuffle.partitions"] = str(shuffle)
    if master is not None and master.startswith("local"):
        chosen |= LOCAL
    elif master is not None and master.startswith(("spark://127.0.0.1:", "spark://localhost:")):
        chosen |= LOOPBACK
    if memory is not None:
        chosen["spark.driver.memory"] = memory
    return {**chosen, **options}


def suited(octets: int, cores: int) -> Mapping[str, str]:
    """Settings of a local context for so many octets of logs."""
    return {**QUICK, "spark.sql.shuffle.partitions": str(cores)} if octets < LITTLE else {}


def shuffle_partitions(size: int, cores: int) -> int:
    """For `size` octets of Parquet: enough that one fits into memory, a multiple of the cores, at most 2000."""
    wanted = max(2 * cores, -(-size // PARTITION_BYTES))
    return int(min(2000, -(-wanted // cores) * cores))


def context(
    master: str | None = "local[*]",
    shuffle: int | None = 8,
    memory: str | None = None,
    options: Mapping[str, str] | None = None,
    environ: MutableMapping[str, str] | None = None,
    errors: BinaryIO | None = None,
) -> SparkContext:
    """The running one if there is one, else a new one.

    `master`: local[N], spark://HOST:PORT, yarn.  `memory` of the driver, as `4g`.  What spark-submit was told wins.
    Workers elsewhere get this package.  Those of spark:// run the Python that runs this, unless PYSPARK_PYTHON names
    one: what `python3` is there lacks pyarrow more often than not.  `errors`: where a JVM that starts here writes.
    """
    from pyspark import SparkConf, SparkContext

    environ = os.environ if environ is None else environ
    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    given: dict[str, str] = {}
    if submitted(environ):
        master, given = None, _told()
    elif master is not None and master.startswith("local"):
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is not None and master.startswith(("local", "spark://")):
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = settings(master, None if given else shuffle, memory, options or {})
    wanted = {name: value for name, value in wanted.items() if name not in given}
    if errors is not None:
        _begin(wanted, errors)
    conf = SparkConf().setAll(list(wanted.items())).setAppName("failover-report")
    found = SparkContext.getOrCreate(conf if master is None else conf.setMaster(master))
    found.setLogLevel("ERROR")
    if remote(found) and master is not None:
        _send_package(found)
    return found


def _begin(options: Mapping[str, str], errors: BinaryIO) -> None:
    """The JVM, if there is none yet."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(options.items()))
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": errors}), conf=conf)


def _told() -> dict[str, str]:
    """What spark-submit was told, and what spark-defaults.conf says: never empty, the master is in it."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _send_package(context: SparkContext) -> None:
    """The driver hands the file out as long as it lives: Spark's own scratch folder ends with it."""
    from pyspark import SparkFiles

    folder = tempfile.mkdtemp(prefix="package-", dir=SparkFiles.getRootDirectory())
    context.addPyFile(str(package.zipped(Path(folder) / package.NAME)))


def scratch(environ: Mapping[str, str] = os.environ) -> str | None:
    """In a task: a folder that goes when Spark ends, also if this process is killed."""
    return environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def remote(context: SparkContext) -> bool:
    """True if tasks run in other processes, possibly on other machines."""
    return not str(context.master).startswith("local")
