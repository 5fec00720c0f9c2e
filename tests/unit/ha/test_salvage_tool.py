"""`qpid-ha salvage`: what it asks, and what it prints."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from ha.qpid_ha.main import main
from tests.support.socket_broker import SocketBroker, closed_port

NAME = "20270115T080000Z-3.jsonl"


class FakeSalvage:
    """Hooks of a broker that answers what the test says."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requests: list[dict[str, Any]] = []
        self.brokers = ""

    def admit(self, connection: Any, properties: Any) -> None:
        return None

    def opened(self, connection: Any) -> bool:
        return False

    def connection_closed(self, connection: Any) -> None: ...

    def tick(self, now: float) -> None: ...

    def request(self, method: str, arguments: dict[str, Any], reply: Any, user: str) -> bool:
        if method == "ha.query":
            reply({"ok": True, "result": {"brokers_url": self.brokers}})
            return True
        assert method == "ha.salvage"
        self.requests.append(arguments)
        answer = self.answers[arguments["action"]]
        reply({"ok": True, "result": answer.pop(0) if isinstance(answer, list) else answer})
        return True


def tool(hooks: FakeSalvage, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    with SocketBroker(hooks) as broker:
        code = main(["salvage", *arguments, "-b", broker.address])
    return code, capsys.readouterr().out.splitlines()


FILE = {"file": NAME, "broker": "a-broker-with-a-long-name", "primary": "node2", "found": 3, "messages": 4}
FILE.update(restored=1, complete=False, octets=5_000_000)


def test_the_list_names_files_whole_and_fits_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = FakeSalvage(list={"files": [FILE, {"file": "broken", "error": "not a salvage file"}], "limit": 1})
    code, lines = tool(hooks, capsys, "list")
    assert code == 0
    assert any(line.startswith(f"{NAME}  a-broker-wi~  node2") for line in lines)
    assert all(len(line) <= 80 for line in lines[:-2])
    assert lines[-2:] == [
        f"{NAME}: cut off: 3 of 4 messages, the broker died while it wrote them",
        "broken: not a salvage file",
    ]


def test_the_list_of_all_brokers_says_who_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = FakeSalvage(list={"files": [FILE], "limit": 1})
    port = closed_port()
    with SocketBroker(hooks) as broker:
        hooks.brokers = f"{broker.address},127.0.0.1:{port}"
        code = main(["salvage", "list", "--all", "-b", broker.address])
        lines = capsys.readouterr().out.splitlines()
        assert main(["salvage", "list", "--all", "--json", "-b", broker.address]) == 0
    assert code == 0
    assert sum(NAME in line for line in lines) == 2
    assert lines[-1] == f"ConnectionRefusedError: 127.0.0.1:{port}: Connection refused"
    found = json.loads(capsys.readouterr().out)
    assert ([len(found[0]["files"]), sorted(found[1])]) == [1, ["address", "error"]]


def test_show_takes_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    message = {"id": "2.7", "queue": "q" * 90, "grade": "confirmed", "octets": 5, "state": "", "body": "text" * 99}
    pages = [{**FILE, "messages": [{**message, "number": n}], "left": 2 - n} for n in (1, 2)]
    hooks = FakeSalvage(show=pages)
    code, lines = tool(hooks, capsys, "show", NAME)
    assert code == 0
    assert [request["offset"] for request in hooks.requests] == [0, 1]
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-3].startswith("1 ") and lines[-2].startswith("2 ")
    pages[:] = [{**FILE, "messages": [{**message, "number": n}], "left": 2 - n} for n in (1, 2)]
    assert len(json.loads("".join(tool(hooks, capsys, "show", NAME, "--json")[1]))["messages"]) == 2


def result(**fields: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("restored", "before", "maybe_twice", "next"), 0)
    return {"file": NAME, **zeros, "stay": [], "untold": [], "error": "", **fields}


def test_restore_goes_on_until_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    stay = [{"queue": "q", "why": "no such queue", "messages": 2}]
    hooks = FakeSalvage(restore=[result(restored=5, next=7, stay=stay, maybe_twice=1), result(restored=3, stay=stay)])
    code, lines = tool(hooks, capsys, "restore", NAME)
    assert [request["after"] for request in hooks.requests] == [0, 7]
    assert lines == [
        "8 messages restored",
        "1 of them may be there twice: an earlier restore was interrupted",
        "4 stay in the file, queue q: no such queue",
    ]
    assert code == 1


def test_restore_names_who_was_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = FakeSalvage(restore=[result(restored=5, next=7, untold=["b:1"]), result(untold=["b:1", "c:1"])])
    assert tool(hooks, capsys, "restore", NAME) == (
        0,
        [
            "5 messages restored",
            "not informed: b:1, c:1; files there may hold the same messages, not marked as restored",
        ],
    )


def test_restore_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = FakeSalvage(restore=[result(restored=5, next=7, error="b:1: the connection was closed")])
    assert tool(hooks, capsys, "restore", NAME) == (
        1,
        ["5 messages restored", "not finished: b:1: the connection was closed"],
    )
    hooks = FakeSalvage(restore=[result(restored=5, before=2)])
    assert tool(hooks, capsys, "restore", NAME) == (0, ["5 messages restored, 2 were before"])


def test_discard_says_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = FakeSalvage(discard={"file": NAME, "dropped": 3})
    line = f"{NAME} is discarded, with 3 messages that were not restored"
    assert tool(hooks, capsys, "discard", NAME, "--yes") == (0, [line])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_without_a_terminal_nothing_is_discarded(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    hooks = FakeSalvage(discard={"file": NAME, "dropped": 3})
    code, lines = tool(hooks, capsys, "discard", NAME, *options)
    assert code == 2
    assert f"no terminal to ask at, {NAME} is kept; --yes deletes it" in "".join(lines)
    assert hooks.requests == []


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("yes\n", 0), ("\n", 1), ("no\n", 1), ("", 1)])
def test_at_a_terminal_discard_asks(
    typed: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(typed))
    hooks = FakeSalvage(list={"files": [FILE], "limit": 1}, discard={"file": NAME, "dropped": 2})
    assert tool(hooks, capsys, "discard", NAME)[0] == code
    assert [arguments["action"] for arguments in hooks.requests] == (["list", "discard"] if code == 0 else ["list"])


@pytest.mark.parametrize(
    "arguments", [["restore"], ["show"], ["discard"], ["burn"], [], ["list", NAME], ["show", "--all", NAME]]
)
def test_what_the_tool_does_not_understand(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = tool(FakeSalvage(), capsys, *arguments)
    assert code == 1
    assert lines[-1].startswith("UsageError")
