"""A stand-alone Spark cluster on this machine: a master, two workers of one core, all on 127.0.0.1 and free ports."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import system
from tests.support.wait import wait_for

WORKERS = 2
START = 60.0
"""Seconds: four JVMs begin on two shared cores."""
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Our rows are few: what a JVM spends on compiling well it never earns back."""
_DAEMON = f"{QUICK} -Dspark.master.rest.enabled=false"
_LISTENS = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED = re.compile(r"(Successfully registered) with master")


def spark_home() -> Path:
    """Where pip has put Spark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def missing() -> str:
    """Why no cluster can be started here; empty if one can."""
    return no_java() or ("" if importlib.util.find_spec("pyspark") else "no pyspark")


def no_java() -> str:
    """Why Spark cannot run here; empty if it can."""
    return "" if "JAVA_HOME" in os.environ else system.missing("java")


def environment() -> dict[str, str]:
    """Of the daemons and of spark-submit; workers inherit it."""
    spark = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    daemons = {"SPARK_DAEMON_MEMORY": "192m", "SPARK_DAEMON_JAVA_OPTS": _DAEMON}
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    return {**plain, **spark, **daemons}


@dataclass
class Daemon:
    """A process in a group of its own: executors are its children, and end with it."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def started(cls, directory: Path, name: str, kind: str, *arguments: str) -> Daemon:
        log = directory / f"{name}.log"
        command = [str(spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--port", "0", "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(), cwd=directory,
                start_new_session=True,
            )  # fmt: skip
        return cls(process, log)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: re.Pattern[str]) -> str:
        """What the pattern's group holds in the log; raises AssertionError with the log."""

        def said() -> str:
            assert self.process.poll() is None, f"{self.log.name}: exit {self.process.returncode}\n{self.text[-2000:]}"
            found = pattern.search(self.text)
            return found.group(1) if found else ""

        return wait_for(said, START, lambda: self.text[-2000:], poll=0.1)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@dataclass
class Cluster:
    """`url` is for --master; `directory` has the logs and the workers' folders."""

    url: str
    directory: Path
    workers: Sequence[Daemon]

    def executors_of(self, application: str) -> int:
        """How many executors have worked for an application: each has a folder of its own."""
        return len(list(self.directory.glob(f"worker*/{application}/*")))

    def applications(self) -> list[str]:
        """Ids, in the order of their beginning."""
        return sorted({path.name for path in self.directory.glob("worker*/app-*")})


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """All of its processes are gone afterwards, whatever happened."""
    running: list[Daemon] = []
    try:
        master = Daemon.started(directory, "master", "master.Master")
        running.append(master)
        url = master.wait_for(_LISTENS)
        for number in range(1, WORKERS + 1):
            running.append(_worker(directory, number, url))
        for worker in running[1:]:
            worker.wait_for(_JOINED)
        yield Cluster(url, directory, running[1:])
    finally:
        for daemon in reversed(running):
            daemon.end()


def _worker(directory: Path, number: int, url: str) -> Daemon:
    place = directory / f"worker{number}"
    options = ("--cores", "1", "--memory", "1g", "--work-dir", str(place), url)
    return Daemon.started(directory, place.name, "worker.Worker", *options)


CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.cores.max": str(WORKERS),
}
"""For an application on it."""


def submit(url: str, zipped: Path, program: Path, *arguments: str, **conf: str) -> subprocess.CompletedProcess[str]:
    """spark-submit, as README.md says; raises CalledProcessError with what it printed."""
    chosen = [part for pair in {**CONF, **conf}.items() for part in ("--conf", "=".join(pair))]
    command = [str(spark_home() / "bin/spark-submit"), "--master", url, *chosen, "--py-files", str(zipped)]
    command += [str(program), *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done
