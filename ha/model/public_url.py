"""The addresses at which clients reach the brokers, which may be on another network than the links.  Pure.

`ha-public-url` is sent to every client in connection.start.  If it has one address for each of `ha-brokers-url`, in the
same order, a refusal names the primary by its public address; otherwise (for example one address that moves with the
primary) by that of `ha-brokers-url`.
"""

from __future__ import annotations

from collections.abc import Sequence

SERVER_PROPERTY = "qpid.ha-public-url"


def public_address(address: str, brokers: Sequence[str], public_url: str) -> str:
    """The address for clients of the member at `address` (HOST:PORT); may begin with "ssl:" or "tcp:"."""
    public = [entry.strip() for entry in public_url.strip().removeprefix("amqp:").split(",")]
    if address not in brokers or len(public) != len(brokers):
        return address
    return public[brokers.index(address)].rpartition("@")[2] or address
