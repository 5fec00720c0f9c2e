"""A small world for HA tests: several nodes with real engines in one process, under a clock that the test drives.

Links are in-memory core connections; requests and frames take a little time; a broker can be killed, restarted,
paused, or cut off from another one.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ha.model.content import Journal
from ha.model.environment import EXIT_TWIN, Answer, Exchanged, Json, Outcome, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState
from ha.model.salvaged import Header
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.node import Node
from ha.promotion.promoter import Wish
from ha.requests import NodeRequests
from ha.shell.core_link import CoreLink
from qpidd_py.broker.snapshot import encode_snapshot
from qpidd_py.core import Connection, Engine, Queue, Route
from tests.support.memory import publish_octets
from tests.support.salvage import MemorySalvage

LATENCY = 0.0005
RETRANSMIT = 0.02
ENGINES: list[Engine] = []
"""Keeps engines alive: worlds are rings of references, and tests make hundreds of them."""


class FakeConfiguration:
    """Queues only, as JSON records."""

    def __init__(self) -> None:
        self.engine = Engine(self.apply, 1 << 16)
        ENGINES.append(self.engine)
        self.queues: dict[str, tuple[Queue, int, bytes]] = {}
        self.promotions = 0
        self.paused = self.throttled = ""
        self.busy = (0, 0)

    def declare(self, name: str) -> Queue:
        number = max((queue.number for queue, _, _ in self.queues.values()), default=0) + 1
        payload = json.dumps({"op": "declare", "name": name, "number": number}).encode()
        self._create(self.engine.log_config(payload), payload)
        return self.queues[name][0]

    def delete(self, name: str) -> None:
        self.engine.log_config(json.dumps({"op": "delete", "name": name}).encode())
        self._delete(name)

    def apply(self, position: int, payload: bytes) -> None:
        fields = json.loads(payload)
        if fields["op"] == "delete":
            self._delete(fields["name"])
        else:
            self._create(position, payload)

    def snapshot(self) -> bytes:
        return encode_snapshot([(uid, payload) for _, uid, payload in self.queues.values()])

    def adopting(self, records: list[tuple[int, bytes]]) -> Iterator[None]:
        wanted = {uid for uid, _ in records}
        for name in [name for name, (_, uid, _) in self.queues.items() if uid not in wanted]:
            self._delete(name)
        held = {uid for _, uid, _ in self.queues.values()}
        for uid, payload in records:
            if uid not in held:
                self._create(uid, payload)
                yield

    def replicated(self) -> Iterable[tuple[Queue, int]]:
        return [(queue, uid) for queue, uid, _ in self.queues.values()]

    def on_promoted(self) -> None:
        self.promotions += 1

    def on_deposed(self) -> None:
        self.promotions -= 1

    def pause_clients(self, reason: str) -> None:
        self.paused = reason

    def resume_clients(self) -> None:
        self.paused = ""

    def still_busy(self) -> tuple[int, int]:
        return self.busy

    def on_throttle(self, reason: str) -> None:
        self.throttled = reason

    def _create(self, uid: int, payload: bytes) -> None:
        fields = json.loads(payload)
        self.queues[fields["name"]] = (self.engine.create_queue(fields["number"], fields["name"], True), uid, payload)

    def _delete(self, name: str) -> None:
        self.engine.delete_queue(self.queues.pop(name)[0])


class FakeLink(CoreLink):
    """One end of a link."""

    def __init__(self, host: Host, peer: Host, receives_batches: bool) -> None:
        super().__init__(Connection(host.engine, self, True))
        self.host, self.peer_host = host, peer
        self.other: FakeLink | None = None
        self.open = True
        self.connection.switch_to_link(receives_batches)
        self.frames: list[int] = []
        self.wire: list[bytes] = []

    def send_frame(self, kind: int, position: int, body: bytes) -> None:
        self.frames.append(kind)
        super().send_frame(kind, position, body)

    def close(self) -> None:
        self.output_ready()
        self.open = False
        self.connection.close()
        other = self.other
        if other is not None:
            self.host.world.between(self.host, self.peer_host, lambda: other.lost("closed by the peer"))

    def lost(self, reason: str) -> None:
        if self.open:
            self.open = False
            self.connection.close()
            self.host.node.link_closed(self, reason)

    # the core's Owner
    def output_ready(self) -> None:
        data = self.connection.take_output()
        if self.other is not None and self.host.alive:
            self.wire.append(data)
            if len(self.wire) == 1:
                self.host.world.at(LATENCY, self.travel)

    def travel(self) -> None:
        """What is on the wire arrives, in order; while the way is cut it is sent again and again, as TCP does."""
        world, other = self.host.world, self.other
        if other is None or not other.open:
            return
        if frozenset((self.host.name, self.peer_host.name)) in world.cuts:
            world.at(RETRANSMIT, self.travel)
        elif self.peer_host.paused:
            world.stalled.append((self.peer_host, self.travel))
        else:
            data, self.wire = b"".join(self.wire), []
            other.feed(data)

    def feed(self, data: bytes) -> None:
        if self.open:
            self.connection.feed(data)
            self.host.engine.end_turn()

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        self.host.node.link_frame(self, kind, position, body)

    def link_batches(self, position: int) -> None:
        self.host.node.link_batches(self, position)

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        raise AssertionError(f"{self.host.name}: {text}")

    def closed(self, reason: str) -> None:
        raise AssertionError("in-memory connections do not close by themselves")


class Publisher:
    """A client connection that publishes with confirms, and consumes."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.connection = Connection(host.engine, self, True)
        self.channel = self.connection.open_channel(1)
        self.channel.confirm_select()
        self.confirmed = 0
        self.sent = 0
        self.bodies: list[bytes] = []
        self._input = b""

    def publish(self, queue: str, body: bytes) -> int:
        self.connection.feed(publish_octets(body, queue))
        self.sent += 1
        self.host.engine.end_turn()
        return self.sent

    def get(self, queue: str) -> bytes | None:
        """Take one message and acknowledge it."""
        found = self.channel.get(self.host.configuration.queues[queue][0], True)
        self.host.engine.end_turn()
        return self.bodies[-1] if found else None

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        return Route([self.host.configuration.queues[routing_key.decode()][0]])

    def output_ready(self) -> None:
        self._input += self.connection.take_output()
        while len(self._input) >= 8:
            length = int.from_bytes(self._input[3:7], "big")
            kind, payload = self._input[0], self._input[7 : 7 + length]
            self._input = self._input[8 + length :]
            if kind == 1 and payload[:4] == b"\x00\x3c\x00\x50":
                tag = int.from_bytes(payload[4:12], "big")
                self.confirmed = max(self.confirmed, tag)
            elif kind == 3:
                self.bodies.append(payload)

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        raise AssertionError(text)


