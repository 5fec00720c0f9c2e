"""The small world with whole brokers in it: queues, exchanges and clients, not only logs."""

from __future__ import annotations

from typing import Any

import pamqp.commands as commands

from ha.node import Node
from ha.shell.cluster_hooks import ClusterHooks
from ha.shell.configuration import VHostConfiguration
from qpidd_py.broker.broker import Broker
from qpidd_py.core import Engine
from tests.unit.broker.peer import Peer
from tests.unit.ha.world import ENGINES, Host, World

TICK = 0.1
BEGINNING = 1_700_000_000_000
"""What the clocks show when the world begins: milliseconds since 1970."""


class BrokerHost(Host):
    """A broker as a process would have it."""

    node: Node

    def configure(self) -> None:
        self.broker = Broker(self.name, engine=Engine(segment_size=1 << 16))
        self.engine = self.broker.engine
        ENGINES.append(self.engine)
        self.broker.vhosts.rules.default_replicate, self.broker.vhosts.rules.clustered = "all", True
        self.broker.passive = True
        self.configuration = VHostConfiguration(self.broker)

    def boot(self) -> None:
        super().boot()
        self.broker.hooks = ClusterHooks(self.node)
        self.after(TICK, self._tick)

    def _tick(self) -> None:
        self.engine.now = BEGINNING + int(self.world.clock * 1000)
        self.engine.tick()
        self.broker.tick(self.world.clock)
        self.after(TICK, self._tick)

    def close_clients(self, code: int, text: str) -> None:
        super().close_clients(code, text)
        for connection in list(self.broker.connections):
            if connection.link is None:
                connection.close(code, text)

    def contents(self, queue: str) -> list[bytes]:
        found = self.broker.vhost.queues.get(queue)
        return [] if found is None else [message[5] for message in found.core.peek(1 << 30)]

    def queues(self) -> dict[str, tuple[int, int]]:
        """Of the replicated ones: position of the declaration and number."""
        queues = self.broker.vhost.queues.values()
        return {queue.name: (queue.position, queue.number) for queue in queues if queue.position}

    def client(self, vhost: str = "/") -> Client:
        return Client(self, vhost)


class Client(Peer):
    """A client of one broker, on channel 1."""

    def __init__(self, host: BrokerHost, vhost: str = "/") -> None:
        super().__init__(host.broker, vhost=vhost)
        self.host = host
        self.open_channel()

    def do(self, *methods: Any) -> list[Any]:
        """One after the other, each with its answer, which may take a while."""
        answers: list[Any] = []
        for method in methods:
            before = len(answers)
            self.send(1, method)
            self.host.world.until(lambda before=before: len(self._read(answers)) > before)  # type: ignore[misc]
        return answers

    def _read(self, answers: list[Any]) -> list[Any]:
        answers += self.frames()
        return answers

    def queue(
        self, name: str, *bodies: bytes, exclusive: bool = False, auto_delete: bool = False, **options: Any
    ) -> None:
        """Declares it; `options` are its arguments, with _ for -."""
        arguments = {key.replace("_", "-"): value for key, value in options.items()}
        declare = commands.Queue.Declare(queue=name, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments)
        (answer,) = self.do(declare)
        assert answer.name == "Queue.DeclareOk", answer.reply_text
        for body in bodies:
            self.publish(body, name)


class BrokerWorld(World):
    """Hosts are `BrokerHost`s."""

    host_type = BrokerHost

    def __getitem__(self, name: str) -> BrokerHost:
        host = super().__getitem__(name)
        assert isinstance(host, BrokerHost)
        return host

    def all_ready(self) -> None:
        """Every broker that lives is a complete backup of the primary, and has applied its whole log."""

        def done() -> bool:
            living = [host for host in self.hosts.values() if host.alive]
            states = sorted(host.state.value for host in living)
            ends = {host.engine.position for host in living}
            return states == ["active", *["ready"] * (len(living) - 1)] and len(ends) == 1

        self.run(0.05)
        self.until(done)

    def agree(self) -> None:
        """Each living broker has the same queues with the same messages."""
        self.all_ready()
        living = [self[host.name] for host in self.hosts.values() if host.alive]
        for host in living[1:]:
            assert host.queues() == living[0].queues()
            for name in host.queues():
                host.broker.vhost.queues[name].core.check()
                assert host.contents(name) == living[0].contents(name), name
            assert host.broker.configurations.snapshot() == living[0].broker.configurations.snapshot()
