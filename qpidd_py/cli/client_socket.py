"""Blocking connections for command-line tools: for management requests, and in general.  Shell.

One deadline covers everything from name resolution to the last answer; after it a `TimeoutError` is raised.
All errors are `OSError` or `BrokerError`, with the address in the text.
"""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from qpidd_py.amqp.client_handshake import CloseAnswered, Closed, Login, VersionRefused
from qpidd_py.amqp.management_client import Answer, ManagementClient, Ready
from qpidd_py.errors import ConnectionException, ReplyCode

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 5672
TLS_PORT = 5671
_CHUNK = 65536


class BrokerError(Exception):
    """The broker was reached, but something is wrong; the text is for people.  `code`: the reply code of AMQP, 0 if the
    broker named none."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class AuthenticationFailure(BrokerError):
    """The broker does not take these credentials (403)."""


class ConnectionClosed(BrokerError):
    """The broker closed the connection, with its reason."""


class ProtocolFailure(BrokerError):
    """The peer is not an AMQP 0-9-1 broker."""


class RequestRefused(BrokerError):
    """The broker refused the request; the text is the broker's."""


class Trust(NamedTuple):
    """Files for TLS: the authorities to trust (empty: those of the system), our certificate and its key, if any."""

    ca: str = ""
    certificate: str = ""
    key: str = ""

    def context(self) -> "ssl.SSLContext":
        """Raises OSError for files that cannot be used."""
        import ssl

        made = ssl.create_default_context(cafile=self.ca or None)
        if self.certificate:
            made.load_cert_chain(self.certificate, self.key or None)
        return made


class Target(NamedTuple):
    """One broker and how to log in there."""

    host: str
    port: int = DEFAULT_PORT
    login: Login = Login()
    tls: "ssl.SSLContext | None" = None
    trust: Trust = Trust()
    """For other brokers that are reached over TLS."""
    vhost: str = "/"

    @property
    def address(self) -> str:
        return shown(self.host, self.port, self.tls is not None)

    def at(self, address: str) -> "Target":
        """The same login at another `[ssl:]host[:port]`.  What uses TLS goes on to use it."""
        host, port = split_host_port(address)
        encrypted = self.tls is not None or uses_tls(address)
        tls = self.trust.context() if encrypted else None
        return self._replace(host=host, port=port or (TLS_PORT if encrypted else DEFAULT_PORT), tls=tls)


class Deadline:
    """Counts down from `seconds`; 0 means for ever."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds if seconds else None

    def remaining(self) -> float | None:
        """Seconds left, None for ever; raises `TimeoutError` when none are."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    @property
    def text(self) -> str:
        return f"no answer within {self.seconds:g} s"


@contextmanager
def telling(target: Target, deadline: Deadline) -> Iterator[None]:
    """Adds to socket errors the address and, after a timeout, the limit."""
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"{target.address}: {error.strerror or deadline.text}") from None
    except OSError as error:
        located = type(error)(f"{target.address}: {error.strerror or error}")
        located.strerror = str(located.args[0])  # errors of TLS are printed from this attribute
        raise located from None


class Client(Protocol):
    """The pure side of a connection, as in `qpidd_py.amqp.management_client`."""

    @property
    def closed(self) -> bool: ...

    def feed(self, data: bytes) -> Sequence[object]: ...

    def take_output(self) -> bytes: ...

    def close(self) -> None: ...


