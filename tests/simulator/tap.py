"""What the processes of a simulation would have written about themselves: broker rows and client rows, in virtual time.

A broker's rows are those that its HA core gives to its environment.  A client's rows are read off its connection, as
octets that it sends and frames that it gets, so that they share nothing with what `history.py` is told.

    publish, nack, return, deliver      the frame
    confirm                             basic.ack by the broker; tx.commit-ok for all publishes of the transaction
    ack, release, reject                what the client sends; in a transaction when it sends tx.commit
    connected, disconnected             the connection is open, is gone

A message is a copy (`history.py`) in one queue.  One that an exchange has put into several queues counts as several
messages here, named PRODUCER/QUEUE:NUMBER; any other one is named as in its message-id, PRODUCER:NUMBER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ha.shell.events import row
from ha.shell.told import started
from qpidd_py.amqp.client_handshake import ContentReceived, MethodReceived
from tests.simulator import amqp
from tests.simulator.checks import contents, name_of
from tests.simulator.process import WALL

if TYPE_CHECKING:
    from tests.simulator.clients import Client
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

Row = dict[str, Any]
Place = tuple[str, str]
"""Queue, and the name of a message in it."""
AUDITOR: Final = "auditor"
"""The client that takes what is left at the end."""
CONFIRM_SELECT, TX_SELECT, TX_COMMIT, TX_ROLLBACK = 0x0055000A, 0x005A000A, 0x005A0014, 0x005A001E
CONSUME, PUBLISH, GET = 0x003C0014, 0x003C0028, 0x003C0046
_NO_ACK: Final = 2


class Tap:
    """Hears everything and writes nothing."""

    def begin(self, simulation: Simulation) -> None:
        """Before anything happens."""

    def started(self, process: BrokerProcess) -> None:
        """A broker begins a life."""

    def broker(self, process: BrokerProcess, kind: str, fields: Mapping[str, Any]) -> None:
        """A broker's core says this."""

    def opened(self, client: Client) -> None:
        """connection.open-ok"""

    def lost(self, client: Client, reason: str) -> None:
        """An open connection is gone."""

    def sent(self, client: Client, octets: bytes) -> None:
        """Whole frames."""

    def received(self, client: Client, event: object) -> None:
        """What the client's connection makes of what came."""

    def end(self) -> None:
        """The cluster is whole and drained."""


