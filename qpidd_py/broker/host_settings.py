"""Virtual hosts in the log: as settings, and in operations about what is in one.                                Pure.

kind             host    name    value
vhost            host            nothing; `/` has none: it is always there
vhost-deleted    host            nothing: it is deleted in slices, and nobody uses it any more; a new primary goes on
"""

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.security.entries import HOST

HOST_KIND: Final = "vhost"
DELETED: Final = "vhost-deleted"
KINDS: Final = (HOST_KIND, DELETED)
NAME_MAX: Final = 128
"""Octets of the name of a virtual host: an operation that gives a number has room for it (`core/numbering.pyx`)."""
_FIELD: Final = "vhost"
HOSTS_MAX: Final = 1000
"""Each has its exchanges, and some memory (13 KiB)."""


def check_host(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of this kind."""
    if value:
        raise ValueError(f"{kind}: {value!r:.60}, expected nothing")


def check_name(name: str) -> str:
    """Raises ValueError for what is no name of a virtual host."""
    try:
        octets = len(name.encode())
    except UnicodeEncodeError:
        octets = 0
    if not 0 < octets <= NAME_MAX or not name.isprintable():
        raise ValueError(f"virtual host {name[:64]!a}: expected 1 to {NAME_MAX} octets that can be printed")
    return name


def within(operation: dict[str, Any], host: str) -> dict[str, Any]:
    """The operation, of this virtual host.  `/` is not named: older versions know no other."""
    return operation if host == HOST else {**operation, _FIELD: host}


def host_of(operation: Mapping[str, Any]) -> str:
    """The virtual host of an operation; not of one about a setting, whose key has it."""
    return str(operation.get(_FIELD, HOST))
