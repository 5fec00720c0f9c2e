"""A cluster of real brokers for the acceptance tests: processes on loopback, promoted by request.

`Member` is one broker: a process with a port of its own, asked over its management requests.  `Cluster` is some of them
with the roles they have at the moment.  Nothing here sleeps: what takes time is polled with a deadline.

A cluster may be shared by many tests: `ready()` repairs what the test before has killed or stopped, and gives the
members in the order of their roles.  Tests therefore use object names of their own, and ask who is primary.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from client_lib import Connection
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from tests.support.process import READY, BrokerProcess
from tests.support.wait import wait_for

TIMEOUT = 60.0
"""Seconds; far beyond what anything here takes, on a busy machine too."""
ANSWER_TIME = 15.0
"""Seconds within which a broker that is not stopped answers a request."""
PEEK = 1000
"""The most messages in one answer of `queue.peek`."""
PEEK_OCTETS = 1_000_000
"""Octets of bodies from which an answer of `queue.peek` may end before its limit (1 MiB with headers)."""

DEFAULTS: dict[str, str] = {
    "link-maintenance-interval": "0.1",
    "ha-isolation-wait": "0.5",
    "log-enable": "info+",
    "ha-replicate": "all",
    "ha-username": "guest",
    "ha-password": "guest",
    "link-heartbeat-interval": "0.75",
    "ha-backup-timeout": "10",
    "ha-slow-backup-latency": "0",  # a busy machine makes any backup late; `test_late_backup` has the rule
}

Json = dict[str, Any]


class Member(BrokerProcess):
    """One broker of a cluster, or one that stands alone."""

    paused = False

    def start(self) -> Member:
        self.paused = False
        super().start()
        return self

    def pause(self) -> None:
        super().pause()
        self.paused = True

    def resume(self) -> None:
        super().resume()
        self.paused = False

    def ask(self, method: str, timeout: float = ANSWER_TIME, user: str = "guest", **arguments: Any) -> Any:
        """The result of a management request.  Raises `RequestRefused` with the broker's reason, `OSError` and other
        `BrokerError` when it cannot be asked."""
        login = Login(user, "guest" if user == "guest" else f"{user}-password")
        with ManagementSocket(Target("127.0.0.1", self.port, login), Deadline(timeout)) as connection:
            return connection.request(method, arguments)

    @property
    def status(self) -> str:
        """The state, "" when the broker does not answer."""
        if not self.running or self.paused:
            return ""
        try:
            return str(self.ask("ha.status")["state"])
        except (OSError, BrokerError):
            return ""

    def wait_status(self, *states: str, timeout: float = TIMEOUT) -> None:
        wait_for(lambda: self.status in states, timeout, lambda: f"{self.name} {states}, is {self.status}\n{self.log}")

    def promote_once(self, **arguments: Any) -> None:
        """Raises `RequestRefused`.  The promoted broker serves clients, but may still be recovering."""
        self.ask("ha.promote", **arguments)

    def promote(self) -> None:
        """As a resource manager does: again, until it is accepted.  (A busy broker may not answer in time.)"""
        first_promotable([self])

    @property
    def position(self) -> int:
        """Of its log: how far it has come, or has everything."""
        return int(self.ask("ha.query")["position"])

    def queues(self) -> dict[str, Json]:
        return {queue["name"]: queue for queue in self.ask("queue.list")}

    def peek(self, queue: str, limit: int = PEEK) -> list[str]:
        """Bodies of the messages of a queue, which stay there; works on backups.  No such queue: `RequestRefused`."""
        found = [message["body"] for message in self.ask("queue.peek", queue=queue, limit=limit)]
        assert sum(map(len, found)) < PEEK_OCTETS, "an answer of this size may lack messages: `browse` reads all"
        return found

    def browse(self, queue: str) -> list[bytes]:
        """Bodies of all messages of a queue, handed out ones, too, in order of their positions."""
        found: list[Json] = []
        while part := self.ask("queue.peek", queue=queue, limit=PEEK, after=found[-1]["position"] if found else 0):
            found += part
        return [base64.b64decode(message["body"]) for message in found]

    def parameters(self, admin: bool = False, **options: Any) -> pika.ConnectionParameters:
        if admin:
            options["client_properties"] = {"qpid.ha-admin": 1}
        credentials = options.pop("credentials", pika.PlainCredentials("guest", "guest"))
        return pika.ConnectionParameters("127.0.0.1", self.port, credentials=credentials, **options)

    def connect(self, admin: bool = False, **options: Any) -> pika.BlockingConnection:
        return pika.BlockingConnection(self.parameters(admin, **options))

    @contextlib.contextmanager
    def channel(self, admin: bool = False, confirm: bool = True, **options: Any) -> Iterator[BlockingChannel]:
        """A channel on a connection of its own, in confirm mode; both may be gone at the end."""
        connection = self.connect(admin, **options)
        try:
            channel = connection.channel()
            if confirm:
                channel.confirm_delivery()
            yield channel
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()


class Cluster:
    """`options` are those of the brokers, without dashes; they are added to DEFAULTS."""

    def __init__(self, directory: Path, size: int = 3, **options: str) -> None:
        self.directory = directory
        self._settings = DEFAULTS | {name.replace("_", "-"): value for name, value in options.items()}
        self.members = [self._make(number) for number in range(1, size + 1)]
        self._tell_addresses()

    def _make(self, number: int) -> Member:
        return Member(self.directory, name=f"node{number}")

    def _tell_addresses(self) -> None:
        settings = {"ha-cluster": "yes", "ha-brokers-url": self.url, **self._settings}
        words = [word for name, value in settings.items() if value for word in (f"--{name}", value)]
        for member in self.members:
            member.options = words

    @property
    def url(self) -> str:
        return ",".join(member.address for member in self.members)

    # ---- life

    def spawn(self) -> Cluster:
        """All processes, in state joining."""
        for member in self.members:
            member.spawn()
        for member in self.members:
            wait_started(member)
        return self

    def start(self) -> Cluster:
        """Formed: the first is active, the others ready."""
        self.spawn().members[0].promote()
        self.settle()
        return self

    def close(self) -> None:
        for member in self.members:
            member.close()
        left = [member.name for member in self.members if member.running]
        assert not left, f"still running: {left}"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # ---- who is what

    def settle(self, timeout: float = TIMEOUT) -> None:
        """Until one running broker is active and all others that run are ready."""
        wait_for(self._settled, timeout, lambda: f"one active, the others ready: {self.states()}", poll=0.02)

    def _settled(self) -> bool:
        states = sorted(member.status for member in self.running)
        return states == ["active"] + ["ready"] * (len(states) - 1)

    def states(self) -> dict[str, str]:
        return {member.name: member.status for member in self.members}

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.running and not member.paused]

    @property
    def primary(self) -> Member:
        found = [member for member in self.running if member.status in ("active", "recovering")]
        assert len(found) == 1, self.states()
        return found[0]

    @property
    def backups(self) -> list[Member]:
        return [member for member in self.running if member.status in ("joining", "catchup", "ready")]

    def ready(self) -> list[Member]:
        """Everybody runs; the primary, then the backups.  Whatever was done to them before."""
        try:
            self._repair()
        except (AssertionError, OSError, BrokerError):
            # Nothing that a test leaves behind may fail the next one: begin again with nothing.
            for member in self.members:
                if member.running:
                    member.kill()
                shutil.rmtree(member.data_dir, ignore_errors=True)
            self.start()
        primary = self.primary
        return [primary, *(member for member in self.members if member is not primary)]

    def _repair(self) -> None:
        for member in self.members:
            if member.running and member.paused:
                member.resume()
        missing = [member for member in self.members if not member.running]
        survivors = [member for member in self.members if member.running]
        for member in missing:
            member.spawn()
        for member in missing:
            wait_started(member)
        if not any(member.status in ("active", "recovering") for member in survivors):
            first_promotable(survivors or self.members)
        self.settle()

    # ---- what is done to them

    def fail_over(self, to: Member | None = None) -> Member:
        """kill -9 of the primary, promotion of `to` or of the first ready backup; active on return."""
        old = self.primary
        ready = wait_for(lambda: [member for member in self.backups if member.status == "ready"], TIMEOUT, "a backup")
        if to:
            # If the other backup were ahead of it, it would be refused.  (No client publishes meanwhile.)
            wait_for(lambda: len({member.position for member in ready}) == 1, TIMEOUT, "the backups at one position")
        old.kill()
        new = first_promotable([to] if to else ready)
        new.wait_status("active")
        return new

    def add(self) -> Member:
        """A broker more, told to the cluster and started; ready on return."""
        member = self._make(len(self.members) + 1)
        primary = self.primary
        self.members.append(member)
        member.options = [self.url if word == brokers_url(primary) else word for word in primary.options]
        primary.ask("ha.member", action="add", address=member.address)
        member.start().wait_status("ready")
        return member

    def bounce(self) -> Member:
        """As `fail_over`, and the old primary is back as a ready backup; the new one."""
        old = self.primary
        new = self.fail_over()
        old.start()
        self.settle()
        return new

    def restart(self, member: Member) -> None:
        """kill -9, and again; ready on return."""
        member.kill()
        member.start().wait_status("ready")

    # ---- clients

    @contextlib.contextmanager
    def channel(self, **options: Any) -> Iterator[BlockingChannel]:
        with self.primary.channel(**options) as channel:
            yield channel

    def library(self, **options: Any) -> Connection:
        """An open connection of the client library to the whole cluster."""
        settings: Json = {"heartbeat": 1, "connect_timeout": 2.0, **options}
        return Connection(self.url, **settings).open(TIMEOUT)


def brokers_url(member: Member) -> str:
    return member.options[list(member.options).index("--ha-brokers-url") + 1]


def wait_started(member: Member) -> None:
    member.paused = False
    wait_for(lambda: READY in member.log or not member.running, TIMEOUT, lambda: f"start of {member.name}")
    assert member.running, member.log


def first_promotable(members: Sequence[Member]) -> Member:
    """Promotes one of them; a refusal names the broker that is better, so the others are tried as well."""
    refusals: list[str] = []

    def promoted() -> Member | None:
        for member in members:
            try:
                member.promote_once()
                return member
            except (OSError, BrokerError) as error:  # refused, or too busy to answer
                refusals.append(str(error))
        return None

    found = wait_for(promoted, TIMEOUT, lambda: f"a promotion: {refusals[-len(members) :]}", poll=0.1)
    assert found is not None
    return found
