"""The content of a message: octets, text, maps and lists (pure).

    content            content type                              octets
    bytes              as given, none by default                 as they are
    str                text/plain; charset=utf-8, or as given    in the charset (default UTF-8)
    dict               amqp/map                                  an AMQP 0-9-1 field table, length first
    list, tuple        amqp/list                                 an AMQP 0-9-1 field array, length first
    dict, list, tuple  application/json, if given                JSON

Received content is decoded by its type, text/* to str; what cannot be decoded stays bytes.  (AMQP 0-10 uses the
names amqp/map and amqp/list for an encoding of its own; ours can be read with the code that any 0-9-1 client has for
headers.)

Types inside maps and lists, by their tags in RabbitMQ's errata of 0-9-1: None V, bool t, int I or l (64 bits), float d,
str S, bytes x, Decimal D, datetime T (whole seconds; one without a time zone counts as UTC), dict F, list and tuple A.
pika's own encoder knows no floats, and its decoder cuts them off.
"""

from __future__ import annotations

import calendar
import codecs
import json
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

MAP, LIST, JSON, TEXT = "amqp/map", "amqp/list", "application/json", "text/plain; charset=utf-8"
DEPTH_MAX = 64
"""Maximum nesting of maps and lists in the content."""
HEADERS_DEPTH_MAX = 32
"""The same in headers and arguments, which a broker reads: the limit of qpidd-py's (`qpidd_py/amqp/fields.py`)."""
_LENGTH = struct.Struct(">I")


def type_of(content: Any, content_type: str | None) -> str | None:
    """The content type to send; `content_type` is the one set by the application.  Raises TypeError."""
    if content is None or isinstance(content, (bytes, bytearray, memoryview)):
        return content_type
    if isinstance(content, str):
        return content_type or TEXT
    if not isinstance(content, (Mapping, list, tuple)):
        raise TypeError(f"content is a {type(content).__name__}, expected bytes, str, a map or a list")
    kind = MAP if isinstance(content, Mapping) else LIST
    if content_type not in (None, kind, JSON):
        raise TypeError(f"a {type(content).__name__} is sent as {kind} or {JSON}, not as {content_type}")
    return content_type or kind


def encode(content: Any, content_type: str | None) -> bytes:
    """The octets.  Raises TypeError and ValueError, which name the offending key, and LookupError for a charset."""
    kind = type_of(content, content_type)
    if content is None:
        return b""
    if isinstance(content, str):
        return content.encode(_charset(kind))
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    if kind == JSON:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return encode_table(content) if kind == MAP else _array(content, "content", 0)


def decode(body: bytes, content_type: str | None) -> Any:
    """The content of a received message."""
    decoder = _decoder(content_type)
    if decoder is None:
        return body
    try:
        return decoder(body)
    except (ValueError, LookupError, OverflowError, OSError, RecursionError, struct.error, ArithmeticError):
        return body


def _decoder(content_type: str | None) -> Callable[[bytes], Any] | None:
    if content_type is None:
        return None
    if content_type.startswith("text/"):
        return lambda body: body.decode(_charset(content_type))
    return _DECODERS.get(content_type)


def _charset(content_type: str | None) -> str:
    """Raises LookupError for a charset that Python does not know."""
    if not content_type or "charset=" not in content_type:
        return "utf-8"
    name = content_type.partition("charset=")[2].partition(";")[0].strip().strip('"')
    return codecs.lookup(name).name


# -- encoding


def encode_table(table: Mapping[str, Any], path: str = "content", depth: int = 0) -> bytes:
    """A field table, its length first.  `path` names it in errors.  Raises TypeError, ValueError."""
    if depth > DEPTH_MAX:
        raise ValueError(f"{path}: more than {DEPTH_MAX} maps and lists inside each other")
    pieces: list[bytes] = []
    for key, value in table.items():
        where = f"{path}[{key!r}]"
        if not isinstance(key, str):
            raise TypeError(f"{where}: the key is a {type(key).__name__}, expected str")
        octets = utf8(key, where)
        if len(octets) > 255:
            raise ValueError(f"{where}: the key has {len(octets)} octets, at most 255 are possible")
        pieces += (bytes((len(octets),)), octets, _value(value, where, depth))
    data = b"".join(pieces)
    return _LENGTH.pack(len(data)) + data


def check_depth(value: Any, path: str, depth: int = 0) -> None:
    """Raises ValueError for maps and lists in headers or arguments that qpidd-py's broker would close the connection
    for."""
    if depth > HEADERS_DEPTH_MAX:
        raise ValueError(f"{path}: more than {HEADERS_DEPTH_MAX} maps and lists inside each other")
    for inner in value.values() if isinstance(value, Mapping) else value:
        if isinstance(inner, (Mapping, list, tuple)):
            check_depth(inner, path, depth + 1)


