"""A test run that is killed leaves no process behind, and one that ends says which it has left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.support import guard
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]
TIME = 120.0  # seconds
DAEMON = "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
INNER = """
    import json, pathlib, psutil, subprocess, sys, threading, time
    from tests.support.process import BrokerProcess

    def test_inner(tmp_path):
        broker = BrokerProcess(tmp_path)
        starter = threading.Thread(target=broker.start)  # which ends before its broker
        starter.start()
        starter.join()
        with subprocess.Popen([sys.executable, "-c", {daemon!r}], stdout=subprocess.PIPE) as parent:
            daemon = int(parent.stdout.readline())
        written = pathlib.Path({found!r} + "_")
        written.write_text(json.dumps([broker.pid, daemon, psutil.Process(broker.pid).ppid()]))
        written.rename({found!r})
        time.sleep({seconds})
"""


def run_tests(directory: Path, seconds: float, options: Sequence[str]) -> tuple[subprocess.Popen[str], list[int]]:
    """A pytest that has started a broker and a daemon, and waits for so many seconds; their process ids, and that of
    the server which forks brokers."""
    found = directory / "processes"
    inner = directory / "test_inner.py"
    inner.write_text(textwrap.dedent(INNER.format(daemon=DAEMON, found=str(found), seconds=seconds)))
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "setup.cfg"), "-p", "tests.conftest", *options]
    pytest_process = subprocess.Popen(
        [*command, f"--basetemp={directory / 'base'}", str(inner)],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=hear_interrupts,
    )  # fmt: skip
    wait_for(lambda: found.exists() or pytest_process.poll() is not None, TIME, "the processes of the inner test")
    assert found.exists(), pytest_process.communicate()[1]
    return pytest_process, json.loads(found.read_text())


def hear_interrupts() -> None:
    """A shell may have started us in the background, where they are ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


BOTH = pytest.mark.parametrize("options", [[], ["-n1"]], ids=["one process", "a worker"])


@BOTH
def test_a_killed_run_leaves_no_process(tmp_path: Path, options: list[str]) -> None:
    pytest_process, pids = run_tests(tmp_path, 600, options)
    with pytest_process:
        assert all(running(pid) for pid in pids)
        pytest_process.kill()
        wait_for(lambda: not any(running(pid) for pid in pids), TIME, lambda: f"the end of {pids}")


def test_a_run_that_ends_names_what_it_left(tmp_path: Path) -> None:
    pytest_process, pids = run_tests(tmp_path, 0, [])
    with pytest_process:
        errors = pytest_process.communicate(timeout=TIME)[1]
    assert pytest_process.returncode == 0
    assert [line.partition(": ")[0] for line in errors.splitlines()] == ["left behind by the tests, killed"] * 2
    wait_for(lambda: not any(running(pid) for pid in pids), TIME, lambda: f"the end of {pids}")


@BOTH
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, options: list[str]) -> None:
    """Ctrl-C, which all processes in the foreground get."""
    pytest_process, pids = run_tests(tmp_path, 600, options)
    with pytest_process:
        os.killpg(pytest_process.pid, signal.SIGINT)
        assert pytest_process.wait(TIME) == pytest.ExitCode.INTERRUPTED
        wait_for(lambda: not any(running(pid) for pid in pids), TIME, lambda: f"the end of {pids}")


def test_processes_of_other_runs_are_left_alone() -> None:
    name = f"{time.time_ns()}"
    code = "print(flush=True); input()"
    ours, other = (
        subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for env in ({guard.VARIABLE: f"before {name}"}, {guard.VARIABLE: f"{name}1"})
    )
    with ours, other:
        for process in (ours, other):
            assert process.stdout is not None
            process.stdout.readline()
        assert len(guard.end(name, grace=0.0)) == 1
        assert ours.wait(TIME) == -signal.SIGKILL
        other.communicate(b"\n", TIME)
        assert other.returncode == 0
