"""The management requests of a broker, independent of the transport (door).

A request is a method name and a JSON object; the answer is `{"ok": true, "result": ...}` or
`{"ok": false, "error": text}`, passed to a callback, because requests to HA may take a while.

A long list is answered in parts, in turns of their own: `{"ok": true, "result": [...], "more": true}`, and the last one
without `more`.

    broker.options {}                       the options in force, secrets hidden
    broker.overview {}                      name, version, how many queues and others there are; `sight`: see `sight`
    broker.info   {}                        the same with counters, positions of the log, why publishers are blocked
    queue.list    {}                        one object per queue; lists are sorted while they are short (SORTED)
    queue.page, queue.info, queue.totals, session.page    see `pages`
    queue.count, queue.census               see `census`
    queue.peek    {queue, limit=10}         the first messages, which stay where they are; bodies beyond 64 KiB cut off,
                                            as many as come to 1 MiB.  Not those of another connection's exclusive queue
    queue.peek    {queue, limit, after}     the first messages behind a position (0: from the beginning), in order of
                                            position, whole, for browsing: as many as come to 1 MiB, but at least one;
                                            `header` is the content header's payload, `body` the body, both in base64.
                                            Handed out ones are among them.  Positions grow, through fail-overs, too;
                                            one that this broker never reached (it has begun anew) counts as 0
    exchange.list {}                        one object per exchange
    binding.list  {}                        one object per binding
    session.list  {}                        one object per connection
    channel.list  {}                        one object per channel
    subscription.list {}                    one object per consumer
    session.close {number, reason=""}       closes a client's connection with 320 -> {"closed": peer}; one of the same
                                            user, or any for the user of ha-username, or where there is none
    event.list    {after, ...}              what has happened since, see `events`
    queue.move, queue.purge, queue.delete   see `changes`; answered when the change is safe
    user.*, permission.*, topic.*           see `users`; who may ask what is in `rights`.  With `tell_made` a change of
                                            a setting says whether it was `made`, or there already
    vhost.*                                 see `hosts`, also for the virtual host that another request is about
    policy.*, limit.*, parameter.*, shovel.*    see `policies`, `limits`, `parameters`
    route.*, queue.bindings                 see `routes`
    acl.show      {}                        the ACL file in force, how many rules, quotas, denials
    acl.reload    {}                        reads it again -> as acl.show; an error changes nothing
    ha.*          passed on to the HA plug-in
"""

import json
import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import reading
from qpidd_py.core.queue import Queue
from qpidd_py.errors import AmqpError, ConfigError, ReplyCode
from qpidd_py.management.census import Census
from qpidd_py.management.changes import Changes
from qpidd_py.management.events import METHOD as EVENTS
from qpidd_py.management.events import EventRequests
from qpidd_py.management.hosts import HostRequests, completed, host_of, hosts_of, hosts_seen, of_host
from qpidd_py.management.limits import LimitRequests
from qpidd_py.management.pages import Pages
from qpidd_py.management.parameters import ParameterRequests
from qpidd_py.management.patience import Reading, in_memory
from qpidd_py.management.policies import PolicyRequests
from qpidd_py.management.request import Json, NotFound, Reply, RequestError, text
from qpidd_py.management.rights import RELOAD, SHOW, administers, check_request, who
from qpidd_py.management.routes import RouteRequests
from qpidd_py.management.settings import Change, List
from qpidd_py.management.shown import (
    PEEK_BODY,
    show_binding,
    show_channel,
    show_connection,
    show_consumer,
    show_exchange,
    show_message,
    show_queue,
    show_whole,
)
from qpidd_py.management.sight import SIGHT, sight_of
from qpidd_py.management.turns import Defer, Slices
from qpidd_py.management.users import UserRequests
from qpidd_py.security.entries import HOST
from qpidd_py.security.refusals import shown

log = logging.getLogger(__name__)

PEEK_LIMIT = 1000
"""Messages in one answer."""
BROWSE_OCTETS = 1 << 20
"""Octets of headers and bodies in one answer to a peek; a single larger message is answered alone."""
PART_OCTETS = 1 << 16
"""Octets of one part of a list, approximately."""
SORTED = 10_000
"""Objects of a list that is sorted."""
BROWSE_SLICE = 16
"""Messages taken from the core at a time."""
SHOWN = 64
"""Characters of a name from a peer in an answer."""
POSITION_MAX = (1 << 64) - 1


