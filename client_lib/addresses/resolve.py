"""Resolves an address to AMQP 0-9-1: queries, declarations, where to publish, what to consume (pure).

Theory.  `resolve_sender` and `resolve_receiver` are generators.  They yield one Operation at a time and are sent the
broker's Answer; they return the plan, or raise.  Each operation needs a channel of its own: a broker closes the channel
when a method fails, and 0-9-1 reports a missing node only by such a failure.

    queue   sender      publishes through the default exchange, mandatory: a message without its queue comes back
            receiver    consumes, or browses (mode: browse; see `client_lib.addresses.browse`)
    topic   sender      publishes to the exchange of that name; the routing key is the subject
    (exch.) receiver    consumes from a subscription queue of its own, bound with the subject, else with what brings all
                        (topic "#", headers and fanout ""; a direct exchange: the messages without subject)

* Unless node.type says whether a name is a queue or a topic, the broker is asked, for the queue first.
* create: a missing node is declared as the address says.  An existing node is used as it is, even if it differs.
* assert: 0-9-1 compares only by declaring the whole node again, so options missing in the address have their defaults.
  An address with only a type asserts that the node exists.  Bindings cannot be compared.
* delete: at close, also if the node is not empty.
* A subscription queue is exclusive and goes with its receiver; what is published while its connection is away is lost.
  On our broker `link: {x-declare: {arguments: {qpid.auto_delete_timeout: SECONDS}}}` keeps it over a fail-over.
  link.name with link.durable makes it a durable one that is shared by name and stays.
* reliability: at-least-once is the default.  unreliable and at-most-once make a receiver consume without
  acknowledgements; senders are confirmed and re-sent whatever it says.  exactly-once is for senders, see `once`.

`restore` of a plan is what must be declared again after a fail-over, in order; only what this address declares, or
found to be exactly what it would have declared.  `undo` is for the end of the sender or receiver; the broker does the
part listed in `vanishes` by itself when the session ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from client_lib.addresses.address import (
    NAME_MAX,
    Address,
    Declare,
    Mode,
    NodeSection,
    NodeType,
    Policy,
    Reliability,
    Side,
    parse,
)
from client_lib.addresses.bindings import Found, bind_all, bind_link, bindings_of, unbind
from client_lib.addresses.once import Once, demand_once
from client_lib.addresses.operations import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    Operation,
    Resolution,
    demand,
    demand_ours,
    error_of,
)
from client_lib.errors import AssertionFailed, InvalidOption, MalformedAddress, NotFound

_SHOWN = 200
"""Octets of a topic's name in the name of a subscription queue.  (They cannot begin it: "amq." is reserved.)"""
_PREDECLARED = {"amq.topic": "topic", "amq.fanout": "fanout", "amq.direct": "direct"}
_PREDECLARED |= {"amq.headers": "headers", "amq.match": "headers"}


@dataclass(frozen=True)
class SenderPlan:
    """`routing_key` None: each message's subject, or `subject`, or ""."""

    target: str
    exchange: str
    routing_key: str | None
    subject: str | None
    mandatory: bool
    restore: tuple[Operation, ...] = ()
    undo: tuple[Operation, ...] = ()
    vanishes: tuple[Operation, ...] = ()
    once: Once | None = None


@dataclass(frozen=True)
class ReceiverPlan:
    source: str
    queue: str
    browse: bool
    no_ack: bool
    exclusive: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)
    restore: tuple[Operation, ...] = ()
    undo: tuple[Operation, ...] = ()
    vanishes: tuple[Operation, ...] = ()


def resolve_sender(text: str | Address, unique: str, once: Once | None = None) -> Resolution[SenderPlan]:
    """`unique`: part of generated names.  `once`: what the queue has to promise.

    Raises MalformedAddress, InvalidOption, NotFound, AssertionFailed, ResolutionError, UnauthorizedAccess."""
    address = _named(text, unique)
    node = yield from _resolve(address, Side.SENDER)
    queue = node.type is NodeType.QUEUE
    bound = yield from bind_link(address, node, address.name if queue else None)
    if once is None and address.link.reliability is Reliability.EXACTLY_ONCE:
        once = Once()
    checks = () if once is None else ((yield from demand_once(address.name, once, queue)),)
    return SenderPlan(
        target=address.name,
        exchange="" if queue else address.name,
        routing_key=address.name if queue else None,
        subject=address.subject,
        mandatory=queue,
        restore=(*node.restore, *bound, *checks),
        undo=(*map(unbind, bound), *_deletion(address, node, Side.SENDER)),
        once=once,
    )


