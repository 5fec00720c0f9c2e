"""What the broker tells its supervisor: texts, times, addresses; a real broker does so, in the background, too."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidd_py.doorman import ReadingNotices
from qpidd_py.process import running_pid
from qpidd_py.server.notify import Notices, Notifier, beat_interval, socket_address, take_environment
from qpidd_py.store.progress import Progress
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

TIME = 60.0  # seconds; far beyond what anything here takes
SLOW = "2000000"
"""Microseconds.  The kernel keeps ten messages for a late reader: two beats a second leave room for others."""


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


# ---- texts


def test_ready_says_who_we_are_and_what_is_known() -> None:
    notices = Notices(4711)
    notices.tell({"STATUS": "joining", "X_QPID_STATE": "joining"})
    assert variables(notices.ready()) == {
        "READY": "1",
        "MAINPID": "4711",
        "STATUS": "joining",
        "X_QPID_STATE": "joining",
    }


def test_only_news_is_told() -> None:
    notices = Notices(1)
    assert notices.tell({"X_QPID_STATE": "ready", "X_QPID_SCORE": "100"}) == "X_QPID_STATE=ready\nX_QPID_SCORE=100\n"
    assert notices.tell({"X_QPID_STATE": "ready", "X_QPID_SCORE": "100"}) == ""
    assert notices.tell({"X_QPID_STATE": "ready", "X_QPID_SCORE": ""}) == "X_QPID_SCORE=\n"


def test_a_beat_repeats_what_programs_read_and_not_what_people_read() -> None:
    notices = Notices(1)
    assert notices.beat() == "WATCHDOG=1\n"
    notices.tell({"STATUS": "a sentence", "X_QPID_STATE": "ready"})
    assert notices.beat() == "WATCHDOG=1\nX_QPID_STATE=ready\n"


def test_a_value_stays_on_its_line() -> None:
    notices = Notices(1)
    assert notices.tell({"STATUS": "two\nlines, READY=0\n"}) == "STATUS=two lines, READY=0\n"
    assert notices.tell({"STATUS": "two lines, READY=0"}) == ""
    assert notices.stopping("SIGTERM\n").count("\n") == 2


# ---- the environment


@pytest.mark.parametrize(
    ("environment", "interval"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "1000000"}, 0.25),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "7"}, 0.25),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": "-1"}, 0.0),
    ],
)
def test_a_beat_is_due_at_a_quarter_of_the_time(environment: dict[str, str], interval: float) -> None:
    assert beat_interval(environment, pid=7) == interval


@pytest.mark.parametrize(
    ("name", "address"),
    [("/run/x", "/run/x"), ("@qpidd", "\0qpidd"), ("", ""), ("vsock:2:1", ""), ("relative", "")],
)
def test_addresses(name: str, address: str) -> None:
    assert socket_address(name) == address


def test_our_children_do_not_speak_for_us() -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    assert take_environment(environment) == {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
    assert environment == {"PATH": "/bin"}
    assert take_environment(environment) == {}


# ---- the socket


class Supervisor:
    """Listens as systemd does."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(TIME)

    def next(self) -> dict[str, str]:
        return variables(self.socket.recv(4096).decode())

    def until(self, name: str, value: str) -> dict[str, str]:
        """The first message that says so."""
        while True:
            found = self.next()
            if found.get(name) == value:
                return found


@pytest.fixture(params=["path", "abstract"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Supervisor, str]]:
    name = f"@qpidd-test-{os.getpid()}-{tmp_path.name}" if request.param == "abstract" else str(tmp_path / "notify")
    found = Supervisor(socket_address(name))
    yield found, name
    found.socket.close()


def test_beats_come_from_the_loop(supervisor: tuple[Supervisor, str]) -> None:
    listener, name = supervisor

    async def run() -> None:
        loop = asyncio.get_running_loop()
        notifier = Notifier(loop, {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "40000"})
        notifier.ready()
        notifier.tell({"X_QPID_STATE": "ready"})
        await loop.run_in_executor(None, listener.until, "X_QPID_STATE", "ready")
        for _ in range(3):
            assert (await loop.run_in_executor(None, listener.next))["WATCHDOG"] == "1"
        notifier.close()
        notifier.tell({"X_QPID_STATE": "late"})  # no process listens

    asyncio.run(run())


