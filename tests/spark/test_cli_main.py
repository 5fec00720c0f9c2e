"""The program `failover-report`: verbs, values, what becomes of errors, what is loaded at its start."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.bundle import BundleError
from spark_jobs.cli import engines, output, values
from spark_jobs.cli.main import VERBS, guarded, make_parser
from spark_jobs.engine.duckdb_engine import DuckEngine
from tests.spark.cli_documents import Program, incident, phase, written

ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(program: Program, verb: str) -> None:
    said = program(*([verb] if verb else []), "--help")
    assert said.code == 0 and said.err == ""
    assert said.out.startswith(f"usage: failover-report {verb}".rstrip()) and "exit codes:" in said.out


@pytest.mark.parametrize(
    ("words", "said_so"),
    [
        ([], "the following arguments are required: VERB; see `failover-report --help`"),
        (["rapport"], "invalid choice: 'rapport'"),
        (["report", "logs"], "the following arguments are required: -o/--output; see `failover-report report --help`"),
        (["report", "nowhere", "-o", "out"], "nowhere: no such file or folder, expected what a cluster left behind"),
        (["report", ".", "-o", "out", "--tz", "node1=Mars/Base"], "zone 'Mars/Base': wanted a name such as Europe/Be"),
        (["report", ".", "-o", "out", "--tz", "=UTC"], "found '=UTC', expected NODE=ZONE"),
        (
            ["report", ".", "-o", "out", "--format", "html,pdf"],
            "found 'html,pdf', expected some of html,json,md,svg,png",
        ),
        (["report", ".", "-o", "out", "--engine", "duckdb", "--master", "yarn"], "duckdb runs on this machine only"),
        (
            ["report", ".", "-o", "out", "--conf", "executor.memory=4g"],
            "found 'executor.memory=4g', expected NAME=VALUE",
        ),
        (["explain", "nowhere", "msg"], "explain msg: which message? expected its id, as p7:123"),
        (["explain", "nowhere", "phase", "x"], "explain phase: 'x' is none, known: fault, detection"),
        (["fleet", "x", "-o", "f", "--since", "yesterday"], "found 'yesterday', expected a time such as 2026-01-01"),
    ],
)
def test_wrong_usage_is_one_line(program: Program, tmp_path: Path, words: list[str], said_so: str) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        said = program(*words)
    finally:
        os.chdir(before)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("failover-report: ") and said.err.count("\n") == 1
    assert said_so in said.err


# ---- values


@pytest.mark.parametrize(
    ("text", "us"),
    [("10s", 10_000_000), ("500ms", 500_000), ("2m", 120_000_000), ("1h", 3_600_000_000), ("7us", 7), ("0s", 0),
     ("1.5s", 1_500_000), ("3", 3_000_000)],
)  # fmt: skip
def test_duration(text: str, us: int) -> None:
    assert values.duration(text) == us


@pytest.mark.parametrize("text", ["", "s", "10 parsecs", "-1s", "1e3s", "1s1ms", "nan", "١s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a duration such as"):
        values.duration(text)


def test_zones() -> None:
    assert values.zone("node2=Europe/Berlin") == ("node2", "Europe/Berlin")
    assert values.zone("*=+08:00") == ("*", "+08:00")
    assert values.zone("UTC") == ("*", "UTC")


def test_moments() -> None:
    assert values.moment("1970-01-02") == 86_400_000_000
    assert values.moment("1970-01-01T01:00:00.000001+01:00") == 1
    assert values.split("version") == "version"


# ---- tables


def test_table_fits_eighty_columns() -> None:
    lines = output.table(("#", "what", "n"), [("1", "x" * 100, "7")], ("#", "n"))
    assert max(map(len, lines)) == 80
    assert lines[1].endswith("x~  7")


# ---- errors


def _raising(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


IN_TASK = """An error occurred while calling o84.count.
: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run()

  File "spread.py", line 251, in _solved
    work(engine, workspace)
OSError: [Errno 28] No space left
	at org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