def resolve_receiver(text: str | Address, unique: str) -> Resolution[ReceiverPlan]:
    """As `resolve_sender`."""
    address = _named(text, unique)
    if address.link.reliability is Reliability.EXACTLY_ONCE:
        raise InvalidOption("link.reliability: exactly-once is for senders; receivers have drop_duplicates=True")
    node = yield from _resolve(address, Side.RECEIVER)
    if node.type is NodeType.TOPIC:
        return (yield from _subscription(address, node, unique))
    browse = address.mode is Mode.BROWSE
    if address.subject is not None:
        raise InvalidOption(
            f"{address.name} is a queue, and a receiver of a queue cannot choose by subject ({address.subject!r}): "
            "bind the queue to a topic with that key, and leave the subject out"
        )
    if address.link.x_declare != Declare():
        raise InvalidOption(f"link.x-declare describes the subscription to a topic, and {address.name} is a queue")
    if browse:
        yield from demand_ours(f"mode: browse of the queue {address.name}")
    bound = yield from bind_link(address, node, address.name)
    undo = (*map(unbind, bound), *_deletion(address, node, Side.RECEIVER))
    return _receiver_plan(address, address.name, browse, (*node.restore, *bound), undo)


def _named(text: str | Address, unique: str) -> Address:
    address = parse(text) if isinstance(text, str) else text
    if not address.temporary:
        return address
    create = address.create or Policy.ALWAYS
    if len((unique + address.name).encode()) > NAME_MAX:
        raise MalformedAddress("too long for the name of a temporary node", address.name, 0)
    return replace(address, name=unique + address.name, create=create, node=_temporary(address))


def _temporary(address: Address) -> NodeSection:
    """A temporary node goes with the connection, unless the address says otherwise."""
    node = replace(address.node, type=address.node.type or NodeType.QUEUE)
    said = node.x_declare
    if node.durable or said.durable:
        return node
    exclusive = said.exclusive if said.exclusive is not None or node.type is NodeType.TOPIC else True
    auto_delete = True if said.auto_delete is None else said.auto_delete
    return replace(node, x_declare=replace(said, exclusive=exclusive, auto_delete=auto_delete))


# -- the node


def _resolve(address: Address, side: Side) -> Resolution[Found]:
    creates = address.create is not None and address.create.applies(side)
    asserts = address.assert_ is not None and address.assert_.applies(side)
    if asserts and address.node.x_bindings and not creates:
        raise InvalidOption("assert: AMQP 0-9-1 cannot ask for bindings; leave node.x-bindings out")
    said = address.node.type
    kind = said or (yield from _ask_kind(address, side))
    node: Found | None = None
    if creates:
        node = yield from _declare(address, kind or NodeType.QUEUE, side, asserts)
    elif kind is None or (said and not (yield from _exists(kind, address.name, side))):
        yield from _missing(address, side, asserts)
    elif asserts:
        node = yield from _compare(address, kind, side)
    node = node or Found(kind or NodeType.QUEUE, _exchange_type(address, kind))
    bound = (yield from bind_all(bindings_of(address, address.node.x_bindings, node))) if creates else ()
    return replace(node, restore=(*node.restore, *bound))


def _ask_kind(address: Address, side: Side) -> Resolution[NodeType | None]:
    for kind in NodeType:
        if (yield from _exists(kind, address.name, side)):
            return kind
    return None


def _exists(kind: NodeType, name: str, side: Side) -> Resolution[bool]:
    what = "queue" if kind is NodeType.QUEUE else "exchange"
    answer = yield Operation(f"{what}_declare", {what: name, "passive": True})
    if answer.reply_code == RESOURCE_LOCKED and side is Side.SENDER:
        return True  # another connection's exclusive queue: a reply queue, for instance
    if answer.reply_code not in (0, NOT_FOUND):
        raise error_of(f"{what} {name}", answer)
    return answer.reply_code == 0


def _missing(address: Address, side: Side, asserts: bool) -> Resolution[None]:
    """Raises the error that best explains why there is no node."""
    name, kind = address.name, address.node.type
    if kind is None:
        raise NotFound(f"there is no queue and no exchange {name!r}, and the address does not say create")
    other = NodeType.TOPIC if kind is NodeType.QUEUE else NodeType.QUEUE
    if (yield from _exists(other, name, side)):
        raise (AssertionFailed if asserts else NotFound)(f"{name!r} is a {other.value}, not a {kind.value}")
    what = "queue" if kind is NodeType.QUEUE else "exchange"
    raise NotFound(f"there is no {what} {name!r}, and the address does not say create")


def _declare(address: Address, kind: NodeType, side: Side, asserts: bool) -> Resolution[Found | None]:
    """Declares the node; None if it exists and differs, which is an error only for an assertion."""
    operation = _declaration(address, kind)
    if kind is NodeType.QUEUE:
        yield from _check_alternate(address.name, address.node.x_declare)
    answer = yield operation
    if answer.reply_code == 0:
        return Found(kind, operation.arguments.get("exchange_type"), (operation,))
    refused = answer.reply_code in (PRECONDITION_FAILED, RESOURCE_LOCKED, ACCESS_REFUSED)
    if not refused or not (yield from _exists(kind, address.name, side)):
        raise error_of(f"{kind.value} {address.name}", answer)
    if asserts and answer.reply_code == ACCESS_REFUSED:
        raise error_of(f"to compare {kind.value} {address.name}", answer)
    if asserts:
        raise AssertionFailed(f"{kind.value} {address.name}: {answer.reply_code} {answer.reply_text}")
    return None


