"""Field tables of AMQP 0-9-1 (specification 4.2.5.5, with the type letters that RabbitMQ and its clients use).

pamqp has a codec for them too.  It is not used for tables because it copies the rest of the table for each value, which
lets a hostile frame cost half a second; because it reads strings past their end without an error; and because it is
lossy (doubles become floats, binary strings and 64-bit timestamps cannot be written back), while a client's
declarations must reach a backup unchanged.  A test compares both on the values that both can express.

All functions raise `FieldError` (a ValueError) for octets that are no table and for values that no table can carry.
"""

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Any, Final

FieldTable = dict[str, Any]

MAX_DEPTH: Final = 32  # nesting of tables and arrays; a hostile peer must not exhaust the stack
OWN_DEPTH: Final = 4  # of tables of ours around those of a client


class FieldError(ValueError):
    """Octets that are no field table, or a value that no field table can carry."""


class Timestamp(int):
    """Seconds since 1970, 64 bits, as they stood on the wire (`datetime` ends with the year 9999)."""


class Int64(int):
    """A number that is written with 64 bits however small it is."""


_U8 = Struct(">B")
_U16 = Struct(">H")
_U32 = Struct(">I")
_U64 = Struct(">Q")
_I32 = Struct(">i")
_I64 = Struct(">q")
_DOUBLE = Struct(">d")
_DECIMAL = Struct(">Bi")


def decode_table(data: bytes, offset: int = 0, limit: int | None = None, depth: int = 0) -> tuple[FieldTable, int]:
    """Read a table with its length prefix; returns it and the offset behind it.  Nothing beyond `limit` is read."""
    start, end = _extent(data, offset, len(data) if limit is None else limit, depth)
    return decode_pairs(data, start, end, depth), end


def decode_operation(data: bytes) -> FieldTable:
    """A table of ours, such as a logged operation.  What a client has sent in tables of full depth is inside of it: a
    backup that refused it could never join."""
    return decode_table(data, depth=-OWN_DEPTH)[0]


def decode_value(data: bytes) -> Any:
    """Read one value with its type letter, as `split_table` has it."""
    return _decode_value(data, 0, len(data), 0)[0]


def split_table(data: bytes) -> dict[str, bytes]:
    """The fields of a table (with its length prefix), in their order, their values as the octets that they are."""
    offset, end = _extent(data, 0, len(data), 0)
    fields = {}
    while offset < end:
        start, name = _name(data, offset, end)
        _, offset = _decode_value(data, start, end, 0)
        fields[name] = data[start:offset]
    return fields


def join_table(fields: Mapping[str, bytes]) -> bytes:
    """The table that `split_table` has taken apart."""
    inside = b"".join(encode_shortstr(name) + value for name, value in fields.items())
    return _U32.pack(len(inside)) + inside


def decode_pairs(data: bytes, offset: int, end: int, depth: int = 0) -> FieldTable:
    """Read the inside of a table (AMQPLAIN sends it without the length prefix)."""
    table: FieldTable = {}
    while offset < end:
        offset, name = _name(data, offset, end)
        table[name], offset = _decode_value(data, offset, end, depth)
    return table


def _name(data: bytes, offset: int, end: int) -> tuple[int, str]:
    """Where the value of the field at `offset` begins, and its name."""
    stop = offset + 1 + data[offset]
    if stop >= end:
        raise FieldError("the name of a field reaches beyond its table")
    try:
        return stop, data[offset + 1 : stop].decode()
    except UnicodeDecodeError as error:
        raise FieldError("the name of a field is not UTF-8") from error


def _extent(data: bytes, offset: int, limit: int, depth: int) -> tuple[int, int]:
    """Where the inside of a table, array or long string begins and ends."""
    if depth > MAX_DEPTH:
        raise FieldError(f"tables nested deeper than {MAX_DEPTH}")
    start = offset + 4
    if start > limit:
        raise FieldError("a length is cut off")
    end = start + int(_U32.unpack_from(data, offset)[0])
    if end > limit:
        raise FieldError(f"a length of {end - start} octets where {limit - start} are left")
    return start, end


def _decode_value(data: bytes, offset: int, limit: int, depth: int) -> tuple[Any, int]:
    kind = data[offset]
    offset += 1
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        layout, convert = scalar
        end = offset + layout.size
        if end > limit:
            raise FieldError("a value is cut off")
        value = layout.unpack_from(data, offset)[0]
        return (value if convert is None else convert(value)), end
    if kind == 0x56:  # V
        return None, offset
    if kind == 0x44:  # D
        return _decode_decimal(data, offset, limit)
    start, end = _extent(data, offset, limit, depth + 1)
    if kind == 0x53:  # S
        return _text(data[start:end]), end
    if kind == 0x46:  # F
        return decode_pairs(data, start, end, depth + 1), end
    if kind == 0x41:  # A
        return _decode_array(data, start, end, depth + 1), end
    if kind == 0x78:  # x
        return bytearray(data[start:end]), end
    raise FieldError(f"unknown field type {chr(kind)!r}")


def _decode_array(data: bytes, offset: int, end: int, depth: int) -> list[Any]:
    values = []
    while offset < end:
        value, offset = _decode_value(data, offset, end, depth)
        values.append(value)
    return values