class Management:
    """The core; one per broker."""

    def __init__(self, broker: Broker, version: str = "", defer: Defer | None = None) -> None:
        self.broker = broker
        self._events = EventRequests(broker, defer)
        self.version = version or str(broker.server_properties.get("version", ""))
        census, parameters = Census(broker), ParameterRequests(broker)
        routes = RouteRequests(broker, parameters)
        self._methods: Mapping[str, Callable[[Json], Any]] = {
            "broker.info": self._broker_info,
            "broker.overview": self._overview,
            "broker.options": lambda _: self.broker.options(),
            **census.methods,
            **parameters.methods,
            **routes.methods,
            SHOW: lambda _: self.broker.acl.shown(),
        }
        self._objects: Mapping[str, Callable[[Json], Iterator[Json | None]]] = {
            "queue.list": self._queue_list,
            "exchange.list": self._exchange_list,
            "binding.list": self._binding_list,
            "subscription.list": self._subscription_list,
            **routes.objects,
            **census.objects,
        }
        self._lists: dict[str, List] = {"session.list": self._session_list, "channel.list": self._channel_list}
        hosts, policies = HostRequests(broker), PolicyRequests(broker)
        self._contents = {**Changes(broker).methods, **hosts.slices, **policies.slices}
        self._changes: dict[str, Change] = {}
        self._pages: Mapping[str, Callable[[Json], Generator[None, None, Any]]] = {
            **Pages(broker).methods,
            **hosts.pages,
        }
        for settings in (UserRequests(broker), policies, LimitRequests(broker), parameters, hosts):
            self._changes.update(settings.changes)
            self._lists.update(settings.lists)

    def work(self, method: str, arguments: Json, reply: Reply, asker: ClientConnection | None) -> Slices:
        """Answers a request, one slice with each step: `reply` is called for each part, the last one now or later.
        Never raises because of the request's content.  `asker` may see what is exclusive to it, a courier all."""
        arguments = completed(method, arguments, asker.vhost.name if asker is not None else HOST)
        try:
            sight = check_request(asker, method, arguments)
            if method.startswith("ha."):
                self._ha_request(method, arguments, reply, asker.user if asker is not None else "")
                return
            arguments = {**arguments, SIGHT: sight}
            if method in self._objects:
                yield from _in_parts(self._objects[method](arguments), reply)
            elif method in self._lists:
                yield from _in_parts(of_host(self.broker, arguments, self._lists[method]()), reply)
            elif method in self._pages:
                reply({"ok": True, "result": (yield from self._pages[method](arguments))})
            elif method == "queue.peek":
                reply({"ok": True, "result": (yield from self._queue_peek(arguments, asker))})
            elif method == EVENTS:
                self._events.list(arguments, reply, asker)
            elif method == RELOAD:
                reply({"ok": True, "result": (yield from self._reload_acl())})
            elif method == "user.self":
                reply({"ok": True, "result": who(asker)})
            elif method == "session.close":
                reply({"ok": True, "result": self._session_close(arguments, asker)})
            elif method in self._methods:
                reply({"ok": True, "result": self._methods[method](arguments)})
            elif method in self._contents:
                self._when_safe(method, (yield from self._contents[method](arguments)), reply, arguments)
            elif method in self._changes:
                self._when_safe(method, self._changes[method](arguments), reply, arguments)
            else:
                raise RequestError(f"unknown method {method[:SHOWN]!r}")
        except RequestError as error:
            reply({"ok": False, "error": str(error), "code": error.code})
        except AmqpError as error:
            reply({"ok": False, "error": error.reply_text, "code": error.reply_code})

    def request(self, method: str, arguments: Json, reply: Reply) -> None:
        """The same in one go."""
        for _ in self.work(method, arguments, reply, None):
            pass

    def _when_safe(self, method: str, change: tuple[Json, int], reply: Reply, arguments: Json) -> None:
        result, position = change
        if not arguments.get("tell_made"):
            result.pop("made", None)

        def answer(safe: bool) -> None:
            doubt = f"{method}: this broker has been deposed meanwhile; the change may be lost"
            in_doubt = {"ok": False, "error": doubt, "code": ReplyCode.CONNECTION_FORCED}
            reply({"ok": True, "result": result} if safe else in_doubt)

        self.broker.engine.when_safe(position, answer)

    def _ha_request(self, method: str, arguments: Json, reply: Reply, user: str) -> None:
        hooks = self.broker.hooks
        if hooks is None:
            raise RequestError(f"HA module is not loaded on broker at {self.broker.name}")
        if not hooks.request(method, arguments, reply, user):
            raise RequestError(f"unknown method {method!r}")

    # ---- the methods

    def _overview(self, arguments: Json) -> Json:
        """Of what the asker sees."""
        sight, hosts, engine = sight_of(arguments), hosts_seen(self.broker, arguments), self.broker.engine
        count, everything = self.broker.connection_count, sight.hosts is None
        return {
            "name": self.broker.name,
            "product": self.broker.server_properties.get("product", ""),
            "version": self.version,
            "backup": self.broker.passive,
            "queues": sum(len(vhost.queues) for vhost in hosts),
            "exchanges": sum(len(vhost.exchanges) for vhost in hosts),
            "sessions": len(self.broker.connections) if everything else count.of_user(sight.user),
            "channels": count.channels if everything else count.channels_of(sight.user),
            "sight": sight.mark,
            **({"published": engine.published, "delivered": engine.delivered} if everything else {}),
        }

    def _broker_info(self, arguments: Json) -> Json:
        engine = self.broker.engine
        return {
            **self._overview(arguments),
            "pid": os.getpid(),
            "ha": self.broker.hooks is not None,
            "clustered": self.broker.vhosts.rules.clustered,
            "epoch": engine.epoch,
            "position": engine.position,
            "safe": engine.safe,
            "waiting_confirms": engine.waiting_confirms,
            "blocked": self.broker.blocked,
            "alarms": self.broker.alarms,
            **{name: figure() for name, figure in self.broker.figures.items()},
        }

    def _reload_acl(self) -> Generator[None, None, Json]:
        if self.broker.reload_acl is None:
            raise RequestError(f"{RELOAD}: there is no acl-file")
        try:
            yield from self.broker.reload_acl()
        except ConfigError as error:
            log.error("acl.reload: nothing is changed: %s", error)
            raise RequestError(f"{RELOAD}: nothing is changed: {error}") from error
        return self.broker.acl.shown()

    def _queue_list(self, arguments: Json) -> Iterator[Json]:
        queues = [queue for vhost in hosts_of(self.broker, arguments) for queue in vhost.queues.values()]
        found = _sorted(queues, lambda each: (each.host, each.name))
        return (show_queue(queue, self.broker) for queue in found)

    def _queue_peek(self, arguments: Json, asker: ClientConnection | None) -> Generator[Reading, None, list[Json]]:
        name, limit = arguments.get("queue"), arguments.get("limit", 10)
        queues = host_of(self.broker, arguments).queues
        if not isinstance(name, str) or name not in queues:
            raise NotFound(f"no queue {name!r}")
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise RequestError(f"limit {limit!r}, wanted a number from 1 to {PEEK_LIMIT}")
        queue = queues[name]
        if queue.exclusive and queue.owner is not asker and not self._is_courier(asker):
            raise RequestError(f"queue {name!r} is exclusive to another connection")
        core, limit = queue.core, min(limit, PEEK_LIMIT)
        if "after" in arguments:
            after = _position(arguments["after"])
            return (yield from _browse(core, after if after <= self.broker.engine.sequence else 0, limit))
        return (yield from _glance(core, limit))

    def _session_close(self, arguments: Json, asker: ClientConnection | None) -> Json:
        number, reason = arguments.get("number"), text(arguments, "reason", "closed by an administrator")
        if not isinstance(number, int) or isinstance(number, bool):
            raise RequestError(f"number {str(number)[:SHOWN]!r}, wanted that of a connection")
        found = next((each for each in self.broker.connections if each.number == number), None)
        if found is None or found.link is not None or not sight_of(arguments).sees(found.vhost.name, found.user):
            raise NotFound(f"no client has connection {str(number)[:SHOWN]}")
        if not administers(asker) and (asker is None or asker.user != found.user):
            raise RequestError(f"connection {number} is of another user, {found.user[:SHOWN]!r}")
        log.warning("connection %d of %s is closed by a request: %s", found.number, found.peer, shown(reason))
        found.close(ReplyCode.CONNECTION_FORCED, reason.encode("utf-8", "replace").decode())
        return {"closed": found.peer}

    def _is_courier(self, asker: ClientConnection | None) -> bool:
        return asker is not None and asker.user in self.broker.couriers

    def _exchange_list(self, arguments: Json) -> Iterator[Json]:
        for vhost in hosts_of(self.broker, arguments):
            for exchange in _sorted(vhost.exchanges.values(), lambda each: each.name):
                yield show_exchange(exchange, vhost.name)

    def _binding_list(self, arguments: Json) -> Iterator[Json]:
        for vhost in hosts_of(self.broker, arguments):
            bound = (each for each in vhost.exchanges.values() if each.size)  # many others would take long
            for exchange in _sorted(bound, lambda each: each.name):
                parts = [exchange.bindings()] if exchange.size <= SORTED else exchange.parts()
                for part in parts:
                    yield from (show_binding(each, vhost.name) for each in _sorted(part, lambda each: each.key))

    def _session_list(self) -> Iterator[Json]:
        return (show_connection(each) for each in _sorted(self.broker.connections, lambda each: each.number))

    def _channel_list(self) -> Iterator[Json]:
        """Those of a connection that has ended meanwhile are left out."""
        for connection in _sorted(self.broker.connections, lambda each: each.number):
            yield from (show_channel(channel, connection) for channel in list(connection.channels.values()))

    def _subscription_list(self, arguments: Json) -> Iterator[Json]:
        """Consumers of a connection that has ended meanwhile are left out."""
        hosts, seen = hosts_of(self.broker, arguments), sight_of(arguments).sees
        connections = [
            each for each in self.broker.connections if each.vhost in hosts and seen(each.vhost.name, each.user)
        ]
        for connection in _sorted(connections, lambda each: each.number):
            cores = [channel.core for channel in connection.channels.values()]
            consumers = [consumer for core in cores for consumer in core.consumers.values()]
            yield from (show_consumer(consumer, connection) for consumer in consumers)


