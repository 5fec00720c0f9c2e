"""Adds the header `x-resent` to an encoded property list (pure).

The message itself is not encoded again: the application may have changed it since, and there is no caller to raise an
error to.
"""

from __future__ import annotations

import struct

from client_lib.message import RESENT_HEADER

FLAG = bytes((len(RESENT_HEADER),)) + RESENT_HEADER.encode() + b"t\x01"
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x8000, 0x4000, 0x2000


def mark_resent(payload: bytes) -> bytes:
    """The same properties with the header; unchanged if they have it."""
    if FLAG in payload:
        return payload
    (flags,) = struct.unpack_from(">H", payload)
    at = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            at += 1 + payload[at]
    if not flags & _HEADERS:
        flags |= _HEADERS
        table, after = b"", at
    else:
        (size,) = struct.unpack_from(">I", payload, at)
        after = at + 4 + size
        table = payload[at + 4 : after]
    table += FLAG
    return struct.pack(">H", flags) + payload[2:at] + struct.pack(">I", len(table)) + table + payload[after:]