def test_a_start_is_given_more_time_while_the_journal_is_read_further(supervisor: tuple[Supervisor, str]) -> None:
    listener, name = supervisor

    async def run() -> None:
        loop, progress = asyncio.get_running_loop(), Progress()
        notifier = Notifier(loop, {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": SLOW})
        notices = ReadingNotices(notifier, progress)
        beat = await loop.run_in_executor(None, listener.until, "WATCHDOG", "1")
        assert (beat["X_QPID_STATE"], beat["X_QPID_SCORE"]) == ("recovering-journal", "")
        for now, done in enumerate((1, 2, 2, 2, 3)):
            progress.at(done, 4)
            notices.look(float(now))
        notices.close()
        assert extensions(listener) == 3, "none while it stands still"

    asyncio.run(run())


def extensions(listener: Supervisor) -> int:
    """Messages of that kind which have come."""
    found = 0
    listener.socket.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        while True:
            found += "EXTEND_TIMEOUT_USEC" in listener.next()
    return found


def test_no_process_listens() -> None:
    async def run() -> None:
        for environment in ({}, {"NOTIFY_SOCKET": "/nonexistent/notify"}, {"NOTIFY_SOCKET": "nonsense"}):
            notifier = Notifier(asyncio.get_running_loop(), {**environment, "WATCHDOG_USEC": "1000000"})
            notifier.ready()
            notifier.tell({"STATUS": "alone"})
            notifier.stopping("SIGTERM")
            notifier.close()

    asyncio.run(run())


def test_a_full_socket_costs_no_time_and_what_matters_is_told_later(supervisor: tuple[Supervisor, str]) -> None:
    listener, name = supervisor

    async def run() -> None:
        loop = asyncio.get_running_loop()
        other = Notifier(loop, {"NOTIFY_SOCKET": name})
        for number in range(2000):
            other.tell({"X_QPID_SCORE": str(number)})
        other.close()
        notifier = Notifier(loop, {"NOTIFY_SOCKET": name})
        notifier.ready()
        for number in range(3000):
            notifier.tell({"X_QPID_SCORE": f"of {number}"})
        await loop.run_in_executor(None, listener.until, "READY", "1")
        await loop.run_in_executor(None, listener.until, "X_QPID_SCORE", "of 2999")
        notifier.close()

    asyncio.run(run())


# ---- a real broker


def test_a_broker_tells_its_life(supervisor: tuple[Supervisor, str], tmp_path: Path) -> None:
    listener, name = supervisor
    options = ("--ha-cluster", "yes", "--ha-brokers-url", "127.0.0.1:1")
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": SLOW}
    broker = BrokerProcess(tmp_path, *options, environment=environment)
    with broker:
        assert listener.until("READY", "1")["MAINPID"] == str(broker.pid)
        assert listener.until("WATCHDOG", "1")["X_QPID_STATE"] == "joining"
        broker.signal(signal.SIGTERM)
        assert listener.until("STOPPING", "1")["STATUS"] == "stopping: SIGTERM"
        assert broker.wait() == 0


def test_a_daemon_beats_with_its_own_pid(supervisor: tuple[Supervisor, str], tmp_path: Path) -> None:
    """A supervisor that wanted the beats of the process that it started wants them of the daemon."""
    listener, name = supervisor
    command = [
        *("sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", sys.executable, "-m", "qpidd_py", "--daemon"),
        *("--port", "0", "--interface", "127.0.0.1", "--data-dir", str(tmp_path / "data")),
    ]
    environment = {**os.environ, "NOTIFY_SOCKET": name, "WATCHDOG_USEC": SLOW}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=TIME)
    pid = running_pid(tmp_path / "data" / "lock")
    assert pid is not None
    try:
        assert listener.until("READY", "1")["MAINPID"] == str(pid)
        assert listener.until("WATCHDOG", "1")
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: running_pid(tmp_path / "data" / "lock") is None, TIME, "the daemon has ended")