class Host:
    """One broker: engine, configuration, node and its environment."""

    def __init__(self, world: World, name: str, settings: NodeSettings) -> None:
        self.world, self.name, self.settings = world, name, settings
        self.disk = HaState(id=f"id-{name}")
        self.salvaged: list[MemorySalvage] = []
        self.disk_error = ""
        """Why a write of the state fails; empty: it does not."""
        self.disk_room: int | None = None
        """Messages that a salvage file may hold; None: any number."""
        self.life = 0
        self.alive = False
        self.paused = False
        self.refuses = False
        """It lives, and its host refuses new connections."""
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.wall_offset = 0
        """Microseconds by which its wall clock is wrong."""
        self.closed_clients: list[str] = []
        self.ended = ""
        """Why the process has ended itself."""

    def boot(self) -> None:
        """Start with an empty memory and what is on disk."""
        self.alive, self.paused, self.ended = True, False, ""
        self.life = next(self.world.numbers)
        self.links: list[FakeLink] = []
        self.configure()
        instance = f"{self.name}-{self.life}"
        who = self.settings, self.engine, self.configuration, self, self.disk
        self.node = Node(LocalMember(*who, instance, self.make_journal()))
        self.requests = NodeRequests(self.node)
        self.engine.on_batch = self.node.batch
        self.engine.on_membership = self.node.membership
        life = self.life
        self.engine.schedule = lambda: self.world.at(0.0, self._guard(life, self.engine.end_turn))
        self.node.start()

    def make_journal(self) -> Journal | None:
        """The journal of a new life, if it has one."""
        return None

    def configure(self) -> None:
        """Make the engine and what it serves."""
        self.configuration: Any = FakeConfiguration()
        self.engine: Engine = self.configuration.engine

    @property
    def state(self) -> State:
        return self.node.local.state

    def kill(self) -> None:
        self.alive = False
        for link in self.links:
            if link.open and link.other is not None:
                link.open = False
                self.world.between(self, link.other.host, functools.partial(link.other.lost, "reset"), force=True)

    def break_links(self) -> None:
        """Every link of this broker is reset, at both ends."""
        for link in [link for link in self.links if link.open]:
            for end, peer in ((link, self), (link.other, link.peer_host)):
                self.world.between(self, peer, functools.partial(end.lost, "reset"))

    def _guard(self, life: int, call: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if not self.alive or self.life != life:
                return
            if self.paused:
                self.world.stalled.append((self, run))
            else:
                call()
                self.engine.end_turn()

        return run

    # ---- Environment
    def now(self) -> float:
        return self.world.clock

    def wall(self) -> int:
        return int(self.world.clock * 1e6) + self.wall_offset

    def after(self, delay: float, call: Callable[[], None]) -> None:
        self.world.at(delay, self._guard(self.life, call))

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Any], None]
    ) -> None:
        peer, life = self.world.hosts[address], self.life
        finish = self._once(done)

        def answer(end: Any) -> None:
            self.world.between(peer, self, self._guard(life, lambda: finish(end)), force=not peer.alive)

        def arrive() -> None:
            if not peer.alive or peer.refuses:
                answer(Answer(Outcome.REFUSED))
            elif not peer.node.local.state.is_primary:
                answer(Answer(Outcome.ANSWERED, error=peer.node.role.refusal_text()))
            else:
                mine, theirs = FakeLink(self, peer, True), FakeLink(peer, self, False)
                mine.other, theirs.other = theirs, mine
                self.links.append(mine)
                peer.links.append(theirs)
                peer.node.link_accepted(theirs, dict(properties))
                answer(mine)

        self.world.between(self, peer, arrive, guard=False)
        self.after(timeout, lambda: finish(Answer(Outcome.SILENT)))

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        peer, life = self.world.hosts[address], self.life
        finish = self._once(done)

        def answer(value: Answer) -> None:
            self.world.between(peer, self, self._guard(life, lambda: finish(value)), force=not peer.alive)

        def reply(value: Json) -> None:
            copy = json.loads(json.dumps(value))
            answer(Answer(Outcome.ANSWERED, copy.get("result", {}), copy.get("error", "")))

        def arrive() -> None:
            if not peer.alive or peer.refuses:
                answer(Answer(Outcome.REFUSED))
            else:
                assert peer.requests.request(method, json.loads(json.dumps(arguments)), reply, self.settings.username)
                peer.engine.end_turn()

        self.world.between(self, peer, arrive, guard=False)
        self.after(timeout, lambda: finish(Answer(Outcome.SILENT)))

    def _once(self, done: Callable[[Any], None]) -> Callable[[Any], None]:
        called: list[bool] = []

        def finish(value: Any) -> None:
            if called:
                if isinstance(value, FakeLink):
                    value.close()
                return
            called.append(True)
            done(value)

        return finish

    def persist(self, state: HaState) -> None:
        if self.disk_error:
            raise StateNotStored(self.disk_error)
        self.disk = HaState.from_json(json.loads(json.dumps(state.to_json())))

    def salvage(self, header: Header) -> MemorySalvage:
        return MemorySalvage(header, self.salvaged, self.disk_room)

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        world = self.world
        finish = self._once(done)

        def arrive() -> None:
            if self.name in world.registry_lost:
                return
            if state is not None:
                world.registry[self.name] = json.dumps(state.to_json())
            states = tuple(HaState.from_json(json.loads(entry)) for entry in world.registry.values())
            gone = frozenset(f"id-{name}" for name in world.fenced)
            world.at(LATENCY, self._guard(self.life, lambda: finish(Exchanged(states, gone=gone))))

        world.at(LATENCY, arrive)
        self.after(timeout, lambda: finish(Exchanged(error="no answer in time")))

    def end(self, reason: str, code: int = EXIT_TWIN) -> None:
        self.ended, self.exit_code = reason, code
        self.after(0.0, self.kill)

    def close_clients(self, code: int, text: str) -> None:
        self.closed_clients.append(text)

    def event(self, kind: str, **fields: object) -> None:
        self.events.append((kind, fields))

    def log(self, level: str, text: str) -> None:
        self.world.lines.append(f"{self.world.clock:9.4f} {self.name} {level}: {text}")

    # ---- what tests do
    def promote(self, force: bool = False, behind: bool = False, takeover: bool = False) -> list[Json]:
        replies: list[Json] = []
        self.node.promote(replies.append, Wish(force, behind, takeover))
        return replies

    def contents(self, queue: str) -> list[bytes]:
        found = self.configuration.queues.get(queue)
        return [] if found is None else [item[5] for item in found[0].peek(1 << 30)]