class ClientSocket:
    """Connected and logged in when the constructor returns; to be used as a context manager."""

    def __init__(self, target: Target, deadline: Deadline, client: Client, ready: type) -> None:
        """`ready`: the event of the client with which it can be used."""
        self.target = target
        self._deadline = deadline
        self._client = client
        self._events: list[object] = []
        self._socket = self._connect()
        try:
            self._expect(ready)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Sends connection.close without waiting for the answer: the tool is about to end, and the broker may not
        respond."""
        try:
            self._client.close()
            self._socket.setblocking(False)
            self._socket.send(self._client.take_output())
        except OSError:
            pass
        self._socket.close()

    def _connect(self) -> socket.socket:
        host, port = self.target.host, self.target.port
        with telling(self.target, self._deadline):
            connection = _connected(resolve(host, port, self._deadline), self._deadline)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.target.tls is None:
                return connection
            return self.target.tls.wrap_socket(connection, server_hostname=host)

    def _expect(self, wanted: type | tuple[type, ...]) -> Any:
        """The next event of this kind, or of these; the end of the connection is an exception."""
        while True:
            event = self._event()
            if isinstance(event, wanted):
                return event
            if isinstance(event, Closed):
                raise self._closed(event)
            if isinstance(event, VersionRefused):
                raise ProtocolFailure(f"{self.target.address}: {event}")
            if isinstance(event, CloseAnswered):
                raise ConnectionClosed(f"{self.target.address}: connection closed")

    def _event(self) -> object:
        while not self._events:
            with telling(self.target, self._deadline):
                self._flush()
                self._socket.settimeout(self._deadline.remaining())
                data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionClosed(f"{self.target.address}: connection aborted")
            self._feed(data)
        return self._events.pop(0)

    def _feed(self, data: bytes) -> None:
        try:
            self._events += self._client.feed(data)
        except ConnectionException as error:
            kind = AuthenticationFailure if error.reply_code == ReplyCode.ACCESS_REFUSED else ProtocolFailure
            raise kind(f"{self.target.address}: {error.reply_text}") from None
        if self._client.closed:
            # Our close-ok; the peer may be gone already, and its reason counts for more.
            try:
                self._flush()
            except OSError:
                pass

    def _flush(self) -> None:
        output = self._client.take_output()
        if output:
            self._socket.settimeout(self._deadline.remaining())
            self._socket.sendall(output)

    def _closed(self, event: Closed) -> BrokerError:
        kind = AuthenticationFailure if event.reply_code == ReplyCode.ACCESS_REFUSED else ConnectionClosed
        return kind(f"{self.target.address}: {event.reply_code} {event.reply_text}", event.reply_code)


class ManagementSocket(ClientSocket):
    """For management requests."""

    def __init__(self, target: Target, deadline: Deadline, *, manage: bool = True) -> None:
        """`manage=False` opens the connection and a channel only, and so works where management is off."""
        self._management = ManagementClient(target.login, consume=manage, virtual_host=target.vhost)
        super().__init__(target, deadline, self._management, Ready)

    def request(self, method: str, arguments: Mapping[str, Any] | None = None, deadline: Deadline | None = None) -> Any:
        """The result; raises `RequestRefused` with the broker's reason.  `deadline` replaces that of the connection."""
        self._deadline = deadline or self._deadline
        number = self._management.request(method, arguments)
        answer: Answer = self._expect(Answer)
        while answer.number != number:  # of a request whose time was over
            answer = self._expect(Answer)
        if not answer.ok:
            raise RequestRefused(answer.error, answer.code)
        return answer.result


def resolve(host: str, port: int, deadline: Deadline) -> list[tuple[Any, ...]]:
    """Socket addresses, as of `socket.getaddrinfo`.  Raises OSError.  A name server that does not answer holds a thread
    for longer than the deadline, but not the caller."""
    try:
        return [found[4] for found in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)]
    except (OSError, UnicodeError):
        pass  # a name
    from queue import Empty, SimpleQueue  # rarely needed
    from threading import Thread

    answer: SimpleQueue[list[tuple[Any, ...]] | OSError] = SimpleQueue()

    def look_up() -> None:
        try:
            answer.put([found[4] for found in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)])
        except OSError as error:
            answer.put(error)
        except UnicodeError as error:
            answer.put(OSError(None, str(error)))

    Thread(target=look_up, daemon=True).start()
    try:
        found = answer.get(timeout=deadline.remaining())
    except Empty:
        raise TimeoutError(None, f"the name is not resolved within {deadline.seconds:g} s") from None
    if isinstance(found, OSError):
        raise found
    return found


def _connected(addresses: Sequence[tuple[Any, ...]], deadline: Deadline) -> socket.socket:
    """To the first that accepts.  Raises the last error."""
    for last, address in enumerate(addresses, 1 - len(addresses)):
        try:
            return socket.create_connection((address[0], address[1]), deadline.remaining())
        except OSError:
            if last == 0:
                raise
    raise OSError(None, "the name has no address")


def shown(host: str, port: int, tls: bool) -> str:
    """`[ssl:]host:port`."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"ssl:{place}" if tls else place


def uses_tls(text: str) -> bool:
    return text.removeprefix("amqp:").startswith(("ssl:", "amqps:"))


def split_host_port(text: str) -> tuple[str, int | None]:
    """`host`, `host:port`, `[v6]` or `[v6]:port`; what stands in front (`amqp:`, `tcp:`, `ssl:`) is ignored.  Raises
    `ValueError`."""
    for prefix in ("amqps://", "amqp://", "amqps:", "amqp:", "tcp:", "ssl:"):
        text = text.removeprefix(prefix)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        good = bracket and (not rest or rest.startswith(":"))
    else:
        host, colon, port = text.partition(":")
        good = not colon or bool(port)
    if not good or not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError(f"address {text!r}, wanted host[:port]")
    return host, int(port) if port else None