@dataclass
class Talk:
    """One connection: what was said on it, as far as later frames refer to it."""

    transaction: bool = False
    tag: int = 0
    unconfirmed: dict[int, list[Place]] = field(default_factory=dict)
    uncommitted: list[tuple[str, Place]] = field(default_factory=list)
    """Settlements (kind of row, place) of the open transaction."""
    committing: list[Place] = field(default_factory=list)
    """Publishes of the transaction that waits for commit-ok."""
    consumers: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Queue, and whether it acknowledges by itself; by consumer tag."""
    asked: str = ""
    """The queue of the last basic.get."""
    unsettled: dict[int, Place | None] = field(default_factory=dict)
    """By delivery tag; None for a message that is no concern of ours."""
    expecting: tuple[int, bytes] = (0, b"")
    """The method whose content comes."""
    publishing: bool = False
    body: bytes = b""
    missing: int = 0


class Recorder(Tap):
    """`logs`: the rows by the name of the process that would have written them; `times`: their virtual times, in us."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Row]] = {}
        self.times: dict[str, list[int]] = {}
        self._talks: dict[str, Talk] = {}
        self._took: dict[str, set[str]] = {}
        self._fanned: set[str] = set()
        """Ids of messages that are in several queues."""

    def begin(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def _next(self, name: str) -> int:
        return len(self.logs.get(name, ())) + 1

    def _write(self, name: str, said: Row, now: float) -> None:
        self.logs.setdefault(name, []).append(said)
        self.times.setdefault(name, []).append(round(1e6 * now))

    # ---- brokers ----------------------------------------------------------------------------------------------------

    def started(self, process: BrokerProcess) -> None:
        self.broker(process, "start", {"attrs": started(process.node)})

    def broker(self, process: BrokerProcess, kind: str, fields: Mapping[str, Any]) -> None:
        name = f"{process.name}:{process.life}"
        common = {"cluster": "", "node": process.name, "source": "broker", "proc": name, "boot_id": process.name}
        now = self._simulation.scheduler.now
        wall, mono = process.wall_clock_us(), round(1e6 * (now + process.clock.offset))
        found = row(common, self._next(name), wall, mono, kind, process.node.local.epoch, fields)
        if found.get("msg_id") in self._fanned:
            found["msg_id"] = _placed(found["msg_id"], found["queue"])
            if "last" in found["attrs"]:
                found["attrs"]["last"] = _placed(found["attrs"]["last"], found["queue"])
        self._write(name, found, now)

    # ---- clients ----------------------------------------------------------------------------------------------------

    def _say(self, client: str, kind: str, place: Place | None = None, **fields: Any) -> None:
        now = self._simulation.scheduler.now
        common = {"cluster": "", "node": "clients", "source": "client", "proc": client, "boot_id": "clients"}
        said: Row = {**common, "client_id": client, "seq": self._next(client)}
        said |= {"ts_wall": round(1e6 * (WALL + now)), "ts_mono": round(1e6 * now), "ts_res": 1, "kind": kind}
        if place is not None:
            said |= {"queue": place[0], "msg_id": place[1]}
        self._write(client, said | {name: value for name, value in fields.items() if value}, now)

    def opened(self, client: Client) -> None:
        self._talks[client.name] = Talk()
        self._say(client.name, "connected", peer=client.broker.address)

    def lost(self, client: Client, reason: str) -> None:
        del self._talks[client.name]
        self._say(client.name, "disconnected", peer=client.broker.address, reason=reason)

    def sent(self, client: Client, octets: bytes) -> None:
        talk = self._talks.get(client.name, Talk())  # it may still answer what has come with the end
        for kind, payload in _frames(octets):
            if kind == 1:
                self._sent_method(client.name, talk, int.from_bytes(payload[:4], "big"), payload)
            elif talk.publishing:
                self._content(talk, kind == 2, payload, lambda body: self._published(client.name, talk, body))

    def _sent_method(self, client: str, talk: Talk, method: int, payload: bytes) -> None:
        talk.publishing = method == PUBLISH
        if method == TX_SELECT:
            talk.transaction = True
        elif method == CONSUME:
            queue, tag, flags = _consume(payload)
            talk.consumers[tag] = queue, bool(flags & _NO_ACK)
        elif method == GET:
            talk.asked = payload[7 : 7 + payload[6]].decode()
        elif method in (amqp.ACK, amqp.NACK, amqp.REJECT):
            self._settled(client, talk, method, payload)
        elif method in (TX_COMMIT, TX_ROLLBACK):
            self._transaction_ends(client, talk, method == TX_COMMIT)

    def _published(self, client: str, talk: Talk, body: bytes) -> None:
        talk.tag += 1
        talk.unconfirmed[talk.tag] = places = self._places(name_of(body))
        for place in places:
            self._say(client, "publish", place)

    def _settled(self, client: str, talk: Talk, method: int, payload: bytes) -> None:
        tag, flags = int.from_bytes(payload[4:12], "big"), payload[12]
        multiple = method != amqp.REJECT and bool(flags & 1)
        requeue = bool(flags & (2 if method == amqp.NACK else 1))
        kind = "ack" if method == amqp.ACK else "release" if requeue else "reject"
        for each in [each for each in talk.unsettled if each == tag or (multiple and each <= tag)]:
            place = talk.unsettled.pop(each)
            if place is not None and talk.transaction:
                talk.uncommitted.append((kind, place))
            elif place is not None:
                self._say(client, kind, place)

    def _transaction_ends(self, client: str, talk: Talk, commit: bool) -> None:
        if commit:
            for kind, place in talk.uncommitted:
                self._say(client, kind, place)
            talk.committing += [place for places in talk.unconfirmed.values() for place in places]
        talk.uncommitted.clear()
        talk.unconfirmed.clear()

    def received(self, client: Client, event: object) -> None:
        talk = self._talks.get(client.name)
        if talk is None:
            return
        if isinstance(event, MethodReceived):
            self._got_method(client.name, talk, event.payload)
        elif isinstance(event, ContentReceived):
            self._content(talk, event.is_header, event.payload, lambda body: self._got(client.name, talk, body))

    def _got_method(self, client: str, talk: Talk, payload: bytes) -> None:
        method = int.from_bytes(payload[:4], "big")
        if method in (amqp.DELIVER, amqp.GET_OK, amqp.RETURN):
            talk.expecting = method, payload
        elif method in (amqp.ACK, amqp.NACK):
            tag, multiple = int.from_bytes(payload[4:12], "big"), bool(payload[12] & 1)
            for each in [each for each in talk.unconfirmed if each == tag or (multiple and each <= tag)]:
                for place in talk.unconfirmed.pop(each):
                    self._say(client, "confirm" if method == amqp.ACK else "nack", place)
        elif method == amqp.COMMIT_OK:
            for place in talk.committing:
                self._say(client, "confirm", place)
            talk.committing.clear()

    def _got(self, client: str, talk: Talk, body: bytes) -> None:
        method, payload = talk.expecting
        if method == amqp.RETURN:
            for returned in self._places(name_of(body)):
                self._say(client, "return", returned)
            return
        deliver = amqp.read_deliver(payload)
        found = talk.consumers.get(payload[5 : 5 + payload[4]].decode()) if method == amqp.DELIVER else None
        queue, alone = found or (talk.asked, False)
        place = self._place(queue, name_of(body))
        if place is not None:
            self._took.setdefault(client, set()).add(queue)
            self._say(client, "deliver", place, redelivered=deliver.redelivered)
        if not alone:
            talk.unsettled[deliver.tag] = place
        elif place is not None:
            self._say(client, "ack", place)

    @staticmethod
    def _content(talk: Talk, is_header: bool, payload: bytes, done: Callable[[bytes], None]) -> None:
        if is_header:
            talk.body, talk.missing = b"", int.from_bytes(payload[4:12], "big")
        else:
            talk.body += payload
            talk.missing -= len(payload)
        if talk.missing == 0:
            done(talk.body)

    # ---- messages ---------------------------------------------------------------------------------------------------

    def _places(self, name: str) -> list[Place]:
        """Where a copy that is published goes."""
        queues, id = self._simulation.history.copies[name].queues, amqp.message_id(name)
        if len(queues) > 1:
            self._fanned.add(id)
        return [(queue, _placed(id, queue) if len(queues) > 1 else id) for queue in queues]

    def _place(self, queue: str, name: str) -> Place | None:
        """What comes from a queue; None if it is the queue of one consumer, which goes with it."""
        id = amqp.message_id(name)
        if id not in self._fanned:
            return queue, id
        return (queue, _placed(id, queue)) if queue in self._simulation.history.copies[name].queues else None

    # ---- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Somebody takes what is left; every client has emptied its queues, and ends in order."""
        simulation = self._simulation
        (primary,) = [process for process in simulation.members if process.is_primary]
        for queue, names in contents(primary).items():
            self._took.setdefault(AUDITOR, set()).add(queue)
            for name in names:
                place = self._place(queue, name)
                if place is not None:
                    self._say(AUDITOR, "deliver", place)
                    self._say(AUDITOR, "ack", place)
        for client in [AUDITOR, *(client.name for client in simulation.clients)]:
            for queue in sorted(self._took.get(client, ())):
                self._say(client, "drain_end", queue=queue, result="ok")
            self._say(client, "log_end")


def _placed(id: str, queue: str) -> str:
    producer, colon, number = id.rpartition(":")
    return f"{producer}/{queue}:{number}" if colon else f"{id}/{queue}"


def _frames(octets: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        yield octets[at], octets[at + 7 : at + 7 + size]
        at += size + 8


def _consume(payload: bytes) -> tuple[str, str, int]:
    """Queue, consumer tag and flags of basic.consume."""
    end = 7 + payload[6]
    after = end + 1 + payload[end]
    return payload[7:end].decode(), payload[end + 1 : after].decode(), payload[after]
