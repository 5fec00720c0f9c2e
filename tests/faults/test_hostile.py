"""What a hostile program sends is accounted for, with and without faults, and its judge can fail."""

import random
from typing import Any

import pytest

from client_lib import Connection, Message
from client_lib.content import HEADERS_DEPTH_MAX
from tests.faults.hostile import HEADERS, KEYS, STYLES, Hostile, Tally, nested
from tests.faults.load import read_all
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for


@pytest.mark.parametrize("style", ["threaded", "asyncio", "pika"])
def test_all_is_accounted_for(style: str, tmp_path: Any) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    with BrokerProcess(tmp_path) as broker, Hostile(broker.address, "test", seed, style, rate=1000.0) as hostile:
        tally = hostile.tally
        wait_for(
            lambda: (
                hostile.failed
                or (
                    len(tally.confirmed) > 20 < len(tally.unsendable) < len(tally.refused)
                    and tally.requests.total() > 10
                )
            ),
            what=lambda: tally.line(),
        )
        hostile.finish()
        kept = {copy.body.decode().partition(" ")[0] for copy in read_all(broker.address, hostile.queue)}
    assert tally.problems(kept) == [], tally.line()
    assert len(tally.refused) > len(tally.unsendable), "some are refused by the broker"


def test_the_deepest_headers_and_arguments_that_our_broker_takes(tmp_path: Any) -> None:
    deepest = nested(HEADERS_DEPTH_MAX)
    with BrokerProcess(tmp_path) as broker, Connection(broker.address) as connection:
        session = connection.session()
        session.declare_queue("q", arguments=deepest)
        session.queue_sender("q").send(Message(b"x", properties=deepest), timeout=60)
        assert session.get("q", timeout=60).properties == deepest
        with pytest.raises(ValueError, match="more than 32 maps"):
            session.queue_sender("q").send(Message(b"x", properties=nested(HEADERS_DEPTH_MAX + 1)))
        assert connection.failovers == 0


def good() -> Tally:
    return Tally(4, {"1"}, {"2", "3"}, {"2"}, {"4"})


def test_a_good_account() -> None:
    assert good().problems({"1"}) == good().problems({"1", "3", "4"}) == []


@pytest.mark.parametrize(
    ("change", "kept", "problem"),
    [
        ({"sent": 5}, {"1"}, "5 sent, 4 accounted for"),
        ({"confirmed": {"1", "2"}, "sent": 5}, {"1", "2"}, "two outcomes"),
        ({}, set(), "confirmed and lost"),
        ({}, {"1", "2"}, "refused when it was encoded, and kept"),
        ({}, {"1", "9"}, "not sent, and kept"),
        ({"slow": ["publish: 50 s"]}, {"1"}, "slow"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], kept: set[str], problem: str) -> None:
    tally = good()
    for name, value in change.items():
        setattr(tally, name, value)
    assert any(text.startswith(problem) for text in tally.problems(kept))


def test_there_is_a_style_for_each_kind_of_soak() -> None:
    from tests.faults import soak

    assert set(STYLES) == set(soak.STYLES)
    assert len(KEYS) > 5 and len(HEADERS) > 20
