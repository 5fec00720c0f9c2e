"""The demo's plain client goes on to the next address whenever a broker dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import StreamLostError

from demo.plain import Producer
from demo.progress import Slot, create

ADDRESSES = (("one", 1), ("two", 2))


class FakeConnection:
    """A broker; `one` dies as soon as the connection is open."""

    closed: list[str] = []

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self.host = parameters.host
        if self.host == "gone":
            raise ValueError("Expected connected socket, but getpeername() failed")  # as pika does

    def channel(self) -> Any:
        if self.host == "one":
            raise StreamLostError
        return self

    def queue_declare(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        self.closed.append(self.host)


def test_a_broker_that_dies_while_the_channel_is_opened_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConnection, "closed", [])
    monkeypatch.setattr(pika, "BlockingConnection", FakeConnection)
    create(tmp_path / "progress", 1)
    producer = Producer("p", "q", ADDRESSES, str(tmp_path), Slot(tmp_path / "progress", 0), 100.0, 1)
    with producer.connected() as channel:
        assert channel.host == "two"
    assert FakeConnection.closed == ["one", "two"]


def test_a_broker_that_dies_in_the_moment_in_which_it_accepts_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConnection, "closed", [])
    monkeypatch.setattr(pika, "BlockingConnection", FakeConnection)
    create(tmp_path / "progress", 1)
    producer = Producer("p", "q", (("gone", 1), *ADDRESSES), str(tmp_path), Slot(tmp_path / "progress", 0), 100.0, 1)
    with producer.connected() as channel:
        assert channel.host == "two"
