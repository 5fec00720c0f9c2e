"""Requests of `qpid-ha` to one broker, to all of a cluster, or to the primary."""

from collections.abc import Mapping
from typing import Any

from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from qpidd_py.cli.members import of_each
from qpidd_py.cli.output import describe
from qpidd_py.cli.target import brokers_of

Answer = dict[str, Any] | Exception
Answers = list[tuple[str, Answer]]


def ask(target: Target, deadline: Deadline, method: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One request on its own connection; the answer is a JSON object, with `address` added."""
    with ManagementSocket(target, deadline) as broker:
        return ask_on(broker, method, arguments)


def ask_on(broker: ManagementSocket, method: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    result = broker.request(method, arguments) or {}
    if not isinstance(result, dict):
        raise BrokerError(f"{broker.target.address}: {method} answered {type(result).__name__}, wanted an object")
    answer = {"address": broker.target.address, **result}
    if "state" in answer:
        # Brokers use another name among themselves; the tool prints `status`, as Apache Qpid's does.
        answer.setdefault("status", answer["state"])
    return answer


def primary_of(target: Target, deadline: Deadline) -> Target:
    """The primary of the cluster that `target` is a member of."""
    found = ask(target, deadline, "ha.query")
    if found.get("status") in ("recovering", "active"):
        return target
    address = found.get("primary")
    if not address:
        status = found.get("status", "unknown")
        raise BrokerError(f"{target.address} is {status} and knows no primary; --broker ADDRESS names another member")
    return target.at(str(address))


def ask_all(target: Target, deadline: Deadline, method: str, arguments: Mapping[str, Any] | None = None) -> Answers:
    """Get the list from the first broker, then ask all in parallel, so that dead ones cost one timeout only."""
    with ManagementSocket(target, deadline) as broker:
        first = ask_on(broker, "ha.query")
        addresses = brokers_of(first.get("brokers_url", ""))
        if not addresses:
            return [(target.address, ask_on(broker, method, arguments))]
    return of_each(addresses, lambda each: ask(target.at(each), deadline, method, arguments), deadline.seconds)


def as_object(address: str, answer: Answer) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {"address": address, "error": describe(answer)}
