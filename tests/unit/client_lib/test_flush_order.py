"""What an application decides goes to the broker before what it asks next, whatever the I/O thread is doing."""

import threading
from types import SimpleNamespace
from typing import Any

from client_lib.core.channel_worker import ChannelWorker, State
from client_lib.core.ledger import Disposition, Settle


class Channel:
    is_open = True

    def __init__(self):
        self.sent = []

    def basic_reject(self, tag, requeue):
        self.sent.append(f"reject {tag}")


class Decided:
    """Of a session's deliveries, those that the broker was not told of."""

    def __init__(self):
        self.waiting = []

    @property
    def undecided(self):
        return len(self.waiting)

    def take(self):
        taken, self.waiting = self.waiting, []
        return taken


def test_a_decision_is_sent_before_the_command_that_follows_it():
    link: Any = SimpleNamespace(events=None, wake=lambda: None)
    worker: Any = ChannelWorker(link, "s", threading.Condition())
    worker.deliveries, worker._channel, worker.state = Decided(), Channel(), State.READY
    worker._send_messages = lambda: False
    sent = worker._channel.sent

    def first(_channel, _done):
        sent.append("first")
        # meanwhile the application releases a message and asks again
        worker.deliveries.waiting.append(Settle(3, Disposition.RELEASE))
        worker._commands.add(lambda _channel, _done: sent.append("second"))

    worker._commands.add(first)
    worker.flush()
    assert sent == ["first", "reject 3", "second"]
