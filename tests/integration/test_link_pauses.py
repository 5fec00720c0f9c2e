"""Processes that are stopped (SIGSTOP): brokers, and the client itself."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from client_lib import Connection
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker

CLIENT = """
import sys
from client_lib import Connection
with Connection(sys.argv[1], heartbeat=1, event_log=sys.argv[2]) as connection:
    print("connected", flush=True)
    sys.stdin.read()
"""


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _back(event: dict[str, Any]) -> bool:
    return event["kind"] == "connected" and "outage_us" in event["attrs"]


def test_a_paused_broker_in_the_list_costs_the_overlap(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first, paused, third = (stack.enter_context(BrokerProcess(tmp_path / n, name=n)) for n in ("a", "b", "c"))
        seen: list[dict[str, Any]] = []
        urls = [first.address, paused.address, third.address]
        stack.enter_context(
            Connection(urls, connect_timeout=60.0, on_event=lambda event: seen.append(dict(event))).open(30)
        )
        paused.pause()
        first.kill()
        back = wait_for(lambda: [e for e in seen if _back(e)])[0]
        assert back["peer"] == third.address
        assert 150_000 <= int(back["attrs"]["outage_us"]) < 20_000_000
        paused.resume()


def test_a_client_that_was_paused_does_not_blame_the_broker(tmp_path: Path) -> None:
    """For four intervals; this broker is patient and speaks on meanwhile."""
    broker, log = ScriptedBroker(), tmp_path / "events.jsonl"
    command = [sys.executable, "-c", CLIENT, broker.url, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout and client.stdout.readline() == b"connected\n"
            client.send_signal(signal.SIGSTOP)
            began, before = time.monotonic(), broker.heartbeats
            wait_for(lambda: time.monotonic() - began > 4)
            assert broker.heartbeats <= before + 1
            client.send_signal(signal.SIGCONT)
            wait_for(lambda: broker.heartbeats >= before + 5)
        finally:
            client.send_signal(signal.SIGCONT)
            client.communicate(timeout=30)
            broker.kill()
    kinds = [event["kind"] for event in events(log)]
    assert kinds.count("connected") == 1 and kinds[-1] == "log_end", "a slow first attempt may have been made twice"