class World:
    """The clock, the wires, and the brokers."""

    host_type: type[Host] = Host

    def __init__(self, names: str = "abc", **settings: Any) -> None:
        self.clock = 0.0
        self.numbers = itertools.count(1)
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.stalled: list[tuple[Host, Callable[[], None]]] = []
        self.cuts: set[frozenset[str]] = set()
        self.registry: dict[str, str] = {}
        """The manager's registry, for worlds with `registry=True`."""
        self.registry_lost: set[str] = set()
        """Names of the brokers that cannot reach it."""
        self.fenced: set[str] = set()
        """Names of the brokers that it knows to be dead."""
        self.lines: list[str] = []
        addresses = tuple(f"{name}:1" for name in names)
        self.hosts: dict[str, Host] = {}
        for name, address in zip(names, addresses, strict=True):
            given = NodeSettings(name=name, address=address, brokers=addresses)
            self.hosts[address] = self.host_type(self, name, replace(given, **settings))
        for host in self.hosts.values():
            host.boot()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[f"{name}:1"]

    def at(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.clock + delay, next(self.numbers), call))

    def between(
        self, source: Host, target: Host, call: Callable[[], None], guard: bool = True, force: bool = False
    ) -> None:
        """Something travels from one broker to another; what meets a cut is gone, silently."""
        life = target.life

        def arrive() -> None:
            if frozenset((source.name, target.name)) in self.cuts:
                return
            if target.alive and target.paused:
                self.stalled.append((target, arrive))
            elif not guard or (target.alive and target.life == life):
                call()

        if source.alive or force:
            self.at(LATENCY, arrive)

    def cut(self, one: str, *others: str) -> None:
        self.cuts |= {frozenset((one, other)) for other in others}

    def heal(self) -> None:
        self.cuts.clear()

    def pause(self, name: str) -> None:
        self[name].paused = True

    def resume(self, name: str) -> None:
        host = self[name]
        host.paused = False
        for stalled in [item for item in self.stalled if item[0] is host]:
            self.stalled.remove(stalled)
            self.at(0.0, stalled[1])

    def run(self, seconds: float) -> None:
        end = self.clock + seconds
        while self.queue and self.queue[0][0] <= end:
            self.clock, _, call = heapq.heappop(self.queue)
            call()
        self.clock = end

    def step(self) -> None:
        """The next event."""
        self.clock, _, call = heapq.heappop(self.queue)
        call()

    def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> float:
        """Run until it holds; the seconds that it took."""
        start = self.clock
        while not condition():
            if not self.queue or self.clock - start > seconds:
                raise AssertionError("did not happen:\n" + "\n".join(self.lines[-60:]))
            self.step()
        return self.clock - start

    def promote(self, name: str, **how: Any) -> float:
        """Promote and wait for success; the seconds that it took."""
        start = self.clock
        replies = self[name].promote(**how)
        self.until(lambda: bool(replies))
        assert replies[0]["ok"], replies[0]
        return self.clock - start

    def refused(self, name: str, **how: Any) -> str:
        replies = self[name].promote(**how)
        self.until(lambda: bool(replies))
        assert not replies[0]["ok"], "was promoted"
        return str(replies[0]["error"])

    def cluster(self, primary: str = "a") -> None:
        """Promote one and wait until all others are ready."""
        self.run(0.01)
        self.promote(primary)
        others = [host for host in self.hosts.values() if host.name != primary]
        self.until(lambda: all(host.state is State.READY for host in others))
