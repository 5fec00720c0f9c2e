"""Addresses of senders and receivers in Qpid's notation: options, defaults and validation (pure).

    name [ "/" subject ] [ "; {" options "}" ]

    create, delete, assert   always | sender | receiver | never
    mode                     consume | browse
    node   type              queue | topic
           durable           true | false
           x-declare         {type, durable, auto-delete, exclusive, alternate-exchange, arguments}
           x-bindings        [{exchange, queue, key, arguments}, ...]
    link   name, durable, x-declare, x-bindings: the subscription of a receiver to a topic
           reliability       unreliable | at-most-once | at-least-once | exactly-once (a sender)
           x-subscribe       {exclusive, arguments}

`text` has the lexical rules; `resolve` turns an address into AMQP methods.  A name that begins with "#" is temporary:
the client puts a unique text in front of it.  Source: chapter "Addresses" of Programming in Apache Qpid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from client_lib.addresses import text as address_text
from client_lib.errors import InvalidOption, MalformedAddress

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
NAME_MAX = 255
"""Octets of a name, subject or key (AMQP's short strings)."""


class Side(Enum):
    SENDER = "sender"
    RECEIVER = "receiver"


class Policy(Enum):
    """Which side of a link carries out create, delete or assert."""

    ALWAYS = "always"
    SENDER = "sender"
    RECEIVER = "receiver"
    NEVER = "never"

    def applies(self, side: Side) -> bool:
        return self is Policy.ALWAYS or self.value == side.value


class Mode(Enum):
    CONSUME = "consume"
    BROWSE = "browse"


class NodeType(Enum):
    QUEUE = "queue"
    TOPIC = "topic"


class Reliability(Enum):
    UNRELIABLE = "unreliable"
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True)
class Declare:
    """x-declare; None = not given in the address."""

    type: str | None = None
    durable: bool | None = None
    auto_delete: bool | None = None
    exclusive: bool | None = None
    alternate_exchange: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    """One entry of x-bindings; None stands for the node or the subscription queue."""

    exchange: str | None = None
    queue: str | None = None
    key: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Subscribe:
    """x-subscribe: how basic.consume is called."""

    exclusive: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeSection:
    type: NodeType | None = None
    durable: bool | None = None
    x_declare: Declare = Declare()
    x_bindings: tuple[Binding, ...] = ()


@dataclass(frozen=True)
class LinkSection:
    name: str | None = None
    durable: bool | None = None
    reliability: Reliability | None = None
    x_declare: Declare = Declare()
    x_bindings: tuple[Binding, ...] = ()
    x_subscribe: Subscribe = Subscribe()


@dataclass(frozen=True)
class Address:
    """A validated address; str() writes it so that `parse` reads the same again."""

    name: str
    subject: str | None = None
    create: Policy | None = None
    delete: Policy | None = None
    assert_: Policy | None = None
    mode: Mode | None = None
    node: NodeSection = NodeSection()
    link: LinkSection = LinkSection()

    @property
    def temporary(self) -> bool:
        return self.name.startswith("#")

    def __str__(self) -> str:
        options = {key: value for key, value in _said(self).items() if key not in ("name", "subject")}
        return address_text.write(self.name, self.subject, options)


def parse(text: str) -> Address:
    """Raises MalformedAddress, InvalidOption."""
    name, subject, raw = address_text.scan(text)
    for what, value in (("name", name), ("subject", subject or "")):
        if len(value.encode("utf-8", "surrogatepass")) > NAME_MAX:
            raise MalformedAddress(f"a {what} of more than {NAME_MAX} octets", text, 0)
    options = _Options(raw, "")
    address = Address(
        name=name,
        subject=subject,
        create=options.take("create", _one_of(Policy)),
        delete=options.take("delete", _one_of(Policy)),
        assert_=options.take("assert", _one_of(Policy)),
        mode=options.take("mode", _one_of(Mode)),
        node=options.take("node", _node) or NodeSection(),
        link=options.take("link", _link) or LinkSection(),
    )
    options.finish()
    return address


# -- reading options

_IMPOSSIBLE = {
    "node.properties": "is of AMQP 1.0; say x-declare",
    "node.capabilities": "is of AMQP 1.0",
    "link.capabilities": "is of AMQP 1.0",
    "link.properties": "is of AMQP 1.0",
    "link.filter": "is of AMQP 1.0; a headers exchange and x-bindings can choose messages",
    "link.selector": "cannot be had over AMQP 0-9-1; a headers exchange and x-bindings can choose messages",
    "link.timeout": "cannot be had over AMQP 0-9-1; say x-declare: {arguments: {x-expires: MILLISECONDS}}",
}


