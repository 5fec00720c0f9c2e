"""Addresses in an ACL file: one, a range, `localhost` or `all`.                                                 Pure.

Names are not looked up: a server of names that does not answer would stop the broker.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
Range = tuple[Address, Address]

LOCALHOST: Final = "localhost"


def ranges_of(text: str) -> tuple[Range, ...]:
    """Of a value of `host` other than `all`.  Raises ValueError with what was expected."""
    if text == LOCALHOST:
        return tuple((each, each) for each in (ip_address("127.0.0.1"), ip_address("::1")))
    ends = [_written(part) for part in text.split(",")]
    if len(ends) > 2 or ends[0].version != ends[-1].version or int(ends[0]) > int(ends[-1]):
        raise ValueError("ADDRESS,ADDRESS, both of one kind, the lower one first")
    return ((ends[0], ends[-1]),)


def _written(text: str) -> Address:
    try:
        return ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        raise ValueError(
            f"an address, ADDRESS,ADDRESS, {LOCALHOST} or all; names are not looked up, since that may take long"
        ) from None


def address_of(peer: str) -> Address | None:
    """Of HOST:PORT; None for what is not connected by TCP/IP."""
    try:
        found = ip_address(peer.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def within(address: Address, ranges: tuple[Range, ...]) -> bool:
    return any(low.version == address.version and int(low) <= int(address) <= int(high) for low, high in ranges)
