"""Where clients reach the brokers, which may be on another network than the brokers' links (pure).

`ha-public-url` is told to every client in connection.start.  If it has an address for each of `ha-brokers-url`, in the
same order, a refusal names the primary by its public one; else (one address that moves with the primary, say) by that
of `ha-brokers-url`.
"""

from __future__ import annotations

from collections.abc import Sequence

SERVER_PROPERTY = "qpid.ha-public-url"


def public_address(address: str, brokers: Sequence[str], public_url: str) -> str:
    """What clients call the member at `address`, HOST:PORT; the result may have "ssl:" or "tcp:" before it."""
    public = [entry.strip() for entry in public_url.strip().removeprefix("amqp:").split(",")]
    if address not in brokers or len(public) != len(brokers):
        return address
    return public[brokers.index(address)].rpartition("@")[2] or address