Caused by: another
"""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BundleError("x.tar: cannot be\nread"), 2, "failover-report: x.tar: cannot be read\n"),
        (FileNotFoundError(2, "No such file", "x"), 2, "failover-report: [Errno 2] No such file: 'x'\n"),
        (ValueError("invalid literal"), 70, "failover-report: ValueError: invalid literal\n"),
        (KeyError("phase"), 70, "failover-report: KeyError: 'phase'\n"),
        (RuntimeError(IN_TASK), 70, "failover-report: a task of Spark failed: OSError: [Errno 28] No space left\n"),
        (KeyboardInterrupt(), 130, "failover-report: interrupted\n"),
    ],
)
def test_errors_end_in_one_line(capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str) -> None:
    assert guarded(_raising(error)) == code
    assert capsys.readouterr() == ("", said)


def test_traceback_of_a_fault_is_there_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILOVER_REPORT_DEBUG", "1")
    with pytest.raises(KeyError):
        guarded(_raising(KeyError("phase")))


def run(*command: str, **more: object) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    how: dict = {"env": environment, "capture_output": True, "text": True, "timeout": 60, "check": False} | more
    return subprocess.run([sys.executable, *command], **how)


SLOW = """
import sys
from spark_jobs.cli.main import guarded
from spark_jobs.engine.duckdb_engine import DuckEngine

def work():
    print("begun", flush=True)
    DuckEngine(threads=1).rows("select sum(a.range * b.range) as s from range(3000000) as a, range(1000000) as b")

