"""A declaration whose answer waits for the backups: the time of a queue that is given up begins with the answer."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from pamqp import commands

from tests.support.members import TIME, Members
from tests.support.three_ways import Client, declaration
from tests.support.wait import wait_for

Basic, Queue = commands.Basic, commands.Queue
TIMES = [{"qpid.auto_delete_timeout": 1}, {"x-expires": 1000}]


@pytest.mark.parametrize("arguments", TIMES, ids=["auto-delete", "expires"])
def test_a_queue_is_there_when_its_declaration_is_answered(tmp_path: Path, arguments: dict[str, int]) -> None:
    """Three seconds later than its time."""
    with closing(Members(tmp_path, "--ha-safety", "quorum", "--link-heartbeat-interval", "20")) as members:
        members.up()
        client = Client(members.brokers["a"].port)
        client.open()
        client.declare("q", auto_delete=True, arguments=arguments)
        client.call(1, Basic.Consume(queue="q", consumer_tag="c"), Basic.ConsumeOk)
        for name in "bc":
            members.brokers[name].pause()
        client.close()  # and with it the consumer: the time runs
        client = Client(members.brokers["a"].port)
        client.open()
        client.send(declaration("q", auto_delete=True, arguments=arguments))
        began = time.monotonic()
        wait_for(lambda: time.monotonic() - began > 3.0)
        for name in "bc":
            members.brokers[name].resume()
        assert isinstance(client.read()[1], Queue.DeclareOk)
        client.call(1, Basic.Consume(queue="q", consumer_tag="c"), Basic.ConsumeOk)
        client.call(1, Basic.Cancel("c"), Basic.CancelOk)
        wait_for(lambda: client.refusal(Queue.Declare(queue="q", passive=True)) == 404, TIME, "it is given up")
