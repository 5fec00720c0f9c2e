"""Looks for an active primary among the other brokers.  Shell."""

import qpidd_agent.request as amqp
from qpidd_agent.parameters import Parameters

PATIENCE = 0.3
"""Seconds for each broker; one that takes longer is asked again later."""
ACTIVE = "active"


def primary_elsewhere(parameters: Parameters) -> bool:
    """True if a member of the cluster answers as active primary.  Our own broker is asked, too, and does not answer."""
    return any(_state(parameters, address) == ACTIVE for address in parameters.brokers.split(",") if address.strip())


def _state(parameters: Parameters, address: str) -> str:
    """What that broker says of itself; empty without an answer."""
    import json

    try:
        login = (parameters.mechanism, *parameters.login)
        found = json.loads(amqp.ask(_place(parameters, address.strip()), login, "ha.status", "{}", PATIENCE))
        return str(found["result"]["state"])
    except (OSError, amqp.Refused, ValueError, KeyError, TypeError):
        return ""


def _place(parameters: Parameters, address: str) -> "tuple[str, int, tuple[str, str, str] | None]":
    """Host, port, files for TLS.  Raises `ValueError`."""
    tls = address.startswith("ssl:")
    for prefix in ("ssl:", "amqp:", "tcp:"):
        address = address.removeprefix(prefix)
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port), (parameters.tls or ("", "", "")) if tls else None
