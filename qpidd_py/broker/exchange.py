"""Exchanges and their bindings: which destinations a routing key (and, for headers exchanges, a message) reaches.

An exchange has one table of bindings for each destination, so a destination that is deleted leaves it with one step
(`lose`).  The index by which a kind finds what matches has these bindings until `debris` has cleared them away; what
is `gone` is left out of every answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from qpidd_py.amqp.fields import encode_table, encode_value
from qpidd_py.amqp.topic import TopicTrie, has_wildcard
from qpidd_py.broker.arguments import (
    ALTERNATE,
    DEDUPLICATION,
    DEDUPLICATION_ARGUMENTS,
    DELAYED_TYPE,
    HASH_HEADER,
    HASH_PROPERTY,
    REPLICATE,
    check_match,
)
from qpidd_py.broker.consistent_hash import MOST, Line, weight
from qpidd_py.broker.followed import Followed
from qpidd_py.broker.headers import HeadersIndex
from qpidd_py.broker.numbering import Numbers
from qpidd_py.broker.qpid_arguments import IVE, MSG_SEQUENCE
from qpidd_py.broker.queue import DeclaredQueue, Effect
from qpidd_py.core.routes import Mark
from qpidd_py.errors import ChannelException, ReplyCode

FAILOVER: Final = "amq.failover"
"""Gives the addresses of a cluster to queues that are bound to it; internal, and not replicated."""
DELAYED: Final = "x-delayed-message"
EXCHANGE_TYPES: Final = ("direct", "fanout", "topic", "headers", "x-consistent-hash", DELAYED)
PREDECLARED: Final = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    FAILOVER: "fanout",
}

BindingKey = tuple[str, bool, str, bytes, bytes]
"""Source, whether the destination is an exchange, its name, routing key, encoded arguments."""
Table = dict[BindingKey, "Binding"]
"""The bindings from one exchange to one destination."""


class Binding:
    """One route from an exchange to a queue or an exchange."""

    __slots__ = ("arguments", "destination", "key", "position", "routing_key", "source")

    def __init__(
        self,
        source: "Exchange",
        destination: "DeclaredQueue | Exchange",
        routing_key: bytes,
        arguments: Mapping[str, Any],
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments
        self.key = binding_key(source, destination, routing_key, arguments)
        self.position = 0  # of the operation that made it; 0 if it is not replicated


def binding_key(
    source: "Exchange", destination: "DeclaredQueue | Exchange", routing_key: bytes, arguments: Mapping[str, Any]
) -> BindingKey:
    """What makes two bindings the same one."""
    is_exchange = isinstance(destination, Exchange)
    return source.name, is_exchange, destination.name, routing_key, encode_table(arguments)


class Exchange:
    """An exchange of any type; subclasses do the matching."""

    type = ""
    by_header = False  # whether the routing key alone does not decide
    shifts = False  # whether a message goes elsewhere when a binding that it did not take is removed

    def __init__(
        self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments)
        self.tables: dict[DeclaredQueue | Exchange, Table] = {}
        self.onward: dict[Exchange, None] = {}  # the exchanges that bindings lead to
        self.size = 0  # bindings
        self.had_bindings = False
        self.gone = False  # it was deleted
        self.mark = Mark()
        self.position = 0  # of its declaration; 0 if it is not replicated
        self.waiting: DeclaredQueue | None = None  # where messages wait for their time (delayed.py)
        self.shadow: DeclaredQueue | None = None  # with copies of what goes elsewhere (shadow.py)
        self.numbers: Numbers | None = None  # those that its messages get (numbering.py)
        self.followed: Followed | None = None  # changes of its bindings, for a route that follows them
        self.take(Effect(self.arguments))

    def take(self, effect: Effect) -> None:
        """This holds now."""
        self.effect = effect
        name = effect.arguments.get(ALTERNATE)
        self.alternate = name if isinstance(name, str) else None  # of what no binding takes

    @property
    def own_queue(self) -> DeclaredQueue | None:
        """The one that goes with it, and that is not found by its name."""
        return self.waiting or self.shadow

    @property
    def predeclared(self) -> bool:
        return self.name in PREDECLARED

    @property
    def replicated(self) -> bool:
        """Predeclared exchanges exist on every broker, so they count as replicated, except `amq.failover`."""
        return (self.predeclared and self.name != FAILOVER) or self.position > 0

    @property
    def level(self) -> str:
        return str(self.arguments.get(REPLICATE, "none"))

    @property
    def numbering(self) -> bool:
        return bool(self.arguments.get(MSG_SEQUENCE))

    @property
    def initial(self) -> bool:
        """Does it keep its last message for new bindings?"""
        return bool(self.arguments.get(IVE))

    @property
    def remembers(self) -> bool:
        """Does it remember the keys of its messages?"""
        return bool(self.arguments.get(DEDUPLICATION))

    def properties(self) -> dict[str, Any]:
        """The values that a redeclaration must match."""
        flags = {"durable": self.durable, "auto_delete": self.auto_delete, "internal": self.internal}
        return {"type": self.type, **flags, **repeated(self.type, self.arguments)}

    def bindings(self) -> Iterator[Binding]:
        """Those from this exchange."""
        return chain.from_iterable(self.parts())

    def parts(self) -> list[Iterable[Binding]]:
        """The same, those to each destination."""
        return [table.values() for table in self.tables.values()]

    def find(self, destination: "DeclaredQueue | Exchange", key: BindingKey) -> Binding | None:
        return self.tables.get(destination, {}).get(key)

    def add(self, binding: Binding) -> None:
        """It is a new one."""
        self.tables.setdefault(binding.destination, {})[binding.key] = binding
        if isinstance(binding.destination, Exchange):
            self.onward[binding.destination] = None
        self.size += 1
        self.had_bindings = True
        self._added(binding)
        if self.followed is not None:
            self.followed.note(True, binding.key, binding.arguments)

    def remove(self, binding: Binding) -> None:
        if self.followed is not None:
            self.followed.note(False, binding.key, binding.arguments)
        table = self.tables[binding.destination]
        del table[binding.key]
        self.size -= 1
        if not table:
            self._forsake(binding.destination)
        self.forget(binding)

    def lose(self, destination: "DeclaredQueue | Exchange") -> Table:
        """All bindings to a destination, which is gone: the caller has each forgotten."""
        if self.followed is not None:
            self.followed.note_lost(isinstance(destination, Exchange), destination.name)
        return self._forsake(destination)

    def _forsake(self, destination: "DeclaredQueue | Exchange") -> Table:
        if isinstance(destination, Exchange):
            self.onward.pop(destination, None)
        table = self.tables.pop(destination)
        self.size -= len(table)
        return table

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> list["DeclaredQueue | Exchange"]:
        """Where a message goes; `properties` (decoded) are only looked at where `by_header` is set."""
        found = [binding.destination for binding in self._matching(routing_key, properties)]
        return [destination for destination in found if not destination.gone]

    def check(self, routing_key: bytes, arguments: Mapping[str, Any], host: str) -> None:
        """Raises 406 for a binding that means nothing here; `host`: the virtual host."""

    def gains(self, binding: Binding) -> bytes | Mark:
        """What a new binding to a queue changes: the routes of one routing key, or all."""
        return self.mark

    def of_key(self, routing_key: bytes) -> list[Binding]:
        """The bindings of one routing key, of a direct exchange."""
        raise NotImplementedError

    def forget(self, binding: Binding) -> None:
        """Takes a binding that is in no table any more out of the index, if there is one."""

    def _matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        """From the index."""
        raise NotImplementedError

    def _added(self, binding: Binding) -> None:
        """To the index."""


class DirectExchange(Exchange):
    """Routing key equal to binding key."""

    type = "direct"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._by_key: dict[bytes, dict[Binding, None]] = {}

    def _matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return self._by_key.get(routing_key, ())

    def gains(self, binding: Binding) -> bytes | Mark:
        return binding.routing_key

    def of_key(self, routing_key: bytes) -> list[Binding]:
        return [binding for binding in self._by_key.get(routing_key, ()) if not binding.destination.gone]

    def _added(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding] = None

    def forget(self, binding: Binding) -> None:
        bindings = self._by_key[binding.routing_key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.routing_key]


class FanoutExchange(Exchange):
    """Everything to everyone."""

    type = "fanout"

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> list["DeclaredQueue | Exchange"]:
        return list(self.tables)


class TopicExchange(Exchange):
    """Binding keys with wildcards."""

    type = "topic"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._trie: TopicTrie[Binding] = TopicTrie()

    def _matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return self._trie.match(routing_key)

    def gains(self, binding: Binding) -> bytes | Mark:
        return self.mark if has_wildcard(binding.routing_key) else binding.routing_key

    def _added(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, binding)

    def forget(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding)


class HeadersExchange(Exchange):
    """Binding arguments against the message's headers."""

    type = "headers"
    by_header = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._index: HeadersIndex[Binding] = HeadersIndex()

    def check(self, routing_key: bytes, arguments: Mapping[str, Any], host: str) -> None:
        check_match(arguments, f"binding of exchange '{self.name}' in vhost '{host}'")

    def _matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return self._index.match(properties.get("headers", {}))

    def _added(self, binding: Binding) -> None:
        self._index.add(binding, binding.arguments)

    def forget(self, binding: Binding) -> None:
        self._index.remove(binding)


