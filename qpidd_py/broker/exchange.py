"""Exchanges and their bindings: which destinations a routing key (and, for headers exchanges, a message) reaches."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from qpidd_py.amqp.fields import encode_table, encode_value
from qpidd_py.broker.arguments import ALTERNATE, HASH_HEADER, HASH_PROPERTY, REPLICATE, check_match
from qpidd_py.broker.consistent_hash import MOST, Line, weight
from qpidd_py.broker.headers import HeadersIndex
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.topic import TopicTrie, has_wildcard
from qpidd_py.core.routes import Mark
from qpidd_py.errors import ChannelException, ReplyCode

FAILOVER: Final = "amq.failover"
"""Gives the addresses of a cluster to queues that are bound to it; internal, and not replicated."""
EXCHANGE_TYPES: Final = ("direct", "fanout", "topic", "headers", "x-consistent-hash")
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


class Binding:
    """One route from an exchange to a queue or an exchange."""

    __slots__ = ("arguments", "destination", "key", "payload", "position", "routing_key", "source")

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
        self.payload = b""


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

    def __init__(
        self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments)
        self.bindings: dict[BindingKey, Binding] = {}  # from this exchange
        self.onward: dict[Exchange, int] = {}  # the exchanges that bindings lead to, and how many to each
        self.mark = Mark()
        self.position = 0  # of its declaration; 0 if it is not replicated
        self.payload = b""

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
    def alternate(self) -> str | None:
        name = self.arguments.get(ALTERNATE)
        return name if isinstance(name, str) else None

    def properties(self) -> dict[str, Any]:
        """The values that a redeclaration must match."""
        return {
            "type": self.type,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            ALTERNATE: self.alternate,
        }

    def add(self, binding: Binding) -> None:
        self.bindings[binding.key] = binding
        if isinstance(binding.destination, Exchange):
            self.onward[binding.destination] = self.onward.get(binding.destination, 0) + 1
        self._added(binding)

    def remove(self, binding: Binding) -> None:
        del self.bindings[binding.key]
        if isinstance(binding.destination, Exchange):
            self.onward[binding.destination] -= 1
            if not self.onward[binding.destination]:
                del self.onward[binding.destination]
        self._removed(binding)

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        """The bindings that a message takes; `properties` (decoded) are only looked at where `by_header` is set."""
        raise NotImplementedError

    def check(self, routing_key: bytes, arguments: Mapping[str, Any]) -> None:
        """Raises 406 for a binding that means nothing here."""

    def gains(self, binding: Binding) -> bytes | Mark:
        """What a new binding to a queue changes: the routes of one routing key, or all."""
        return self.mark

    def _added(self, binding: Binding) -> None:
        raise NotImplementedError

    def _removed(self, binding: Binding) -> None:
        raise NotImplementedError


class DirectExchange(Exchange):
    """Routing key equal to binding key."""

    type = "direct"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._by_key: dict[bytes, dict[BindingKey, Binding]] = {}

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return self._by_key.get(routing_key, {}).values()

    def gains(self, binding: Binding) -> bytes | Mark:
        return binding.routing_key

    def _added(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding.key] = binding

    def _removed(self, binding: Binding) -> None:
        bindings = self._by_key[binding.routing_key]
        del bindings[binding.key]
        if not bindings:
            del self._by_key[binding.routing_key]


class FanoutExchange(Exchange):
    """Everything to everyone."""

    type = "fanout"

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return self.bindings.values()

    def _added(self, binding: Binding) -> None:
        pass

    def _removed(self, binding: Binding) -> None:
        pass


class TopicExchange(Exchange):
    """Binding keys with wildcards."""

    type = "topic"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._trie: TopicTrie[BindingKey] = TopicTrie()

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return [self.bindings[key] for key in self._trie.match(routing_key)]

    def gains(self, binding: Binding) -> bytes | Mark:
        return self.mark if has_wildcard(binding.routing_key) else binding.routing_key

    def _added(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, binding.key)

    def _removed(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding.key)


class HeadersExchange(Exchange):
    """Binding arguments against the message's headers."""

    type = "headers"
    by_header = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._index: HeadersIndex[BindingKey] = HeadersIndex()

    def check(self, routing_key: bytes, arguments: Mapping[str, Any]) -> None:
        check_match(arguments, f"binding of exchange '{self.name}' in vhost '/'")

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        return [self.bindings[key] for key in self._index.match(properties.get("headers", {}))]

    def _added(self, binding: Binding) -> None:
        self._index.add(binding.key, binding.arguments)

    def _removed(self, binding: Binding) -> None:
        self._index.remove(binding.key)


class ConsistentHashExchange(Exchange):
    """Each message to one binding, chosen by the hash of its routing key, or of one of its headers or properties."""

    type = "x-consistent-hash"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._header = self.arguments.get(HASH_HEADER)
        self._property = self.arguments.get(HASH_PROPERTY)
        self.by_header = self._header is not None or self._property is not None
        self._line: Line[Binding] = Line(lambda binding: binding.position)

    def check(self, routing_key: bytes, arguments: Mapping[str, Any]) -> None:
        if not weight(routing_key):
            text = f"binding key of exchange '{self.name}' is its weight, 1 to {MOST}, found {routing_key!r:.60}"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> Iterable[Binding]:
        found = self._line.find(self._hashed(routing_key, properties))
        return [] if found is None else [found]

    def _hashed(self, routing_key: bytes, properties: Mapping[str, Any]) -> bytes:
        if not self.by_header:
            return routing_key
        value = properties.get(self._property) if self._property else properties.get("headers", {}).get(self._header)
        return encode_value(value)

    def _added(self, binding: Binding) -> None:
        self._line.add(binding, weight(binding.routing_key))

    def _removed(self, binding: Binding) -> None:
        self._line.remove(binding)


_CLASSES: Final[dict[str, type[Exchange]]] = {
    kind.type: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange, ConsistentHashExchange)
}


def make_exchange(
    kind: str, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
) -> Exchange:
    """An exchange of one of `EXCHANGE_TYPES`."""
    return _CLASSES[kind](name, durable, auto_delete, internal, arguments)
