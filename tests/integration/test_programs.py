"""A program that tests/support/programs.py forks is as one that is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import programs
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]
SHOWN = "tests.support.shown"
TIME = 60.0  # seconds


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(programs, "PROGRAMS", {SHOWN: ()})
    monkeypatch.setattr(programs, "_servers", {})
    yield [sys.executable, "-m", SHOWN]
    programs.end()


def both(command: list[str], **how: Any) -> tuple[subprocess.CompletedProcess[str], ...]:
    how |= {"capture_output": True, "text": True, "timeout": TIME, "cwd": ROOT, "input": "in\n"}
    return programs.run(command, **how), subprocess.run(command, check=False, **how)


def test_it_is_as_one_that_is_started(shown: list[str]) -> None:
    environment = dict(sorted(os.environ.items())) | {"ADDED": "ü", "PATH": "/usr/bin"}
    forked, started = both([*shown, "", "a b"], env=environment, start_new_session=True)
    assert json.loads(forked.stdout) == json.loads(started.stdout)
    assert (forked.returncode, forked.stderr, forked.args) == (started.returncode, started.stderr, started.args)
    assert list(programs._servers) == [SHOWN]


@pytest.mark.parametrize("how", ["", "raise", "kill", "at once"])
def test_it_ends_alike(shown: list[str], how: str) -> None:
    forked, started = both([*shown, how])
    assert forked.returncode == started.returncode
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_variables_that_python_reads_at_its_start_have_effect(shown: list[str]) -> None:
    for variables in ({"PYTHONWARNINGS": "error"}, {"TZ": "Asia/Tokyo"}):
        programs.run(shown, timeout=TIME, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        with programs.start(shown, env=os.environ | variables, stdin=subprocess.DEVNULL) as process:
            assert type(process) is subprocess.Popen


def test_a_timeout_kills_it(shown: list[str]) -> None:
    with programs.start(shown, stdin=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        process.kill()
        assert process.wait(TIME) == -signal.SIGKILL
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run([sys.executable, "-c", "input()"], timeout=0.01, stdin=subprocess.PIPE)


def test_many_at_once_are_told_apart(shown: list[str]) -> None:
    def code(how: str) -> int:
        with programs.start([*shown, how], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            return process.wait(TIME)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(code, ["", "at once", "kill"] * 8)) == [3, 5, -signal.SIGKILL] * 8


def test_a_broker_dies_with_what_forked_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        server = psutil.Process(broker.pid).parent()
        assert server is not None and "tests.support.fork_server" in server.cmdline()
        server.kill()
        wait_for(lambda: not psutil.pid_exists(broker.pid), TIME, "the end of the broker")
        assert broker.wait() == -signal.SIGKILL
        assert broker.start().running, "by another one"
