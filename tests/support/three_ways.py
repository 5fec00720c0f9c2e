"""One client's conversation against a broker that stands alone, against a cluster of three, and against one whose
primary dies in the middle of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pamqp.header
from pamqp import commands

from qpidd_py.amqp.codec import encode_method, make
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from tests.interop.raw import RawClient
from tests.support.members import TIME, Members
from tests.support.memory import publish_octets
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

WAYS = ("alone", "cluster", "fail-over")

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue


class Client(RawClient):
    """With a channel 1 that is open."""

    persistent = False
    """Whether what it publishes survives a restart of a broker with a journal."""

    def ask(self, command: Any, channel: int = 1) -> Any:
        """The next method on any channel."""
        self.send(encode_method(channel, command))
        return self.read()[1]

    def declare(self, queue: str, durable: bool = True, **options: Any) -> Any:
        """declare-ok, or what comes instead."""
        self.send(declaration(queue, durable, **options))
        return self.read()[1]

    def refusal(self, command: Any) -> int:
        """The code with which the channel is closed for it (and opened again); 0 if it is not."""
        self.send(command if isinstance(command, bytes) else encode_method(1, command))
        answer = self.read()[1]
        if not isinstance(answer, Channel.Close):
            return 0
        self.send(encode_method(1, Channel.CloseOk()))
        self.open_channel(1)
        return int(answer.reply_code or 0)

    def count(self, queue: str) -> int:
        answer = self.ask(Queue.Declare(queue=queue, passive=True))
        assert isinstance(answer, Queue.DeclareOk), answer
        return int(answer.message_count or 0)

    def publish(self, body: bytes, queue: str, **options: Any) -> None:
        mode: dict[str, Any] = {"delivery_mode": 2} if self.persistent else {}
        self.send(publish_octets(body, queue, **mode, **options))

    def confirmed(self, *bodies: bytes, queue: str, **options: Any) -> list[bool]:
        """Whether each was confirmed or refused, in their order.  The channel is in confirm mode."""
        answers: list[bool] = []
        for body in bodies:
            self.publish(body, queue, **options)
            answers.append(isinstance(self.read()[1], Basic.Ack))
        return answers

    def confirming(self) -> Client:
        self.call(1, Confirm.Select(), Confirm.SelectOk)
        return self

    def get(self, queue: str, no_ack: bool = True) -> tuple[Any, dict[str, Any], bytes] | None:
        """get-ok, the headers and the body; None for get-empty."""
        answer = self.ask(Basic.Get(queue=queue, no_ack=no_ack))
        return None if isinstance(answer, Basic.GetEmpty) else (answer, *self.content())

    def content(self) -> tuple[dict[str, Any], bytes]:
        """What follows get-ok, deliver and return."""
        header = self.read()[1]
        assert isinstance(header, pamqp.header.ContentHeader), header
        body = b""
        while len(body) < header.body_size:
            body += self.read()[1].value
        return header.properties.headers or {}, body

    def bodies(self, queue: str) -> list[bytes]:
        """Takes all that is ready."""
        found = []
        while (message := self.get(queue)) is not None:
            found.append(message[2])
        return found


def declaration(queue: str, durable: bool = True, **options: Any) -> bytes:
    """The frame of a queue.declare with any name."""
    flags = dict.fromkeys(("passive", "exclusive", "auto_delete", "nowait"), False)
    fields = {"ticket": 0, "queue": queue, "durable": durable, "arguments": {}, **flags, **options}
    return encode_method(1, make(Queue.Declare, **fields))


class Site:
    """Brokers that a test talks to in one of `WAYS`."""

    def __init__(self, way: str, brokers: BrokerProcess | Members) -> None:
        self.way = way
        self._brokers = brokers
        self._primary = "a"
        self._clients: list[Client] = []

    @property
    def port(self) -> int:
        return self._brokers.port if isinstance(self._brokers, BrokerProcess) else self._of(self._primary).port

    @property
    def backups(self) -> list[str]:
        brokers = self._brokers
        return [name for name in brokers.brokers if name != self._primary] if isinstance(brokers, Members) else []

    def ask(self, name: str, request: str) -> Any:
        assert isinstance(self._brokers, Members)
        return self._brokers.ask(name, request)

    def ask_primary(self, request: str, **arguments: Any) -> Any:
        with ManagementSocket(Target("127.0.0.1", self.port), Deadline(TIME)) as connection:
            return connection.request(request, arguments)

    def _of(self, name: str) -> BrokerProcess:
        assert isinstance(self._brokers, Members)
        return self._brokers.brokers[name]

    def client(self, **options: Any) -> Client:
        client = Client(self.port)
        self._clients.append(client)
        client.open(**options)
        return client

    def middle(self) -> Client:
        """All clients lose their connections; one comes back.  Where the way is a fail-over it finds a new primary,
        which has all that was done before."""
        self.client().declare("the-middle")  # answered when the backups have it, and with it what came before
        if self.way in ("fail-over", "joined"):
            self._fail_over()
        for client in self._clients:
            client.close()
        return self.client()

    @property
    def mark(self) -> dict[str, bool]:
        """In the headers of what is sent on after the middle: an earlier primary may have done so."""
        return {"x-resent": True} if self.way in ("fail-over", "joined") else {}

    def _fail_over(self) -> None:
        members, old = self._brokers, self._primary
        assert isinstance(members, Members)
        members.brokers[old].kill()
        self._primary = members.promote_newest(*(name for name in members.brokers if name != old))
        wait_for(lambda: members.states()[self._primary] == "active", TIME, "the new primary is active")

    def begin(self) -> Site:
        """For the next test: whole, without queues of the last one."""
        if isinstance(self._brokers, Members):
            for broker in self._brokers.brokers.values():
                if not broker.running:
                    broker.start()
            states = self._brokers.states()
            self._primary = next(name for name, state in states.items() if state in ("active", "recovering"))
            self._brokers.settled(self._primary)
        return self

    def end(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()


def alone(directory: Path) -> BrokerProcess:
    return BrokerProcess(directory)


def cluster(directory: Path) -> Members:
    """Up."""
    members = Members(directory)
    try:
        members.up()
    except BaseException:
        members.close()
        raise
    return members