T = TypeVar("T")


def _sorted(items: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """A copy, since objects come and go while it is shown; sorting a long one would take too long."""
    found = list(items)
    return sorted(found, key=key) if len(found) <= SORTED else found


def _in_parts(items: Iterator[Json | None], reply: Reply) -> Iterator[None]:
    """An item that is None ends the turn."""
    part: list[Json] = []
    octets = 0
    for item in items:
        if item is None:
            yield
            continue
        part.append(item)
        octets += len(json.dumps(item))
        if octets >= PART_OCTETS:
            reply({"ok": True, "result": part, "more": True})
            part, octets = [], 0
            yield
    reply({"ok": True, "result": part})


def _position(after: Any) -> int:
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < POSITION_MAX:
        raise RequestError(f"after {after!r}, wanted a position, or 0")
    return after


def _glance(core: Queue, limit: int) -> Generator[Reading, None, list[Json]]:
    """What is in memory at a time, again and again."""
    shown: list[Json] = []
    room = BROWSE_OCTETS
    for level in reversed(core.levels or [core]):
        after = 0
        while len(shown) < limit and room > 0:
            yield from in_memory(level, after)
            found = reading.glance(level, after, limit - len(shown), PEEK_BODY, room)
            if not found:
                break
            shown += [show_message(*message) for message in found]
            room -= sum(len(header) + len(body) for *_, header, body, _ in found)
            after = found[-1][0]
    return shown


def _browse(core: Queue, after: int, limit: int) -> Generator[Reading, None, list[Json]]:
    """In slices, so that a long queue of large messages is not copied and then cut off."""
    shown: list[Json] = []
    room = BROWSE_OCTETS
    while len(shown) < limit:
        yield from in_memory(core, after)
        found = reading.read(core, after + 1, POSITION_MAX, min(limit - len(shown), BROWSE_SLICE), max(room, 1))
        for position, redelivered, _, exchange, routing_key, header, body in found:
            room -= len(header) + len(body)
            if room < 0 and shown:
                return shown
            shown.append(show_whole(position, redelivered, exchange, routing_key, header, body))
            after = position
        if not found:
            break
    return shown
