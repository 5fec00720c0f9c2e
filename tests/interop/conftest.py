"""A broker in a thread of the test process, on a real socket, for unmodified clients."""

import contextlib
import selectors
import socket
import threading
import time

import pika
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core.reactor import Reactor
from tests.support.logins import password_check


class _Socket:
    """The connection's transport."""

    waiting = 0
    connection: ClientConnection

    def __init__(self, reactor):
        self.reactor = reactor

    def disconnect(self):
        self.reactor.remove(self.connection.core)

    def output_ready(self):
        raise AssertionError("connections with a descriptor do not ask")


class BrokerThread:
    """Serves until `stop`.  Everything of the broker happens in its thread; `call` runs something there."""

    def __init__(self, **settings):
        self.broker = Broker(authenticate=password_check({"guest": "guest", "other": "secret"}), **settings)
        self.reactor = Reactor(self.broker.engine)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.errors = []
        self.ticking = True
        self._calls = []
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self.broker.engine.schedule = lambda: None  # every round ends with a turn
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with selectors.DefaultSelector() as selector:
            for item in (self.listener, self.reactor, self._woken):
                selector.register(item, selectors.EVENT_READ, item)
            while self._running:
                for key, _ in selector.select(0.05):
                    self._serve(key.data)
                if self.ticking:
                    self.broker.tick(time.monotonic())
                self.broker.engine.now = time.time_ns() // 1_000_000
                self.broker.engine.tick()
                self.broker.engine.end_turn()

    def _serve(self, item):
        try:
            if item is self.listener:
                self._accept()
            elif item is self._woken:
                self._woken.recv(4096)
                while self._calls:
                    self._calls.pop(0)()
            else:
                self.reactor.poll()
        except Exception as error:  # a test must see it
            self.errors.append(error)

    def _accept(self):
        sock, address = self.listener.accept()
        sock.setblocking(False)
        transport = _Socket(self.reactor)
        transport.connection = ClientConnection(self.broker, f"{address[0]}:{address[1]}", transport)
        self.reactor.add(transport.connection.core, sock)

    def call(self, function):
        """Runs `function` in the broker's thread; its result."""
        done, results = threading.Event(), []

        def run():
            try:
                results.append(function())
            finally:
                done.set()

        self._calls.append(run)
        self._wake.send(b"x")
        assert done.wait(30)
        return results[0]

    def stop(self):
        self._running = False
        self._wake.send(b"x")
        self._thread.join(30)
        for item in (self.listener, self._wake, self._woken):
            item.close()

    # ------------------------------------------------------------ clients

    def parameters(self, **options):
        credentials = options.pop("credentials", pika.PlainCredentials("guest", "guest"))
        return pika.ConnectionParameters("127.0.0.1", self.port, credentials=credentials, **options)

    def connect(self, **options):
        return pika.BlockingConnection(self.parameters(**options))


@pytest.fixture
def server():
    thread = BrokerThread()
    yield thread
    thread.stop()
    assert not thread.errors


@pytest.fixture
def connection(server):
    connection = server.connect()
    yield connection
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.fixture
def channel(connection):
    return connection.channel()