def _decode_decimal(data: bytes, offset: int, limit: int) -> tuple[Decimal, int]:
    if offset + _DECIMAL.size > limit:
        raise FieldError("a value is cut off")
    scale, mantissa = _DECIMAL.unpack_from(data, offset)
    return Decimal(mantissa).scaleb(-scale), offset + _DECIMAL.size


def _text(octets: bytes) -> str | bytes:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets  # long strings may hold any octets


_SCALARS: Final[dict[int, tuple[Struct, Callable[[Any], Any] | None]]] = {
    ord("t"): (_U8, bool),
    ord("b"): (Struct(">b"), None),
    ord("B"): (_U8, None),
    ord("s"): (Struct(">h"), None),
    ord("u"): (_U16, None),
    ord("I"): (_I32, None),
    ord("i"): (_U32, None),
    ord("l"): (_I64, None),
    ord("L"): (_I64, None),
    ord("f"): (Struct(">f"), None),
    ord("d"): (_DOUBLE, None),
    ord("T"): (_U64, Timestamp),
}


class Encoded(bytes):
    """A value with its type letter, for tables that are sent often."""


def encode_table(table: Mapping[str, Any] | None) -> bytes:
    """Write a table with its length prefix; names sorted, so that equal tables are equal octets."""
    if not table:
        return b"\x00\x00\x00\x00"
    inside = bytearray()
    for name in sorted(table):
        octets = name.encode()
        if len(octets) > 255:
            raise FieldError(f"the name of a field has {len(octets)} octets; 255 are possible")
        inside.append(len(octets))
        inside += octets
        inside += encode_value(table[name])
    return _U32.pack(len(inside)) + inside


def encode_table_content(table: Mapping[str, Any]) -> bytes:
    """The inside of a table, without its length."""
    return encode_table(table)[4:]


def encode_shortstr(value: str | bytes) -> bytes:
    """A short string: at most 255 octets."""
    octets = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise FieldError(f"a short string of {len(octets)} octets; 255 are possible")
    return bytes((len(octets),)) + octets


def encode_longstr(value: str | bytes) -> bytes:
    """A long string."""
    octets = value if isinstance(value, bytes) else value.encode()
    return _U32.pack(len(octets)) + octets


class Reader:
    """Reads the arguments of one method in order; every length is checked.  Raises `FieldError`."""

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    def _number(self, layout: Struct) -> int:
        if self.offset + layout.size > len(self.data):
            raise FieldError("a number is cut off")
        value: int = layout.unpack_from(self.data, self.offset)[0]
        self.offset += layout.size
        return value

    def octet(self) -> int:
        return self._number(_U8)

    def short(self) -> int:
        return self._number(_U16)

    def long(self) -> int:
        return self._number(_U32)

    def longlong(self) -> int:
        return self._number(_U64)

    def take(self, size: int) -> bytes:
        """The next `size` octets."""
        start = self.offset
        if start + size > len(self.data):
            raise FieldError("a string is cut off")
        self.offset = start + size
        return self.data[start : start + size]

    def shortstr(self) -> str:
        """Short strings that are not UTF-8 (routing keys may be any octets) come with surrogate escapes."""
        return self.take(self.octet()).decode("utf-8", "surrogateescape")

    def longstr(self) -> bytes:
        return self.take(self.long())

    def table(self) -> FieldTable:
        table, self.offset = decode_table(self.data, self.offset)
        return table


def encode_value(value: Any) -> bytes:
    """Write one value with its type letter."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise FieldError(f"no field can carry a {type(value).__name__}")
    return encoder(value)


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return b"I" + _I32.pack(value)
    try:
        return b"l" + _I64.pack(value)
    except StructError as error:
        raise FieldError(f"no field can carry the number {value}") from error


def _encode_str(value: str) -> bytes:
    octets = value.encode("utf-8", "surrogateescape")
    return b"S" + _U32.pack(len(octets)) + octets


def _encode_bytes(value: bytes) -> bytes:
    return b"S" + _U32.pack(len(value)) + value


def _encode_array(value: list[Any]) -> bytes:
    inside = b"".join(map(encode_value, value))
    return b"A" + _U32.pack(len(inside)) + inside


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise FieldError(f"no field can carry the decimal {value}")
    scale = max(0, -exponent)
    try:
        return b"D" + _DECIMAL.pack(scale, int(value.scaleb(scale)))
    except StructError as error:
        raise FieldError(f"no field can carry the decimal {value}") from error


def _encode_datetime(value: datetime.datetime) -> bytes:
    moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    return b"T" + _U64.pack(int(moment.timestamp()))


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    Encoded: lambda value: value,
    bool: lambda value: b"t\x01" if value else b"t\x00",
    int: _encode_int,
    str: _encode_str,
    bytes: _encode_bytes,
    bytearray: lambda value: b"x" + _U32.pack(len(value)) + value,
    float: lambda value: b"d" + _DOUBLE.pack(value),
    Decimal: _encode_decimal,
    Timestamp: lambda value: b"T" + _U64.pack(value),
    Int64: lambda value: b"l" + _I64.pack(value),
    datetime.datetime: _encode_datetime,
    dict: lambda value: b"F" + encode_table(value),
    list: _encode_array,
    type(None): lambda _: b"V",
}
