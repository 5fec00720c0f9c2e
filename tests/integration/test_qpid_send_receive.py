"""`qpid-send` and `qpid-receive` as processes, against real brokers that are killed and paused."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_lib.events import ALWAYS, FIELDS, KINDS
from demo.cluster import Cluster
from demo.events import read
from ha.qpid_cluster.main import settled
from testkit.library_events import LibraryHistory
from tests.support import programs
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

QUICK = "{heartbeat:1,connect-timeout:1}"
ROOT = Path(__file__).resolve().parents[2]


class Tool:
    """A process of `qpid-NAME`; killed, if it runs, at the end of the test."""

    running: list["Tool"] = []

    def __init__(self, name: str, broker: str, *words: str, directory: Path, lines: object = None) -> None:
        self.out, self.err = (directory / f"{name}-{len(Tool.running)}.{end}" for end in ("out", "err"))
        self.process = programs.start(
            [sys.executable, "-m", f"client_lib.cli.{name}", "-b", broker, *words],
            stdin=subprocess.DEVNULL if lines is None else subprocess.PIPE,
            stdout=self.out.open("wb"),
            stderr=self.err.open("wb"),
            cwd=ROOT,
        )
        Tool.running.append(self)
        if lines is not None:
            self.write(str(lines))

    def write(self, text: str, more: bool = False) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush() if more else self.process.stdin.close()

    def wait(self, timeout: float = 30.0) -> int:
        return self.process.wait(timeout)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    @property
    def printed(self) -> list[str]:
        return self.out.read_text().splitlines()

    @property
    def complaints(self) -> str:
        return self.err.read_text()

    def report(self) -> dict[str, Any]:
        return json.loads(self.printed[-1])  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path: Path) -> Iterator[None]:  # which it needs to the end
    Tool.running = []
    yield
    for tool in Tool.running:
        if tool.process.poll() is None:
            tool.process.kill()
            tool.process.wait()
        if tool.process.stdin is not None:
            tool.process.stdin.close()
        print(f"---- {tool.process.args!r}: {tool.process.returncode}\n{tool.complaints}")


@pytest.fixture
def start(tmp_path: Path, broker: BrokerProcess):
    """`start(name, *words)`: a tool that talks to `broker`."""

    def begin(name: str, *words: str, lines: object = None) -> Tool:
        return Tool(name, broker.address, *words, directory=tmp_path, lines=lines)

    return begin


QUEUE = ("-a", "q; {create: always}")


def test_what_is_sent_is_received(start) -> None:
    words = ("-P", "n=7", "-P", "on=true", "--id", "one", "--correlation-id", "c", "--ttl", "60000", "--priority", "3")
    assert start("send", *QUEUE, *words, "--content-string", "hello", "--durable").wait() == 0
    receiver = start("receive", *QUEUE, "-m", "1", "--json", "--print-headers", "yes", "--report-total")
    assert receiver.wait() == 0
    message, total = map(json.loads, receiver.printed)
    found = message["message"]
    assert found["properties"].keys() >= {"sn", "ts", "n", "on"} and found["properties"]["n"] == 7
    assert found["properties"]["on"] is True and found["properties"]["sn"] == 1
    assert (
        found.items()
        >= {"content": "hello", "id": "one", "correlation_id": "c", "priority": 3, "durable": True}.items()
    )
    assert total["received"] == 1 and 0 <= total["latency_ms"]["avg"] < 60_000


def test_lines_maps_and_columns(start) -> None:
    assert start("send", *QUEUE, "--content-stdin", "--report-total", lines="one\n\nthree").wait() == 0
    assert start("send", *QUEUE, "-M", "a=1", "-M", "b=x").wait() == 0
    receiver = start("receive", *QUEUE, "--timeout", "1", "--report-total")
    assert receiver.wait() == 0
    assert receiver.printed[:5] == ["one", "", "three", "{a:1, b:x}", "tp(m/s)\tl-min\tl-max\tl-avg"]
    assert len(receiver.printed[5].split("\t")) == 4
    again = start("receive", *QUEUE)
    assert again.wait() == 0 and again.printed == [], "they were acknowledged"


def test_the_end_of_the_stream_ends_a_receiver(start) -> None:
    receiver = start("receive", *QUEUE, "-f")
    assert start("send", *QUEUE, "-m", "3", "--content-string", "x", "--send-eos", "1").wait() == 0
    assert receiver.wait() == 0 and receiver.printed == ["x"] * 3


def test_never_acknowledged_is_redelivered(start) -> None:
    assert start("send", *QUEUE, "-m", "3", "--content-size", "1").wait() == 0
    assert start("receive", *QUEUE, "--ack-frequency", "0").wait() == 0
    receiver = start("receive", *QUEUE, "--print-headers", "yes")
    assert receiver.wait() == 0 and receiver.printed.count("Redelivered: true") == 3


def test_ready_address(start) -> None:
    receiver = start("receive", *QUEUE, "-f", "-m", "1", "--ready-address", "ready; {create: always}")
    assert start("receive", "-a", "ready; {create: always}", "-m", "1", "-f").wait() == 0
    assert start("send", *QUEUE, "--content-string", "x").wait() == 0
    assert receiver.wait() == 0


def test_replies(start) -> None:
    assert (
        start("send", *QUEUE, "--reply-to", "back; {create: always}", "--content-string", "x", "--id", "i").wait() == 0
    )
    assert start("receive", *QUEUE, "--reply").wait() == 0
    back = start("receive", "-a", "back", "--print-headers", "yes")
    assert back.wait() == 0 and "CorrelationId: i" in back.printed and back.printed[-1] == "x"


def test_transactions(start) -> None:
    sender = start("send", *QUEUE, "-m", "7", "--tx", "2", "--rollback-frequency", "2", "--report-total", "--json")
    assert sender.wait() == 0
    assert sender.report().items() >= {"sent": 7, "confirmed": 4, "rolled_back": 3}.items()
    receiver = start("receive", *QUEUE, "--tx", "3", "--report-total", "--json", "--print-content", "no")
    assert receiver.wait() == 0 and receiver.report()["received"] == 4


def test_against_rabbitmq(rabbit_port: int, tmp_path: Path) -> None:
    def run(name: str, *words: str) -> Tool:
        tool = Tool(name, f"127.0.0.1:{rabbit_port}", "-a", "q; {create: always}", *words, directory=tmp_path)
        assert tool.wait() == 0, tool.complaints
        return tool

    run("send", "-m", "50", "--content-string", "x", "--durable", "-P", "half=0.5")
    run("send", "-m", "9", "--content-string", "x", "--tx", "2", "--rollback-frequency", "2")
    run("receive", "--ack-frequency", "0")
    checks = ("--verify-sequence", "--check-redelivered", "--ignore-duplicates")
    shown = run("receive", "-m", "50", *checks, "--print-headers", "yes").printed
    assert shown.count("x") == shown.count("Redelivered: true") == 50 and any("half:0.5" in line for line in shown)
    assert run("receive", "--tx", "3").printed == ["x"] * 5
    assert run("receive").printed == []


@pytest.mark.parametrize("name", ["send", "receive"])
def test_no_such_queue(start, name: str) -> None:
    tool = start(name, "-a", "nowhere")
    assert tool.wait() == 1
    assert tool.complaints.startswith(f"qpid-{name}: NotFound: ") and "nowhere" in tool.complaints


def test_no_broker(tmp_path: Path) -> None:
    tool = Tool("send", "127.0.0.1:1", "-a", "q", "--connection-options", "{reconnect:false}", directory=tmp_path)
    assert tool.wait() == 1
    assert tool.complaints.splitlines()[-1].startswith("qpid-send: ConnectError: ")
    assert tool.complaints.count("ConnectError") == tool.complaints.count("reconnecting is off") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--connection-options", "{heartbeat:x}"), "heartbeat"),
        (("--connection-options", "{heartbeet:1}"), "heartbeet"),
        (("--connection-options", "{heartbeat"), "at character"),
        (("-b", "a:b:c"), "a:b:c"),
        (("--ttl", "soon"), "argument --ttl: found 'soon', expected milliseconds"),
    ],
)
def test_wrong_values(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    tool = Tool("send", "127.0.0.1:1", "-a", "q", *words, directory=tmp_path)
    assert tool.wait() == 2
    assert "qpid-send: error: " in tool.complaints and said in tool.complaints and "Traceback" not in tool.complaints


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_endless_run_ends_with_totals(start, number: int) -> None:
    words = ("--report-every", "100", "--report-total", "--json")
    sender = start("send", *QUEUE, "-m", "0", "--send-rate", "1000", *words)
    receiver = start("receive", *QUEUE, "-f", "--print-content", "no", *words)
    for tool in (sender, receiver):
        wait_for(lambda tool=tool: len(tool.printed) >= 3, what="progress is shown")  # type: ignore[misc]
    assert sender.end(number) == 0
    total = sender.report()
    assert total["report"] == "total" and total["sent"] == total["confirmed"] >= 300 and total["in_doubt"] == 0
    wait_for(lambda: sum(json.loads(line)["messages"] for line in receiver.printed) > total["sent"] - 100)
    assert receiver.end(number) == 0
    assert sender.complaints == receiver.complaints == ""


def test_a_run_that_was_not_finished_says_so(start) -> None:
    sender = start("send", *QUEUE, "-m", "100000", "--send-rate", "100", "--report-every", "10")
    receiver = start("receive", *QUEUE, "-m", "100000", "-f", "--report-every", "10", "--print-content", "no")
    for tool in (sender, receiver):
        wait_for(lambda tool=tool: len(tool.printed) >= 2)  # type: ignore[misc]
    assert (sender.end(signal.SIGINT), receiver.end(signal.SIGTERM)) == (130, 143)


def test_a_signal_while_no_broker_answers(tmp_path: Path) -> None:
    log = tmp_path / "events"
    words = ("-a", "q", "--connection-options", "{reconnect:true}", "--event-log", str(log))
    tool = Tool("receive", "127.0.0.1:1", *words, directory=tmp_path)
    wait_for(lambda: log.exists() and "connect_refused" in log.read_text(), what="it tries")
    assert tool.end() == 143


@pytest.mark.parametrize("messages", ["2000", "0"])
def test_a_reader_may_leave(start, tmp_path: Path, broker: BrokerProcess, messages: str) -> None:
    """In the middle of the messages, or before the report."""
    if messages != "0":
        assert start("send", *QUEUE, "-m", messages, "--content-size", "1000").wait() == 0
    words = [sys.executable, "-m", "client_lib.cli.receive", "-b", broker.address, *QUEUE, "--report-total"]
    errors = tmp_path / "errors"
    with errors.open("wb") as said:
        tool = programs.start(words, stdout=subprocess.PIPE, stderr=said, cwd=ROOT)
        assert tool.stdout is not None
        if messages != "0":
            tool.stdout.read(10)
        tool.stdout.close()
        assert tool.wait(20) == 1
    assert errors.read_text() == ""


# ---- in doubt


def test_what_a_dead_broker_did_not_confirm_is_in_doubt(start, broker: BrokerProcess) -> None:
    words = ("-m", "0", "--send-rate", "2000", "--capacity", "50", "--report-every", "100", "--report-total", "--json")
    sender = start("send", *QUEUE, *words, "--connection-options", "{reconnect:false}")
    wait_for(lambda: len(sender.printed) >= 2)
    broker.pause()
    wait_for(lambda: _full(sender), what="the window is full")
    broker.kill()
    assert sender.wait() == 3
    assert sender.report()["in_doubt"] == 50
    assert "qpid-send: 50 messages are in doubt" in sender.complaints


def _full(sender: Tool) -> bool:
    """It does not send any more: its processor time stands still for a moment."""
    fields = Path(f"/proc/{sender.process.pid}/stat").read_text().rpartition(")")[2].split()
    used = int(fields[11]) + int(fields[12]) if fields[0] == "S" else None  # not while it waits for a processor
    before, sender.used = getattr(sender, "used", -1), used  # type: ignore[attr-defined]
    sender.same = getattr(sender, "same", 0) + 1 if used is not None and used == before else 0  # type: ignore[attr-defined]
    return sender.same > 30  # type: ignore[attr-defined, no-any-return]


def test_a_paused_broker_leaves_messages_in_doubt_after_a_signal(start, broker: BrokerProcess) -> None:
    words = ("-m", "0", "--send-rate", "200", "--capacity", "10", "--report-every", "20", "--report-total", "--json")
    sender = start("send", *QUEUE, *words, "--connection-options", "{heartbeat:60}")
    wait_for(lambda: len(sender.printed) >= 2)
    broker.pause()
    wait_for(lambda: _full(sender), what="the window is full")
    try:
        assert sender.end() == 3
    finally:
        broker.resume()
    assert sender.report()["in_doubt"] == 10


# ---- fail-over


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


def kill_primary(cluster: Cluster) -> None:
    wait_for(lambda: settled(cluster.status()), 60, "one active, the others ready")
    old = cluster.primary
    cluster.command("kill", old)
    wait_for(lambda: cluster.primary not in ("", old), 60, "another primary")


def count(tool: Tool) -> int:
    return len(tool.printed)


NODE = ("-a", "numbers; {create: always, node: {durable: true}}", "--connection-options", QUICK)
CHECKS = ("--ignore-duplicates", "--check-redelivered", "--verify-sequence")
LINES = ("--content-stdin", "--durable", "--send-rate", "500", "--report-total", "--json")


def test_each_number_once_over_fail_overs(cluster: Cluster, tmp_path: Path) -> None:
    total, log = 3000, tmp_path / "events.jsonl"
    words = (*NODE, "--event-log", str(log))
    receiver = Tool("receive", cluster.addresses(), *words, *CHECKS, "--ack-frequency", "20", "-f", "-m", str(total),
                    directory=tmp_path)  # fmt: skip
    numbers = "".join(f"{number}\n" for number in range(1, total + 1))
    sender = Tool("send", cluster.addresses(), *words, *LINES, directory=tmp_path, lines=numbers)
    for goal in (total // 10, total // 2):
        wait_for(lambda goal=goal: count(receiver) >= goal, 60, f"{goal} received")  # type: ignore[misc]
        kill_primary(cluster)
    assert sender.wait(60) == 0, sender.complaints
    assert receiver.wait(60) == 0, receiver.complaints
    assert sender.report().items() >= {"sent": total, "confirmed": total, "in_doubt": 0}.items()
    assert sender.report()["failovers"] >= 2
    assert receiver.printed == numbers.split()
    check_events(log, total)


def test_transactions_over_a_fail_over(cluster: Cluster, tmp_path: Path) -> None:
    """All of them; if the broker was killed in the middle of a commit, all but those that are said to be in doubt, and
    these all or not at all."""
    total, size = 2000, 50
    words = (*NODE, "--tx", str(size))
    receiver = Tool("receive", cluster.addresses(), *words, *CHECKS, "-f", directory=tmp_path)
    numbers = [str(number) for number in range(1, total + 1)]
    sender = Tool("send", cluster.addresses(), *words, *LINES, directory=tmp_path, lines="\n".join(numbers))
    wait_for(lambda: count(receiver) >= total // 4, 60, "a quarter received")
    kill_primary(cluster)
    code = sender.wait(60)
    confirmed, doubt = sender.report()["confirmed"], sender.report()["in_doubt"]
    assert (code, confirmed, doubt) == (0, total, 0) or (code == 3 and doubt == size), sender.complaints
    wait_for(lambda: len(set(receiver.printed)) >= confirmed, 60, "the rest received")
    assert receiver.end() == 0
    rest = Tool("receive", cluster.addresses(), *NODE, "--timeout", "1", directory=tmp_path)
    assert rest.wait() == 0
    shown = list(dict.fromkeys(receiver.printed + rest.printed))  # an aborted transaction is printed twice
    assert shown in (numbers[:confirmed], numbers[: confirmed + doubt])


def check_events(log: Path, total: int) -> None:
    written = [json.loads(line) for line in log.read_text().splitlines()]
    for event in written:
        assert event.keys() >= ALWAYS and event["kind"] in KINDS
        assert all(isinstance(value, FIELDS[name]) for name, value in event.items())
    for proc in {event["proc"] for event in written}:
        assert [e["seq"] for e in written if e["proc"] == proc] == list(
            range(1, sum(e["proc"] == proc for e in written) + 1)
        )
    assert [event["kind"] for event in written].count("log_end") == 2
    assert {event["boot_id"] for event in written} == {Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    verdict = LibraryHistory(drained={"x"}).add(read(log.parent)).verdict()
    assert (verdict.attempted, verdict.confirmed, verdict.received) == (total, total, total)
    assert (verdict.unexpected, verdict.unmarked) == (0, 0)


def test_sends_through_an_outage_of_the_only_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        words = (
            *QUEUE,
            "-m",
            "400",
            "--send-rate",
            "200",
            "--durable",
            "--report-total",
            "--json",
            "--report-every",
            "50",
        )
        sender = Tool("send", broker.address, *words, "--connection-options", QUICK, directory=tmp_path)
        wait_for(lambda: len(sender.printed) >= 2)
        broker.kill()
        broker.start()
        assert sender.wait() == 0, sender.complaints
        assert sender.report()["confirmed"] == 400
