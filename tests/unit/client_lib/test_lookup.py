"""Names without blocking."""

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from client_lib import Connection, Timeout
from client_lib.connecting import lookup
from client_lib.connecting.lookup import Resolver, interleaved
from client_lib.urls.url import Endpoint
from tests.support.wait import wait_for

Calls = queue.Queue[Callable[[], None]]


def answers(monkeypatch: pytest.MonkeyPatch, getaddrinfo: Callable[..., Any]) -> tuple[Resolver, Calls]:
    monkeypatch.setattr(lookup, "getaddrinfo", getaddrinfo)
    calls: Calls = queue.Queue()
    return Resolver(calls.put), calls


def test_the_answer_comes_in_the_loops_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def getaddrinfo(*_: Any) -> Any:
        threads.append(threading.current_thread())
        return [(socket.AF_INET6, 1, 6, "", ("fe80::1%eth0", 0, 0, 2)), (socket.AF_INET, 1, 6, "", ("10.0.0.1", 0))]

    resolver, calls = answers(monkeypatch, getaddrinfo)
    got: list[Sequence[str]] = []
    resolver.look_up(Endpoint("name"), lambda ips, _: got.append(ips))
    answer = calls.get(timeout=30)
    assert got == []
    answer()
    assert got == [["fe80::1%eth0", "10.0.0.1"]]
    assert threads[0] is not threading.current_thread() and threads[0].daemon


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (UnicodeError("label too long"), "label too long"),
        (RuntimeError("a defect"), "a defect"),
    ],
)
def test_failures_are_told_in_words(monkeypatch: pytest.MonkeyPatch, error: Exception, text: str) -> None:
    def getaddrinfo(*_: Any) -> Any:
        raise error

    resolver, calls = answers(monkeypatch, getaddrinfo)
    got: list[tuple[Sequence[str], str]] = []
    resolver.look_up(Endpoint("name"), lambda ips, reason: got.append((ips, reason)))
    calls.get(timeout=30)()
    assert got[0][0] == [] and text in got[0][1]


def test_a_name_that_is_being_looked_up_is_not_looked_up_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    release, asked = threading.Event(), []

    def getaddrinfo(host: str, *_: Any) -> Any:
        asked.append(host)
        release.wait(30)
        return [(socket.AF_INET, 1, 6, "", ("10.0.0.1", 0))]

    resolver, calls = answers(monkeypatch, getaddrinfo)
    got: list[Sequence[str]] = []
    for _ in range(3):
        resolver.look_up(Endpoint("name"), lambda ips, _: got.append(ips))
    wait_for(lambda: asked)
    release.set()
    calls.get(timeout=30)()
    assert asked == ["name"] and got == [["10.0.0.1"]] * 3
    resolver.look_up(Endpoint("name"), lambda ips, _: got.append(ips))
    calls.get(timeout=30)()
    assert asked == ["name", "name"]


def test_no_caller_is_told_after_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver, calls = answers(monkeypatch, lambda *_: [])
    got: list[Any] = []
    resolver.look_up(Endpoint("name"), lambda *answer: got.append(answer))
    resolver.forget()
    calls.get(timeout=30)()
    assert got == []


@pytest.mark.parametrize(
    ("ips", "mixed"),
    [
        ([], []),
        (["1.1.1.1", "2.2.2.2", "1.1.1.1"], ["1.1.1.1", "2.2.2.2"]),
        (["a::", "b::", "c::", "1.1.1.1"], ["a::", "1.1.1.1", "b::", "c::"]),
        (["1.1.1.1", "a::", "b::", "2.2.2.2"], ["1.1.1.1", "a::", "2.2.2.2", "b::"]),
        (["a::", "1.1.1.1", "2.2.2.2"], ["a::", "1.1.1.1", "2.2.2.2"]),
    ],
)
def test_ipv6_and_ipv4_by_turns(ips: list[str], mixed: list[str]) -> None:
    assert interleaved(ips) == mixed


def test_an_unknown_name_is_told_at_once_and_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def getaddrinfo(*_: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(lookup, "getaddrinfo", getaddrinfo)
    connection = Connection("nowhere:5")
    try:
        with pytest.raises(Timeout, match=r"not connected within 0\.3 s; last: nowhere:5: Name or service not known"):
            connection.open(0.3)
    finally:
        connection.close()
    lines = [record.message for record in caplog.records if "nowhere:5" in record.message]
    assert len(lines) == 1
    assert lines[0].endswith("cannot connect to nowhere:5: Name or service not known")


def test_a_name_server_that_does_not_answer_is_told_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def getaddrinfo(*_: Any) -> Any:
        release.wait(30)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(lookup, "getaddrinfo", getaddrinfo)
    connection = Connection("nowhere:5")
    try:
        with pytest.raises(Timeout, match="nowhere:5: the name is still being looked up"):
            connection.open(0.2)
    finally:
        release.set()
        connection.close()