class ConsistentHashExchange(Exchange):
    """Each message to one binding, chosen by the hash of its routing key, or of one of its headers or properties."""

    type = "x-consistent-hash"
    shifts = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._header = self.arguments.get(HASH_HEADER)
        self._property = self.arguments.get(HASH_PROPERTY)
        self.by_header = self._header is not None or self._property is not None
        self._line: Line[Binding] = Line(lambda binding: binding.position, lambda binding: binding.destination.gone)

    def lose(self, destination: DeclaredQueue | Exchange) -> Table:
        self._line.changed()
        return super().lose(destination)

    def check(self, routing_key: bytes, arguments: Mapping[str, Any], host: str) -> None:
        if not weight(routing_key):
            text = f"binding key of exchange '{self.name}' is its weight, 1 to {MOST}, found {routing_key!r:.60}"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)

    def _matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        found = self._line.find(self._hashed(routing_key, properties))
        return [] if found is None else [found]

    def _hashed(self, routing_key: bytes, properties: Mapping[str, Any]) -> bytes:
        if self._property is None and self._header is None:
            return routing_key
        value = properties.get(self._property) if self._property else properties.get("headers", {}).get(self._header)
        return encode_value(value)

    def _added(self, binding: Binding) -> None:
        self._line.add(binding, weight(binding.routing_key))

    def forget(self, binding: Binding) -> None:
        self._line.remove(binding)


def has_queue(kind: str, arguments: Mapping[str, Any]) -> bool:
    """Whether such an exchange has a queue of its own."""
    return kind == DELAYED or bool(arguments.get(IVE) or arguments.get(DEDUPLICATION))


def repeated(kind: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What of an exchange's arguments a redeclaration has to repeat."""
    names = (ALTERNATE, *DEDUPLICATION_ARGUMENTS, *([DELAYED_TYPE] if kind == DELAYED else []))
    flags = {name: bool(arguments.get(name)) for name in (MSG_SEQUENCE, IVE, DEDUPLICATION)}
    return {**{name: arguments.get(name) for name in names}, **flags}


CLASSES: Final[dict[str, type[Exchange]]] = {
    kind.type: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange, ConsistentHashExchange)
}
"""Those that route; `delayed.py` has one more for each."""
