"""The IP addresses of a name, without blocking the loop (shell).

The system's resolver blocks, for many seconds if no name server answers, so each look-up has a thread.  Requests for a
name that is already being looked up share one answer.  The threads are daemons; an answer that can no longer be
delivered is dropped.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence

from client_lib.urls.url import Endpoint

LOGGER = logging.getLogger("client_lib")
Answer = Callable[[Sequence[str], str], None]
"""Called with the IP addresses in the order to try them or, if there are none, the reason."""

getaddrinfo = socket.getaddrinfo  # tests put their own here


class Resolver:
    """`call_threadsafe` runs a function in the requesting thread; answers are delivered through it."""

    def __init__(self, call_threadsafe: Callable[[Callable[[], None]], None]) -> None:
        self._call = call_threadsafe
        self._asking: dict[str, list[Answer]] = {}

    def look_up(self, address: Endpoint, answer: Answer) -> None:
        host = address.host
        if host in self._asking:
            self._asking[host].append(answer)
            return
        self._asking[host] = [answer]
        try:
            threading.Thread(target=self._ask, args=(host,), name=f"look-up of {host}", daemon=True).start()
        except RuntimeError as error:  # no thread can be started, or the interpreter is shutting down
            reason = str(error)
            self._call(lambda: self._answer(host, [], reason))

    def forget(self) -> None:
        """Drops all outstanding requests."""
        for waiting in self._asking.values():
            waiting.clear()

    def _ask(self, host: str) -> None:
        ips: list[str] = []
        reason = "no addresses"
        try:
            found = getaddrinfo(host, None, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            ips = interleaved([str(where[0]) for *_, where in found])
        except (OSError, UnicodeError) as error:
            reason = str(getattr(error, "strerror", None) or error)
        except Exception as error:
            LOGGER.exception("look-up of %s", host)
            reason = repr(error)
        self._call(lambda: self._answer(host, ips, reason))

    def _answer(self, host: str, ips: Sequence[str], reason: str) -> None:
        for answer in self._asking.pop(host, []):
            answer(ips, reason)


def interleaved(ips: Sequence[str]) -> list[str]:
    """The system's order with IPv6 and IPv4 alternating, so that a broken family costs only one attempt."""
    unique = list(dict.fromkeys(ips))
    first = [ip for ip in unique if (":" in ip) == (":" in unique[0])]
    second = [ip for ip in unique if ip not in first]
    mixed = [ip for pair in zip(first, second, strict=False) for ip in pair]
    return [*mixed, *first[len(second) :], *second[len(first) :]]