sys.exit(guarded(work))
"""


def test_interrupt_in_the_middle_of_a_query() -> None:
    how: dict = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    wake = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731  a shell may have ignored it
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", SLOW], env=environment, preexec_fn=wake, **how) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, ("", "failover-report: interrupted\n"))


def test_broken_pipe_is_quiet(tmp_path: Path) -> None:
    out = written(tmp_path, incident())
    reader, writer = os.pipe()
    os.close(reader)
    how = {"stdout": writer, "stderr": subprocess.PIPE, "capture_output": False}
    done = run("-m", "spark_jobs.cli.main", "check", str(out), "--max-lost", "0", **how)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_terminal_without_arrows_shows_something_else(tmp_path: Path) -> None:
    out = written(tmp_path, incident(phases=[phase("fencing", 0.4)]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = run("-m", "spark_jobs.cli.main", "explain", str(out), "phase", "fencing", env=environment)
    assert done.returncode == 0 and "fencing: 400 ?s, between" in done.stdout


# ---- engines


def test_without_java_the_other_engine_is_named(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    said = program("report", tmp_path, "-o", tmp_path / "out", "--engine", "spark")
    assert said.code == 2
    wanted = "Spark wants Java 17 or newer: no java in PATH or JAVA_HOME; install it, or use --engine duckdb"
    assert said.err == f"failover-report: {wanted}\n"


@pytest.mark.parametrize(
    ("given", "octets", "engine"),
    [
        ([], engines.SMALL - 1, "duckdb"),
        ([], engines.SMALL, "spark"),
        (["--engine", "spark"], 1, "spark"),
        (["--engine", "duckdb"], engines.SMALL, "duckdb"),
        (["--master", "spark://host:7077"], 1, "spark"),
        (["--conf", "spark.executor.memory=4g"], 1, "spark"),
        (["--work", "s3a://bucket/work"], 1, "spark"),
        (["s3a://bucket/logs"], 1, "spark"),
    ],
)
def test_the_engine_is_chosen_by_what_there_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], octets: int, engine: str
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    (tmp_path / "a.log").touch()
    os.truncate(tmp_path / "a.log", octets)
    options = make_parser().parse_args(["report", "-o", "out", str(tmp_path), *given])
    assert engines.chosen(options) == engine


@pytest.mark.parametrize(
    ("given", "variable", "apart"),
    [
        ([], "", True),
        (["--master", "local[1]"], "", True),
        (["--conf", "spark.executor.memory=4g"], "", True),
        (["--conf", "spark.hadoop.fs.defaultFS=hdfs://host:9000"], "", False),
        (["--master", "spark://host:7077"], "", False),
        (["--work", "s3a://bucket/work"], "", False),
        (["s3a://bucket/logs"], "", False),
        ([], "HADOOP_CONF_DIR", False),
        ([], "SPARK_HOME", False),
    ],
)
def test_logs_are_read_while_spark_starts_if_both_mean_the_same_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], variable: str, apart: bool
) -> None:
    for name in engines.ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "/etc/hadoop")
    asked: list[str] = []

    def begun(name: str) -> DuckEngine:
        asked.append(name)
        return DuckEngine()

    monkeypatch.setattr(engines, "_check_spark", lambda: None)
    monkeypatch.setattr(engines, "_running", lambda: False)
    monkeypatch.setattr(engines, "_spark", lambda options: begun("spark"))
    monkeypatch.setattr(engines, "_duckdb", lambda options: begun("duckdb"))
    options = make_parser().parse_args(["report", "-o", "out", "--engine", "spark", str(tmp_path), *given])
    with engines.reading(options) as (reader, then):
        assert (reader is not then()) is apart
    assert sorted(asked) == (["duckdb", "spark"] if apart else ["spark"])


@pytest.mark.parametrize(
    ("module", "engine", "name"), [("pyspark", "spark", "PySpark"), ("duckdb", "duckdb", "DuckDB")]
)
def test_engine_that_is_not_installed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, engine: str, name: str
) -> None:
    there = engines._there
    monkeypatch.setattr(engines, "_there", lambda wanted: wanted != module and there(wanted))
    said = program("report", tmp_path, "-o", tmp_path / "out", "--engine", engine)
    assert said.code == 2
    assert said.err.startswith(f"failover-report: {name} is not installed: pip install 'qpidd-py[spark]' (or make")
    assert said.err.endswith(f"or --engine {'duckdb' if engine == 'spark' else 'spark'}\n")


def test_spark_wants_duckdb(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_there", lambda wanted: wanted != "duckdb")
    monkeypatch.setattr(engines, "java", lambda environ: "java")
    said = program("report", tmp_path, "-o", tmp_path / "out")
    wanted = (
        "failover-report: DuckDB is not installed, which has the small tables of Spark: pip install 'qpidd-py[spark]'"
    )
    assert said.code == 2 and said.err.startswith(wanted)


# ---- start-up

HEAVY = {"pyspark", "duckdb", "pyarrow", "numpy", "pandas", "matplotlib", "asyncio"}
LOADED = """
import contextlib, io, json, sys
from spark_jobs.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


@pytest.mark.parametrize(
    "words",
    [["--help"], ["report", "--help"], ["check", "OUT", "--max-lost", "0"], ["diff", "OUT", "OUT"],
     ["explain", "OUT", "phase", "promotion"], ["explain", "OUT", "hint"]],
    ids=lambda words: "-".join(words[:3]),
)  # fmt: skip
def test_no_engine_is_loaded_where_none_is_needed(tmp_path: Path, words: list[str]) -> None:
    """In a gate it is called often; DuckDB costs 0.1 s, PySpark 0.5 s."""
    out = written(tmp_path, incident())
    done = run("-c", LOADED, *(str(out) if word == "OUT" else word for word in words))
    code, modules = json.loads(done.stdout)
    assert code == 0
    assert HEAVY & set(modules) == set()


def test_file_for_spark_submit_is_the_same_program(tmp_path: Path) -> None:
    """Started as a file, from anywhere: it finds the package, and our modules hide no others."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = run(str(ROOT / "spark_jobs/main.py"), "check", "--help", env=environment, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("usage: failover-report check")


def test_every_verb_has_its_words() -> None:
    parser = make_parser()
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    assert tuple(verbs.choices) == VERBS
    for name, verb in verbs.choices.items():
        for action in verb._actions:
            assert action.help, (name, action.option_strings)
