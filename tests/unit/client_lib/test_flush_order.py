"""What an application decides goes to the broker before what it asks next, whatever the I/O thread is doing."""

from types import SimpleNamespace
from typing import Any

from pika.exceptions import ConnectionWrongStateError

from client_lib.core.commands import Commands
from client_lib.core.ledger import Disposition, Settle
from client_lib.core.writing import Writing
from client_lib.monitor import ThreadMonitor


class Channel:
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
    monitor = ThreadMonitor()
    commands, channel = Commands(monitor), Channel()
    deliveries: Any = Decided()
    transport: Any = SimpleNamespace(blocked=True)
    publishing: Any = None
    writing = Writing(monitor, commands, publishing, deliveries, None, *[lambda: None] * 3)
    sent = channel.sent

    def first(_channel, _done):
        sent.append("first")
        # meanwhile the application releases a message and asks again
        deliveries.waiting.append(Settle(3, Disposition.RELEASE))
        commands.add(lambda _channel, _done: sent.append("second"), "second")

    commands.add(first, "first")
    writing.flush(channel, transport, lambda: True)
    assert sent == ["first", "reject 3", "second"]


def test_a_command_for_which_the_connection_is_gone_runs_on_the_next():
    """The connection has ended, and its channels are told one after the other."""
    commands, ran = Commands(ThreadMonitor()), []

    def ask(channel, done):
        ran.append(channel)
        if channel == "gone":
            raise ConnectionWrongStateError("the connection is not open")
        done("answer")

    future = commands.add(ask, "a question")
    commands.start("gone", lambda: None)
    assert not future.done() and commands.connection_lost(None) == []
    commands.start("next", lambda: None)
    assert future.result(0) == "answer" and ran == ["gone", "next"]
