"""Messages to the broker's supervisor, as in sd_notify(3).

systemd and the Pacemaker agent listen in the same way: NOTIFY_SOCKET names a datagram socket, WATCHDOG_USEC the silence
in µs after which the supervisor considers the broker hung.

READY=1, MAINPID   the ports are open; MAINPID because with --daemon it is not the process that was started
WATCHDOG=1         a beat, at a quarter of WATCHDOG_USEC.  It comes from the event loop, so a loop that hangs is silent,
                   and so is a process that is stopped
STOPPING=1         a clean end has begun; beats go on until it is over, so that a stop that hangs is seen, too
EXTEND_TIMEOUT_…   the journal is being read and the reading goes on: the start may take EXTENSION longer, from now
STATUS, X_QPID_…   what plug-ins tell (`PluginHost.tell`): at once when it changes; X_QPID_… again with every beat,
                   since a supervisor may have started to listen later

Nothing here can fail a broker: if the supervisor does not listen at the moment, a datagram is lost without an error;
if its socket is full, what was to be told comes with a later beat, or in a moment.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Final

BEATS: Final = 4
"""Beats within the silence that is allowed; sd_watchdog_enabled(3) advises two."""

EXTENSION: Final = 60.0
"""Seconds, for a step of the reading that says nothing meanwhile."""

REPEATED: Final = "X_"
"""Variables with this prefix are sent with every beat; STATUS is a text for people, and systemd keeps it."""

AGAIN: Final = 0.25
"""Seconds until what a full socket did not take is sent again."""

MISSED: Final = 16
"""Texts that are kept for that, the first one and the last ones: what a later one says again need not be told."""

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notices:
    """The texts.  Pure."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[str, str] = {}

    def ready(self) -> str:
        return f"READY=1\nMAINPID={self._pid}\n{self._text(self._known)}"

    def beat(self) -> str:
        repeated = {name: value for name, value in self._known.items() if name.startswith(REPEATED)}
        return f"WATCHDOG=1\n{self._text(repeated)}"

    def stopping(self, reason: str) -> str:
        return f"STOPPING=1\nSTATUS=stopping: {_line(reason)}\n"

    def tell(self, values: Mapping[str, str]) -> str:
        """The changed variables; empty when nothing changed."""
        news = {name: _line(value) for name, value in values.items() if self._known.get(name) != _line(value)}
        self._known |= news
        return self._text(news)

    @staticmethod
    def _text(values: Mapping[str, str]) -> str:
        return "".join(f"{name}={value}\n" for name, value in values.items())


def _line(text: str) -> str:
    """A line break would begin the next variable."""
    return " ".join(text.split())


def beat_interval(environment: Mapping[str, str], pid: int) -> float:
    """Seconds between two beats; 0 when no beats are expected, or those of another process."""
    usec = environment.get("WATCHDOG_USEC", "")
    wanted_of = environment.get("WATCHDOG_PID", "") or str(pid)
    if not (usec.isascii() and usec.isdigit()) or wanted_of != str(pid):
        return 0.0
    return int(usec) / 1e6 / BEATS


def socket_address(name: str) -> str:
    """The address for `sendto`; empty when it is not one of a unix socket.  `@` stands for an abstract one."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


class Notifier:
    """Sends the texts.  Shell."""

    def __init__(self, loop: asyncio.AbstractEventLoop, environment: Mapping[str, str]) -> None:
        self._loop = loop
        self._notices = Notices(os.getpid())
        self._address = socket_address(environment.get("NOTIFY_SOCKET", ""))
        self._interval = beat_interval(environment, os.getpid()) if self._address else 0.0
        self._socket = _datagram_socket() if self._address else None
        self._timer: asyncio.TimerHandle | None = None
        self._missed: list[str] = []
        """What the socket has not taken, oldest first; no beats."""

    def ready(self) -> None:
        """The ports are open; the beats begin."""
        self._send(self._notices.ready())
        self.begin()

    def begin(self) -> None:
        """The beats begin."""
        if self._interval:
            self._beat()

    def extend(self) -> None:
        """The start goes on."""
        self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION * 1e6:.0f}\n")

    def tell(self, values: Mapping[str, str]) -> None:
        """For plug-ins: cheap when nothing is new, and never raises."""
        news = self._notices.tell(values)
        if news:
            self._send(news)

    def stopping(self, reason: str) -> None:
        self._send(self._notices.stopping(reason))

    def close(self) -> None:
        """The last beat was sent; later calls do nothing."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._missed.clear()

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._beat)
        if not self._missed:
            self._taken(self._notices.beat())

    def _send(self, text: str) -> None:
        self._missed.append(text)
        if len(self._missed) == 1:
            self._send_missed()
        elif len(self._missed) > MISSED:
            del self._missed[1]

    def _send_missed(self) -> None:
        while self._missed and self._taken(self._missed[0]):
            self._missed.pop(0)
        if self._missed:
            self._loop.call_later(AGAIN, self._send_missed)

    def _taken(self, text: str) -> bool:
        """False when the socket is full."""
        try:
            if self._socket is not None:
                self._socket.sendto(text.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError:
            pass  # nobody listens now
        return True


def _datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def take_environment(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Our variables, removed: a program that we start must not speak to the supervisor in our name."""
    return {name: environment.pop(name) for name in VARIABLES if name in environment}
