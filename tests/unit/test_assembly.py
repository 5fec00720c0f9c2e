"""What every broker of a process has, also the one that answers while the journal is read."""

from typing import Any

import pytest

from qpidd_py.assembly import make_broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.config import BrokerSettings, LinkSettings, NetworkSettings, SecuritySettings
from tests.unit.test_management import NoTransport


@pytest.mark.parametrize(
    ("security", "user"),
    [
        (SecuritySettings(), ""),
        (SecuritySettings(anonymous_user="visitor"), "visitor"),
        (SecuritySettings(auth=False), "anonymous"),
        (SecuritySettings(auth=False, anonymous_user="visitor"), "visitor"),
    ],
)
def test_as_whom_anonymous_logs_in(security: SecuritySettings, user: str) -> None:
    settings: Any = {kind: kind() for kind in (BrokerSettings, LinkSettings, NetworkSettings)}
    settings[SecuritySettings] = security
    broker = make_broker(settings, "127.0.0.1:5672", "1")
    handshake = ClientConnection(broker, "peer:1", NoTransport()).handshake
    start: Any = handshake.protocol_header(b"AMQP\x00\x00\x09\x01")
    assert handshake.anonymous == user and ("ANONYMOUS" in start.mechanisms.split()) is bool(user)