def _compare(address: Address, kind: NodeType, side: Side) -> Resolution[Found | None]:
    said = address.node
    if said.durable is None and said.x_declare == Declare():
        return None
    if kind is NodeType.TOPIC and said.x_declare.type is None:
        raise InvalidOption("assert: AMQP 0-9-1 compares an exchange as a whole; say its x-declare: {type: ...}, too")
    node = yield from _declare(address, kind, side, asserts=True)
    # the other side created it; it is not ours to create again after a fail-over
    return node and replace(node, restore=())


def _declaration(address: Address, kind: NodeType) -> Operation:
    said, durable = address.node.x_declare, bool(address.node.durable)
    if kind is NodeType.QUEUE:
        if said.type is not None:
            raise InvalidOption("node.x-declare.type is of exchanges; say node: {type: topic}")
        return _queue_declaration(address.name, said, durable, False)
    if said.exclusive:
        raise InvalidOption("node.x-declare.exclusive: over AMQP 0-9-1 an exchange cannot be exclusive")
    arguments = {
        "exchange": address.name,
        "exchange_type": said.type or "topic",
        "durable": durable if said.durable is None else said.durable,
        "auto_delete": bool(said.auto_delete),
        "arguments": _arguments(said),
    }
    return Operation("exchange_declare", arguments)


def _queue_declaration(name: str, said: Declare, durable: bool, private: bool) -> Operation:
    arguments = {
        "queue": name,
        "durable": durable if said.durable is None else said.durable,
        "exclusive": private if said.exclusive is None else said.exclusive,
        "auto_delete": private if said.auto_delete is None else said.auto_delete,
        "arguments": _arguments(said),
    }
    return Operation("queue_declare", arguments)


def _arguments(said: Declare) -> dict[str, Any]:
    alternate = {} if said.alternate_exchange is None else {"alternate-exchange": said.alternate_exchange}
    return {**alternate, **said.arguments}


def _exchange_type(address: Address, kind: NodeType | None) -> str | None:
    if kind is not NodeType.TOPIC:
        return None
    return address.node.x_declare.type or _PREDECLARED.get(address.name)


def _deletion(address: Address, node: Found, side: Side) -> tuple[Operation, ...]:
    if address.delete is None or not address.delete.applies(side):
        return ()
    what = "queue" if node.type is NodeType.QUEUE else "exchange"
    return (Operation(f"{what}_delete", {what: address.name}),)


def _check_alternate(queue: str, said: Declare) -> Resolution[None]:
    if said.alternate_exchange is not None:
        yield from demand_ours(f"x-declare: alternate-exchange of the queue {queue}")


# -- the link


def _subscription(address: Address, node: Found, unique: str) -> Resolution[ReceiverPlan]:
    link = address.link
    if address.mode is Mode.BROWSE:
        raise InvalidOption(f"mode: browse is for queues, and {address.name} is a topic: its receivers share nothing")
    if link.durable and link.name is None:
        raise InvalidOption("link.durable without link.name: no later receiver could find the subscription")
    queue = link.name or f"{unique}.{address.name.encode()[:_SHOWN].decode(errors='ignore')}"
    declaration = _queue_declaration(queue, link.x_declare, bool(link.durable), not link.durable)
    yield from _check_alternate(queue, link.x_declare)
    yield from demand(declaration)
    bound = yield from bind_link(address, node, queue)
    exclusive = declaration.arguments["exclusive"]
    private = (Operation("queue_delete", {"queue": queue}),) if exclusive else ()
    undo = (*private, *_deletion(address, node, Side.RECEIVER))
    # an argument may keep it longer (qpid.auto_delete_timeout), for fail-overs and not for this
    vanishes = private if declaration.arguments["auto_delete"] and not declaration.arguments["arguments"] else ()
    plan = _receiver_plan(address, queue, False, (*node.restore, declaration, *bound), undo)
    return replace(plan, vanishes=vanishes)


def _receiver_plan(
    address: Address, queue: str, browse: bool, restore: tuple[Operation, ...], undo: tuple[Operation, ...]
) -> ReceiverPlan:
    subscribe = address.link.x_subscribe
    no_ack = browse or address.link.reliability in (Reliability.UNRELIABLE, Reliability.AT_MOST_ONCE)
    exclusive = bool(subscribe.exclusive)
    return ReceiverPlan(address.name, queue, browse, no_ack, exclusive, subscribe.arguments, restore, undo)
