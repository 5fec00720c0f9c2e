"""Cold methods: everything except the data path (publish, deliver, ack, confirm), which the core scans by itself.

The methods are pamqp's classes, which are generated from the specification; their `__slots__` and type attributes
drive reading and writing here.  pamqp does not do the reading because a peer may be hostile: here every length is
checked against the frame and no octets may be left over, while pamqp's own checks (which assume that its constructor is
called) raise exceptions without a reply code.
"""

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any, Final, TypeVar

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.constants import BASIC_CLASS, FRAME_METHOD
from qpidd_py.amqp.fields import (
    FieldError,
    decode_table,
    encode_longstr,
    encode_shortstr,
    encode_table,
)
from qpidd_py.amqp.frames import content_frames, frame
from qpidd_py.errors import ConnectionException, ReplyCode

_HEADER_HEAD = Struct(">HHQH")
_U16 = Struct(">H")
_U32 = Struct(">I")
_U64 = Struct(">Q")

Command = TypeVar("Command", bound=Frame)
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]


def _read_octet(data: bytes, offset: int) -> tuple[int, int]:
    if offset >= len(data):
        raise FieldError("an octet is missing")
    return data[offset], offset + 1


def _fixed(layout: Struct) -> Reader:
    def read(data: bytes, offset: int) -> tuple[int, int]:
        end = offset + layout.size
        if end > len(data):
            raise FieldError("a number is cut off")
        return layout.unpack_from(data, offset)[0], end

    return read


def _shortstr_octets(data: bytes, offset: int) -> tuple[bytes, int]:
    if offset >= len(data):
        raise FieldError("a short string is missing")
    end = offset + 1 + data[offset]
    if end > len(data):
        raise FieldError("a short string is cut off")
    return data[offset + 1 : end], end


def _read_shortstr(data: bytes, offset: int) -> tuple[str, int]:
    octets, end = _shortstr_octets(data, offset)
    return octets.decode(), end


def _read_routing_key(data: bytes, offset: int) -> tuple[str, int]:
    """Routing keys are any octets; `routing_key_octets` gives them back."""
    octets, end = _shortstr_octets(data, offset)
    return octets.decode("utf-8", "surrogateescape"), end


def _read_longstr(data: bytes, offset: int) -> tuple[bytes, int]:
    start = offset + 4
    if start > len(data):
        raise FieldError("a long string is cut off")
    end = start + int(_U32.unpack_from(data, offset)[0])
    if end > len(data):
        raise FieldError("a long string is cut off")
    return data[start:end], end


_READERS: Final[dict[str, Reader]] = {
    "octet": _read_octet,
    "short": _fixed(_U16),
    "long": _fixed(_U32),
    "longlong": _fixed(_U64),
    "timestamp": _fixed(_U64),
    "shortstr": _read_shortstr,
    "longstr": _read_longstr,
    "table": decode_table,
}
_WRITERS: Final[dict[str, Writer]] = {
    "octet": lambda value: bytes((value,)),
    "short": _U16.pack,
    "long": _U32.pack,
    "longlong": _U64.pack,
    "timestamp": _U64.pack,
    "shortstr": encode_shortstr,
    "longstr": encode_longstr,
    "table": encode_table,
}


def _reader_of(name: str, kind: str) -> Reader:
    return _read_routing_key if name == "routing_key" else _READERS[kind]


def _plan(command: type[Frame]) -> list[tuple[list[str], str]]:
    """The arguments in wire order as (names, type); neighbouring bits share octets and stand in one entry."""
    plan: list[tuple[list[str], str]] = []
    for name in command.__slots__:
        kind = command.amqp_type(name)
        if kind == "bit" and plan and plan[-1][1] == "bit" and len(plan[-1][0]) < 8:
            plan[-1][0].append(name)
        else:
            plan.append(([name], kind))
    return plan


_Entry = tuple[list[str], Reader | None]
_PLANS: Final[dict[int, tuple[type[Frame], list[_Entry]]]] = {
    index: (command, [(names, None if kind == "bit" else _reader_of(names[0], kind)) for names, kind in _plan(command)])
    for index, command in commands.INDEX_MAPPING.items()
}
_WRITE_PLANS: Final[dict[type[Frame], list[tuple[list[str], Writer | None]]]] = {
    command: [(names, _WRITERS.get(kind)) for names, kind in _plan(command)]
    for command in commands.INDEX_MAPPING.values()
}


def decode_method(payload: bytes) -> Frame:
    """Read the payload of a method frame.  Raises `ConnectionException` 501 for garbage, 540 for unknown methods."""
    if len(payload) < 4:
        raise ConnectionException(ReplyCode.FRAME_ERROR, "a method frame without class and method id")
    index: int = _U32.unpack_from(payload)[0]
    entry = _PLANS.get(index)
    if entry is None:
        text = f"unknown method {index >> 16}.{index & 0xFFFF}"
        raise ConnectionException(ReplyCode.NOT_IMPLEMENTED, text, index >> 16, index & 0xFFFF)
    command_type, plan = entry
    command = command_type.__new__(command_type)
    try:
        _read_arguments(command, plan, payload)
    except ValueError as error:  # FieldError and UnicodeDecodeError are both of this family
        text = f"{command_type.name}: {error}"
        raise ConnectionException(ReplyCode.FRAME_ERROR, text, index >> 16, index & 0xFFFF) from error
    return command


