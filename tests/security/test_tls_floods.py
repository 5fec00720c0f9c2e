"""Peers that begin TLS and say nothing: each has 300 KiB of buffers before anybody knows who it is."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

from qpidd_py.amqp.constants import PROTOCOL_HEADER
from tests.integration.test_client_tls import TlsBroker
from tests.support.certificates import Authority, needs_openssl
from tests.support.wait import wait_for

pytestmark = needs_openssl
SILENT = 700
MOST = 600
"""Descriptors of the broker: 500 handshakes, and its own."""


def descriptors(broker: TlsBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_silent_peers_of_one_address_take_a_bounded_part(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    broker = TlsBroker(tmp_path, authority.certificate("good"), "--max-negotiate-time", "60s")
    trust = ssl.create_default_context(cafile=str(authority.file))
    with ExitStack() as stack:
        stack.callback(broker.close)
        broker.start()
        for _ in range(SILENT):
            source = ("127.0.1.1", 0)
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.tls_port), source_address=source))
        wait_for(lambda: "TLS handshakes are under way" in broker.log, what="some are refused")
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", broker.tls_port), timeout=30))
        honest = stack.enter_context(trust.wrap_socket(plain, server_hostname="localhost"))
        honest.sendall(PROTOCOL_HEADER)
        assert honest.recv(8)[:1] == b"\1", "connection.start"
        assert descriptors(broker) < MOST
