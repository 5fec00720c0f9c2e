"""The code of docs/from-pika.md runs, and the links between page and library hold."""

import re
from pathlib import Path

import pytest

import client_lib
from client_lib.failover.channel import FailoverChannel
from client_lib.failover.connection import FailoverConnection
from tests.support.process import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "from-pika.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("page")) as found:
        yield found


def test_every_block_runs(broker) -> None:
    namespace: dict = {}
    for number, block in enumerate(BLOCKS, 1):
        text = block.replace('"node1,node2,node3"', repr(broker.address))
        text = text.replace('ConnectionParameters("node1"', f'ConnectionParameters("127.0.0.1", {broker.port}')
        assert "node1" not in text
        exec(compile(text, f"from-pika.md, block {number}", "exec"), namespace)
    assert sorted(namespace["done"]) == list(range(20))
    assert len(BLOCKS) >= 8


def test_names_on_the_page_exist() -> None:
    for name in re.findall(r"`client_lib\.([A-Z]\w+)`", PAGE):
        assert hasattr(client_lib, name), name
    for name in re.findall(r"`(\w+)\(", PAGE):
        known = any(hasattr(kind, name) for kind in (FailoverConnection, FailoverChannel))
        assert known or name in ("ChannelClosedByBroker",), name


def test_options_on_the_page_exist() -> None:
    import inspect

    from client_lib.options import Options

    known = {*inspect.signature(FailoverConnection).parameters, *inspect.signature(Options).parameters}
    named = ("publish_window", "publish_timeout", "open_timeout", "drop_duplicates", "reconnect_limit", "heartbeat")
    for name in named:
        assert name in known
        assert f"`{name}" in PAGE