def _read_arguments(command: Frame, plan: list[_Entry], payload: bytes) -> None:
    offset = 4
    for names, reader in plan:
        if reader is None:
            bits, offset = _read_octet(payload, offset)
            for name in names:
                setattr(command, name, bool(bits & 1))
                bits >>= 1
        else:
            value, offset = reader(payload, offset)
            setattr(command, names[0], value)
    if offset != len(payload):
        raise FieldError(f"{len(payload) - offset} octets are left over")


def make(command: type[Command], **arguments: Any) -> Command:
    """A method without pamqp's checks: its constructors refuse names that other brokers allow, such as queue names
    with blanks."""
    made = command.__new__(command)
    for name, value in arguments.items():
        setattr(made, name, value)
    return made


def encode_method(channel: int, command: Frame) -> bytes:
    """One method as a whole frame."""
    parts = [_U32.pack(command.index)]
    for names, writer in _WRITE_PLANS[type(command)]:
        if writer is None:
            bits = 0
            for position, name in enumerate(names):
                bits |= bool(getattr(command, name)) << position
            parts.append(bytes((bits,)))
        else:
            parts.append(writer(getattr(command, names[0])))
    return frame(FRAME_METHOD, channel, b"".join(parts))


def ids(command: Frame) -> tuple[int, int]:
    """Class and method id."""
    return command.index >> 16, command.index & 0xFFFF


def routing_key_octets(key: str) -> bytes:
    """The octets of a routing key that `decode_method` has read."""
    return key.encode("utf-8", "surrogateescape")


PROPERTIES: Final[tuple[str, ...]] = tuple(commands.Basic.Properties.__slots__)
"""Names of the properties of a message, in the order of their flags."""
SPECIFIED: Final = tuple(name.removeprefix("message_") if name == "message_type" else name for name in PROPERTIES)
"""The same as the specification and pika name them."""
_PROPERTIES: Final = [
    (1 << (15 - place), name, commands.Basic.Properties.amqp_type(name)) for place, name in enumerate(PROPERTIES)
]


def decode_properties(header: bytes) -> dict[str, Any]:
    """Read the payload of a content header frame: the properties that are present, by name.

    Raises `ConnectionException` 502.
    """
    try:
        return _properties(header)
    except ValueError as error:
        raise ConnectionException(ReplyCode.SYNTAX_ERROR, f"content header: {error}", BASIC_CLASS, 0) from error


def _properties(header: bytes) -> dict[str, Any]:
    return {name: value for name, value, _, _ in _walk(header)}


def _walk(header: bytes) -> Iterator[tuple[str, Any, int, int]]:
    """Each property that is present: name, value, where it begins and ends."""
    if len(header) < _HEADER_HEAD.size:
        raise FieldError("cut off")
    flags: int = _HEADER_HEAD.unpack_from(header)[3]
    offset = _HEADER_HEAD.size
    for mask, name, kind in _PROPERTIES:
        if flags & mask:
            start = offset
            value, offset = _READERS[kind](header, start)
            yield name, value, start, offset


def split_properties(header: bytes) -> dict[str, bytes]:
    """As `decode_properties`, but the values as the octets that they are.  Raises `ConnectionException` 502."""
    try:
        return {name: header[start:end] for name, _, start, end in _walk(header)}
    except ValueError as error:
        raise ConnectionException(ReplyCode.SYNTAX_ERROR, f"content header: {error}", BASIC_CLASS, 0) from error


def join_properties(properties: Mapping[str, bytes], body_size: int) -> bytes:
    """The payload of a content header frame of what `split_properties` has taken apart."""
    flags, parts = 0, []
    for mask, name, _ in _PROPERTIES:
        if name in properties:
            flags |= mask
            parts.append(properties[name])
    return _HEADER_HEAD.pack(BASIC_CLASS, 0, body_size, flags) + b"".join(parts)


def encode_properties(properties: dict[str, Any], body_size: int) -> bytes:
    """The payload of a content header frame."""
    flags, parts = 0, []
    for mask, name, kind in _PROPERTIES:
        if name in properties:
            flags |= mask
            parts.append(_WRITERS[kind](properties[name]))
    return _HEADER_HEAD.pack(BASIC_CLASS, 0, body_size, flags) + b"".join(parts)


def encode_content(channel: int, command: Frame, properties: dict[str, Any], body: bytes, frame_max: int) -> bytes:
    """A method with content: method frame, header frame, and body frames of at most `frame_max` octets each."""
    header = encode_properties(properties, len(body))
    return encode_method(channel, command) + content_frames(channel, header, body, frame_max)