class _Options:
    """A map of options.  `finish` reports every option that was not read before as unknown."""

    def __init__(self, values: Any, path: str, hyphens: bool = False) -> None:
        if not isinstance(values, dict):
            raise InvalidOption(f"{path} is {values!r}, expected a map")
        self._values = {key.replace("_", "-") if hyphens else key: value for key, value in values.items()}
        self._path = f"{path}." if path else ""
        self._known: list[str] = []

    def take(self, name: str, read: Callable[[Any, str], T]) -> T | None:
        """The option, read by `read(value, path)`; None if it is absent."""
        self._known.append(name)
        return read(self._values.pop(name), self._path + name) if name in self._values else None

    def finish(self) -> None:
        for name in self._values:
            path = self._path + name
            if path in _IMPOSSIBLE:
                raise InvalidOption(f"{path} {_IMPOSSIBLE[path]}")
            raise InvalidOption(f"unknown option {path}; known are {', '.join(self._known)}")


def _one_of(kind: type[E]) -> Callable[[Any, str], E]:
    def read(value: Any, path: str) -> E:
        for member in kind:
            if member.value == value:
                return member
        raise InvalidOption(f"{path} is {value!r}, expected one of {', '.join(member.value for member in kind)}")

    return read


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{path} is {value!r}, expected true or false")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) > NAME_MAX:
        raise InvalidOption(f"{path} is {value!r}, expected a text of at most {NAME_MAX} octets")
    return value


def _word(value: Any, path: str) -> str:
    """A text option; numbers and booleans need no quotes, since a queue may be called 17."""
    return _text(address_text.write_value(value) if isinstance(value, (int, float)) else value, path)


def _table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidOption(f"{path} is {value!r}, expected a map")
    return value


def _node(value: Any, path: str) -> NodeSection:
    options = _Options(value, path)
    node = NodeSection(
        type=options.take("type", _one_of(NodeType)),
        durable=options.take("durable", _flag),
        x_declare=options.take("x-declare", _declare) or Declare(),
        x_bindings=options.take("x-bindings", _bindings) or (),
    )
    options.finish()
    return node


def _link(value: Any, path: str) -> LinkSection:
    options = _Options(value, path)
    link = LinkSection(
        name=options.take("name", _word),
        durable=options.take("durable", _flag),
        reliability=options.take("reliability", _one_of(Reliability)),
        x_declare=options.take("x-declare", _declare) or Declare(),
        x_bindings=options.take("x-bindings", _bindings) or (),
        x_subscribe=options.take("x-subscribe", _subscribe) or Subscribe(),
    )
    options.finish()
    return link


def _declare(value: Any, path: str) -> Declare:
    options = _Options(value, path, hyphens=True)
    declare = Declare(
        type=options.take("type", _text),
        durable=options.take("durable", _flag),
        auto_delete=options.take("auto-delete", _flag),
        exclusive=options.take("exclusive", _flag),
        alternate_exchange=options.take("alternate-exchange", _word),
        arguments=options.take("arguments", _table) or {},
    )
    options.finish()
    return declare


def _subscribe(value: Any, path: str) -> Subscribe:
    options = _Options(value, path)
    subscribe = Subscribe(options.take("exclusive", _flag), options.take("arguments", _table) or {})
    options.finish()
    return subscribe


def _bindings(value: Any, path: str) -> tuple[Binding, ...]:
    if not isinstance(value, list):
        raise InvalidOption(f"{path} is {value!r}, expected a list of maps")
    return tuple(_binding(item, f"{path}[{index}]") for index, item in enumerate(value))


def _binding(value: Any, path: str) -> Binding:
    options = _Options(value, path)
    binding = Binding(
        exchange=options.take("exchange", _word),
        queue=options.take("queue", _word),
        key=options.take("key", _word),
        arguments=options.take("arguments", _table) or {},
    )
    options.finish()
    return binding


# -- writing options


def _said(part: Any) -> dict[str, Any]:
    """The fields that differ from their defaults, by their option names in an address."""
    found: dict[str, Any] = {}
    for item in fields(part):
        value = getattr(part, item.name)
        if value in (None, (), {}):
            continue
        if isinstance(value, Enum):
            value = value.value
        elif isinstance(value, tuple):
            value = [_said(inner) for inner in value]
        elif isinstance(value, (Declare, Subscribe, NodeSection, LinkSection)):
            value = _said(value)
            if not value:
                continue
        found[item.name.rstrip("_").replace("_", "-")] = value
    return found
