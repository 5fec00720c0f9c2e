"""`qpid-printevents` against real brokers: one that is killed and comes back, refused logins, Ctrl-C, a flood."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.security.users import hash_password
from tests.support import programs
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

MakeBroker = Callable[..., BrokerProcess]
COMMAND = [sys.executable, "-m", "qpidd_py.cli.qpid_printevents"]
TIME = 60.0


class Printing:
    """A running tool and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self._output.read_text().splitlines() if each.endswith("}")]

    def sees(self, *events: str, broker: str = "") -> None:
        def found() -> bool:
            names = iter(row["event"] for row in self.rows() if row["broker"].endswith(broker))
            return all(event in names for event in events)

        wait_for(found, TIME, lambda: f"{events} in this order: {self.rows()}")


@contextmanager
def printing(folder: Path, *words: str) -> Iterator[Printing]:
    output = folder / "events.jsonl"
    wake = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731  a shell may have ignored it
    with output.open("wb") as target:
        command = [*COMMAND, "--json", *words]
        process = programs.start(command, stdout=target, stderr=subprocess.STDOUT, preexec_fn=wake)
    try:
        yield Printing(process, output)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME) == 0, "Ctrl-C is its end"
        assert "Traceback" not in output.read_text()
    finally:
        process.kill()
        process.wait()


def channel(broker: BrokerProcess) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)).channel()


def test_two_brokers_one_of_which_goes_and_comes(make_broker: MakeBroker, tmp_path: Path) -> None:
    one, other = make_broker(name="one").start(), make_broker(name="other")
    with printing(tmp_path, "-b", one.address, other.address) as tool:
        tool.sees("brokerUp", broker=str(one.port))
        tool.sees("brokerDown", broker=str(other.port))
        other.start()
        tool.sees("brokerUp", broker=str(other.port))
        for broker in (one, other):
            channel(broker).queue_declare("orders", exclusive=True)
            tool.sees("clientConnect", "queueDeclare", broker=str(broker.port))
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", one.port, credentials=pika.PlainCredentials("x", "y"))
            )
        tool.sees("clientConnectFail", broker=str(one.port))
        other.kill()
        tool.sees("brokerUp", "brokerDown", broker=str(other.port))
        other.start()
        channel(other).queue_declare("again")
        tool.sees("brokerDown", "brokerUp", "brokerRestarted", "clientConnect", "queueDeclare", broker=str(other.port))


def test_a_flood_is_read_without_a_gap(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker().start()
    with printing(tmp_path, "--filter", "queueDe", broker.address) as tool:
        busy = channel(broker)
        while not any(row["event"] == "queueDeclare" for row in tool.rows()):
            busy.queue_declare("warm")
            busy.queue_delete("warm")
        for number in range(300):
            busy.queue_declare(f"q{number}", auto_delete=True)
        wait_for(lambda: any(row.get("queue") == "q299" for row in tool.rows()), TIME, "the last one")
        numbers = [row["number"] for row in tool.rows()]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "the filter takes these, all of them"


@pytest.mark.parametrize(
    ("login", "words", "text"),
    [
        ("anna/wrong@", (), "AuthenticationFailure: 127.0.0.1:"),
        ("anna/secret@", ("--since", "x"), "UsageError: argument --since"),
        ("anna/secret@", ("--filter", "("), "UsageError: argument --filter"),
    ],
)
def test_what_ends_it(make_broker: MakeBroker, tmp_path: Path, login: str, words: tuple[str, ...], text: str) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(f"anna: {hash_password('secret', log2n=4)}\n")
    broker = make_broker("--user-file", str(file)).start()
    command = [*COMMAND, f"{login}{broker.address}", *words]
    done = programs.run(command, capture_output=True, text=True, timeout=TIME)
    assert done.returncode == 1 and text in done.stdout and len(done.stdout.splitlines()) == 1, done
