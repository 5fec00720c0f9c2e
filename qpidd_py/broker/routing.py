"""Routing: by exchange and routing key, by headers, and for messages that leave a queue unconsumed.

Everything here is a query and changes nothing.  The core keeps the answers for publishers (`Route`) until what they
depend on changes (`forget_routes`).  For dead letters it asks each time (`Queue.dead_letter`), on the primary only: the
outcome is logged.

`Engine.passive` is True while this broker is a backup: see `vhost.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from qpidd_py.amqp.codec import decode_properties, routing_key_octets
from qpidd_py.amqp.fields import FieldError
from qpidd_py.broker.access import check_free, check_ours, find_exchange, refuse
from qpidd_py.broker.addressing import copied_to, copies
from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.dead_letter import REJECTED, Death, goes_round, mark, readable_properties
from qpidd_py.broker.delayed import delay_of, without_delay
from qpidd_py.broker.exchange import Binding, Exchange
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.shadow import leads, matches
from qpidd_py.broker.way import NOTHING, Way
from qpidd_py.core.delays import Delays
from qpidd_py.core.engine import Engine
from qpidd_py.core.queue import Queue
from qpidd_py.core.routes import Route
from qpidd_py.errors import AmqpError, ReplyCode

_REPLACED: Final = "\ufffd"
"""Stands for octets that are no UTF-8: several routing keys have the same name."""
MANAGEMENT: Final = "qpid.management"
"""The pseudo exchange and pseudo queue of management requests."""

Handler = Callable[[Any, int, bytes, bytes, bytes, bytes], None]
Router = Callable[[bytes, bytes, bytes], Route]
"""(exchange, routing key, content header) -> where to"""
Letter = tuple[Route, bytes, bytes, bytes]
"""Called by the core for a message that leaves unconsumed: the route; exchange, routing key and content header of the
copy."""


class RoutingTable:
    """Routing queries over the exchanges and queues of one virtual host."""

    def __init__(self, engine: Engine, configuration: Configuration, internal: Mapping[str, Handler]) -> None:
        """`internal`: the exchanges that the broker itself serves."""
        self.internal_exchanges = internal
        self._engine = engine
        self._configuration = configuration
        self._host = configuration.host
        self._exchanges = configuration.exchanges
        self._queues = configuration.queues
        self._needing: dict[Exchange, bool] = {}  # answers of `_needs_headers`
        self._links = configuration.links  # when they were given
        self._missed = False  # a message was for a queue that is not there: a new one changes the route of its name
        self._by_headers: dict[Exchange, Route] = {}

    def queue_created(self, queue: DeclaredQueue) -> None:
        """Forgets routes that lacked it; messages that leave it unconsumed are routed from here."""
        if self._missed:
            self._engine.forget_routes(None if _REPLACED in queue.name else queue.name.encode())
        self.queue_limited(queue)

    def queue_limited(self, queue: DeclaredQueue) -> None:
        """Where its dead letters go may have changed."""
        letters = queue.dead_letter_exchange is not None or queue.alternate is not None
        if queue.core.delays is None:
            queue.core.dead_letter = partial(self._dead_letter, queue) if letters else None

    def delays(self, exchange: Exchange, queue: DeclaredQueue) -> None:
        """What waits in the queue is routed by the exchange when it is due."""
        queue.core.delays = Delays(delay_of)
        queue.core.dead_letter = partial(self._due, exchange)

    # ------------------------------------------------------------ routing

    def route(self, exchange_name: bytes, routing_key: bytes) -> Route:
        """Where a message goes.  Raises 404, 403."""
        if exchange_name == b"":
            return self._default_route(routing_key)
        name = exchange_name.decode("utf-8", "replace")
        handler = self.internal_exchanges.get(name)
        if handler is not None:
            return Route([], handler=handler)
        exchange = find_exchange(self._exchanges, name, self._host)
        if exchange.internal:
            text = f"cannot publish to internal exchange '{name}' in vhost '{self._host}'"
            raise refuse(ReplyCode.ACCESS_REFUSED, text)
        if self._needs_headers(exchange):
            return self._route_by_header(exchange)
        return self._permitted(self._walk(exchange, routing_key, {})).route(marked=True)

    def _route_by_header(self, exchange: Exchange) -> Route:
        """One for all routing keys."""
        if exchange not in self._by_headers:
            self._by_headers[exchange] = Route([], by_header=partial(self._by_header, exchange), via=(exchange.mark,))
        return self._by_headers[exchange]

    def _default_route(self, routing_key: bytes) -> Route:
        """The default exchange: the queue of that name."""
        queue = self._queues.get(routing_key.decode("utf-8", "replace"))
        if queue is None:
            self._missed = True
            return Route([])
        self._check_permitted(queue.core)
        return Route([queue.core])

    def _permitted(self, way: Way) -> Way:
        for queue in way.queues:
            self._check_permitted(queue)
        return way

    def _check_permitted(self, queue: Queue) -> None:
        owner = queue.owner
        if isinstance(owner, DeclaredQueue) and (self._engine.passive or owner.reserved):
            check_ours(owner, f"queue '{queue.name}'", self._engine.passive)
            check_free(owner)

    def _by_header(self, exchange: Exchange, routing_key: bytes, header: bytes) -> Route:
        """Asked by the core for each message.  Raises 502 for a header that cannot be read."""
        return self._permitted(self._walk(exchange, routing_key, decode_properties(header))).route()

    def addressed(self, exchange: bytes, routing_key: bytes, header: bytes) -> tuple[Route, bytes]:
        """The route of a message with copies, and its content header without BCC.  Raises 404, 403, 406."""
        start = find_exchange(self._exchanges, exchange.decode("utf-8", "replace"), self._host)
        keys, kept = copies(header)
        found = self._permitted(self._copied(start, [routing_key, *keys], header))
        later = found.queues and all(core.delays is not None for core in found.queues)
        return found.route(), header if later else kept

    def _copied(self, start: Exchange, keys: list[bytes], header: bytes) -> Way:
        """Each queue once, whichever key leads to it."""
        properties = readable_properties(header) if self._needs_headers(start) else {}
        found = Way()
        for key in dict.fromkeys(keys):
            found.add(self._walk(start, key, properties))
        return found

    def _needs_headers(self, start: Exchange) -> bool:
        """Whether a message to `start` can meet an exchange that looks at properties."""
        if self._links != self._configuration.links:
            self._links = self._configuration.links
            self._needing.clear()
            self._by_headers.clear()
        if start not in self._needing:
            self._needing[start] = any(exchange.by_header for exchange in self._reachable(start))
        return self._needing[start]

    def _reachable(self, start: Exchange) -> Iterator[Exchange]:
        seen, waiting = {start.name}, [start]
        while waiting:
            exchange = waiting.pop()
            yield exchange
            alternate = self._exchanges.get(exchange.alternate) if exchange.alternate is not None else None
            for item in (*exchange.onward, *([alternate] if alternate else [])):
                if item.name not in seen:
                    seen.add(item.name)
                    waiting.append(item)

    def destinations(self, start: Exchange, routing_key: bytes, properties: Mapping[str, Any]) -> list[Queue]:
        """Each queue once, in order of discovery.  An exchange where nothing matches hands on to its alternate."""
        return [core for core in self._walk(start, routing_key, properties).queues if not core.shadow]

    def _walk(self, start: Exchange, routing_key: bytes, properties: Mapping[str, Any]) -> Way:
        way = Way()
        way.asked[start] = None
        waiting = [(start, NOTHING)]
        while waiting:
            exchange, passed = waiting.pop()
            found = self._next(exchange, routing_key, properties)
            passed = way.through(exchange, passed, delayed=exchange.numbers is not None and exchange.waiting in found)
            for item in found:
                if isinstance(item, DeclaredQueue):
                    way.queues.setdefault(item.core, passed)
                elif item not in way.asked:
                    way.asked[item] = None
                    waiting.append((item, passed))
        return way

    def _next(
        self, exchange: Exchange, routing_key: bytes, properties: Mapping[str, Any]
    ) -> list[DeclaredQueue | Exchange]:
        if exchange.name == "":  # as an alternate
            queue = self._queues.get(routing_key.decode("utf-8", "replace"))
            self._missed = self._missed or queue is None
            return [queue] if queue else []
        found = exchange.matching(routing_key, properties)
        if not found and exchange.alternate is not None and exchange.alternate in self._exchanges:
            return [self._exchanges[exchange.alternate]]
        return found

    # ------------------------------------------------------------ unconsumed messages

    def _dead_letter(
        self, queue: DeclaredQueue, reason: str, exchange: bytes, routing_key: bytes, header: bytes, _: bytes
    ) -> Letter | None:
        """From the core, for a message that left `queue` unconsumed; None drops it."""
        if queue.dead_letter_exchange is not None:
            death = Death(queue.name, reason, exchange, routing_key, self._engine.now // 1000)
            return self._bury(queue, queue.dead_letter_exchange, death, header)
        if reason == REJECTED and queue.alternate is not None:
            return self._sent_to(queue.alternate, [routing_key], header).route(), exchange, routing_key, header
        return None

    def _due(self, source: Exchange, _: str, exchange: bytes, routing_key: bytes, header: bytes, __: bytes) -> Letter:
        """From the core, for a message that has waited."""
        try:
            keys, kept = copies(header)
        except (AmqpError, FieldError):
            keys, kept = [], header
        header = without_delay(kept)
        way = self._copied(source, [routing_key, *keys], header).without(self._takes_none)
        return way.route(), exchange, routing_key, header

    def _bury(self, queue: DeclaredQueue, exchange: str, death: Death, header: bytes) -> Letter:
        keys = [death.routing_key, *copied_to(readable_properties(header).get("headers", {}))]
        if queue.dead_letter_key is not None:
            keys = [routing_key_octets(queue.dead_letter_key)]
        marked, deaths = mark(header, death, copied=queue.dead_letter_key is None)
        way = self._sent_to(exchange, keys, marked)
        if death.reason != REJECTED:
            way = way.without(lambda core: goes_round(core.name, deaths))
        return way.route(), exchange.encode(), keys[0], marked

    def initial(self, binding: Binding, routing_key: bytes, header: bytes) -> Route:
        """For the last message of an exchange that has a new binding: the queues that it brings it to, and that it has
        not reached on another way."""
        properties, destination = readable_properties(header), binding.destination
        keys = [routing_key, *copied_to(properties.get("headers", {}))]
        taken = [key for key in keys if matches(binding, key, properties)]
        if isinstance(destination, Exchange):
            before = self._copied(binding.source, keys, header).queues
            way = self._copied(destination, taken, header).without(lambda core: core in before)
        else:
            way = Way()
            if taken and not any(self._reaches(binding.source, destination, key, properties) for key in keys):
                way.queues[destination.core] = NOTHING
        way.without(self._takes_none)
        return way.route() if way.queues else Route([])

    def _reaches(
        self, source: Exchange, queue: DeclaredQueue, routing_key: bytes, properties: Mapping[str, Any]
    ) -> bool:
        """Whether the queue gets such a message; asks for no other queue that is bound to `source`."""
        if leads(source, queue, routing_key, properties):
            return True
        onward = [each for each in source.onward if leads(source, each, routing_key, properties)]
        alternate = self._exchanges.get(source.alternate) if source.alternate is not None else None
        if alternate is not None and not source.matching(routing_key, properties):
            onward.append(alternate)
        return any(queue.core in self._walk(each, routing_key, properties).queues for each in onward)

    def router(self, exchange: str, excluded: Queue | None = None) -> Router:
        """For many messages at one time: where headers do not matter, each routing key is looked up once.

        Nothing goes to the queue `excluded`."""
        source = self._exchanges.get(exchange)
        by_header = source is not None and self._needs_headers(source)
        known: dict[bytes, Route] = {}

        def route(_: bytes, routing_key: bytes, header: bytes) -> Route:
            if by_header or routing_key not in known:
                way = self._sent_to(exchange, [routing_key], header).without(lambda core: core is excluded)
                known[routing_key] = way.route()
            return known[routing_key]

        return route

    def _sent_to(self, exchange: str, keys: list[bytes], header: bytes) -> Way:
        """Where a publish by the broker itself goes; nowhere if there is no such exchange.  Never raises."""
        source = self._exchanges.get(exchange)
        return Way() if source is None else self._copied(source, keys, header).without(self._takes_none)

    def _takes_none(self, core: Queue) -> bool:
        """True if its content comes from elsewhere: the log of the primary, or another broker's queue."""
        owner = core.owner
        return isinstance(owner, DeclaredQueue) and bool(owner.reserved or (self._engine.passive and owner.position))