def _array(items: Any, path: str, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ValueError(f"{path}: more than {DEPTH_MAX} maps and lists inside each other")
    data = b"".join([_value(item, f"{path}[{index}]", depth) for index, item in enumerate(items)])
    return _LENGTH.pack(len(data)) + data


def _value(value: Any, path: str, depth: int) -> bytes:
    if isinstance(value, str):
        octets = utf8(value, path)
        return b"S" + _LENGTH.pack(len(octets)) + octets
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):  # pika's decoder fails on it, and the message would be redelivered without end
            raise ValueError(f"{path} is {value}, expected a finite number")
        return struct.pack(">cd", b"d", value)
    if value is None:
        return b"V"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"x" + _LENGTH.pack(len(value)) + bytes(value)
    if isinstance(value, Mapping):
        return b"F" + encode_table(value, path, depth + 1)
    if isinstance(value, (list, tuple)):
        return b"A" + _array(value, path, depth + 1)
    if isinstance(value, datetime):
        return struct.pack(">cQ", b"T", _seconds(value, path))
    if isinstance(value, Decimal):
        return _decimal(value, path)
    raise TypeError(f"{path} is a {type(value).__name__}, which AMQP 0-9-1 cannot carry")


def utf8(text: str, path: str) -> bytes:
    """Raises ValueError, naming `path`, for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path} is {text!r}, which is no valid text") from None


def _integer(value: int, path: str) -> bytes:
    if -0x80000000 <= value < 0x80000000:
        return struct.pack(">ci", b"I", value)
    if -(1 << 63) <= value < 1 << 63:
        return struct.pack(">cq", b"l", value)
    raise ValueError(f"{path} is {value}, which does not fit into 64 bits")


def _seconds(value: datetime, path: str) -> int:
    seconds = calendar.timegm(value.utctimetuple())
    if seconds < 0:
        raise ValueError(f"{path} is {value}, before 1970")
    return seconds


def _decimal(value: Decimal, path: str) -> bytes:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    if isinstance(exponent, int) and 0 < exponent < 10:
        number, exponent = number * 10**exponent, 0
    if not isinstance(exponent, int) or not -255 <= exponent <= 0 or not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{path} is {value}, expected a decimal of 32 bits and at most 255 places")
    return struct.pack(">cBi", b"D", -exponent, number)


# -- decoding

_FIXED = {
    tag[0]: struct.Struct(">" + code)
    for tag, code in ((b"b", "b"), (b"B", "B"), (b"s", "h"), (b"U", "h"), (b"u", "H"), (b"I", "i"), (b"i", "I"))
}
_FIXED |= {ord("l"): struct.Struct(">q"), ord("L"): struct.Struct(">q"), ord("f"): struct.Struct(">f")}
_FIXED |= {ord("d"): struct.Struct(">d"), ord("t"): struct.Struct(">?")}


def _whole(body: bytes, read: Callable[[bytes, int, int], tuple[Any, int]]) -> Any:
    value, end = read(body, 0, 0)
    if end != len(body):
        raise ValueError(f"{len(body) - end} octets too many")
    return value


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    MAP: lambda body: _whole(body, _read_table),
    LIST: lambda body: _whole(body, _read_array),
    JSON: json.loads,
}


def _octets(data: bytes, start: int, size: int) -> bytes:
    if start + size > len(data):
        raise ValueError("cut off")
    return data[start : start + size]


def _read_long(data: bytes, at: int) -> tuple[bytes, int]:
    size = _LENGTH.unpack_from(data, at)[0]
    return _octets(data, at + 4, size), at + 4 + size


def _read_table(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    size = _LENGTH.unpack_from(data, at)[0]
    at, end = at + 4, at + 4 + size
    found: dict[str, Any] = {}
    while at < end:
        length = _octets(data, at, 1)[0]
        key = _octets(data, at + 1, length).decode()
        found[key], at = _read_value(data, at + 1 + length, depth + 1)
    if at != end:
        raise ValueError("a map of another length than it says")
    return found, at


def _read_array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    size = _LENGTH.unpack_from(data, at)[0]
    at, end = at + 4, at + 4 + size
    found = []
    while at < end:
        value, at = _read_value(data, at, depth + 1)
        found.append(value)
    if at != end:
        raise ValueError("a list of another length than it says")
    return found, at


def _read_value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > DEPTH_MAX + 1:
        raise ValueError("too many maps and lists inside each other")
    tag, at = _octets(data, at, 1)[0], at + 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        return fixed.unpack_from(data, at)[0], at + fixed.size
    match chr(tag):
        case "S":
            octets, at = _read_long(data, at)
            return _text(octets), at
        case "x":
            return _read_long(data, at)
        case "F":
            return _read_table(data, at, depth)
        case "A":
            return _read_array(data, at, depth)
        case "V":
            return None, at
        case "T":
            return datetime.fromtimestamp(struct.unpack_from(">Q", data, at)[0], UTC), at + 8
        case "D":
            places, number = struct.unpack_from(">Bi", data, at)
            return Decimal(number).scaleb(-places), at + 5
    raise ValueError(f"unknown type {chr(tag)!r}")


def read_property(name: str, data: bytes, at: int) -> tuple[Any, int]:
    """The value of a property at `at` of a property list, and where the next one begins.  Raises ValueError."""
    try:
        if name == "headers":
            return _read_table(data, at, 0)
        if name in ("delivery_mode", "priority"):
            return data[at] if at < len(data) else _octets(data, at, 1)[0], at + 1
        if name == "timestamp":
            return struct.unpack_from(">Q", data, at)[0], at + 8
        length = _octets(data, at, 1)[0]
        return _octets(data, at + 1, length).decode("utf-8", "backslashreplace"), at + 1 + length
    except (struct.error, ArithmeticError, OSError) as error:
        raise ValueError(f"property {name}: {error}") from None


def _text(octets: bytes) -> str | bytes:
    """Text if it is UTF-8, otherwise octets: long strings are text only by convention."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets
