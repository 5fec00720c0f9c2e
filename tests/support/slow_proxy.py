"""A TCP proxy whose way back to the client can be made slow: a backup on a bad line, or one that reads too little."""

import contextlib
import socket
import threading
import time

CHUNK = 16384
BUFFER = 65536  # small, so that what is slow is felt at the sender


class SlowProxy:
    """A context manager.  `rate`: octets per second from the server to each client, None = as they come."""

    def __init__(self, port: int) -> None:
        self.rate: int | None = None
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._sockets: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> "SlowProxy":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for sock in (self._listener, *self._sockets):
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        try:
            server.connect(self._server)
        except OSError:
            server.close()
            # A reset, as the server's own host would send one: no process listens there.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            return
        self._sockets |= {client, server}
        for source, target, slow in ((client, server, False), (server, client, True)):
            thread = threading.Thread(target=self._pump, args=(source, target, slow), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                target.sendall(data)
                if slow and self.rate is not None:
                    time.sleep(len(data) / self.rate)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
