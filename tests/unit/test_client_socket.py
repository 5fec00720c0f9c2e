"""The blocking connection for management requests, when it stays open."""

import socket as sockets
import threading

import pytest

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from tests.support.socket_broker import SocketBroker


class LateAnswers:
    """HA that keeps its first request, and answers it before the second."""

    def __init__(self):
        self.waiting = []

    def admit(self, connection, properties):
        return None

    def opened(self, connection):
        return False

    def connection_closed(self, connection):
        pass

    def tick(self, now):
        pass

    def request(self, method, arguments, reply, user):
        self.waiting.append((reply, {"ok": True, "result": method}))
        if len(self.waiting) > 1:
            for answer, content in self.waiting:
                answer(content)
        return True


def test_an_answer_that_comes_too_late_is_not_that_of_the_next_request():
    with SocketBroker(LateAnswers()) as broker:
        socket = ManagementSocket(Target("127.0.0.1", broker.port), Deadline(60))
        with socket:
            with pytest.raises(TimeoutError):
                socket.request("ha.first", deadline=Deadline(0.5))
            assert socket.request("ha.second", deadline=Deadline(60)) == "ha.second"


def test_each_request_may_have_its_own_limit():
    with SocketBroker() as broker, ManagementSocket(Target("127.0.0.1", broker.port), Deadline(60)) as socket:
        for _ in range(2):
            assert socket.request("broker.info", deadline=Deadline(60))["name"] == "fake"
        with pytest.raises(RequestRefused, match="unknown method"):
            socket.request("none")


class TestNames:
    @pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 300, "x..y", "\udcff"])
    def test_an_unknown_name_is_an_error_with_its_reason(self, host):
        with pytest.raises(OSError, match=r":5: .+") as found:
            ManagementSocket(Target(host, 5), Deadline(20))
        assert "None" not in str(found.value)

    def test_a_name_server_that_does_not_answer_keeps_no_call_beyond_the_deadline(self, monkeypatch):
        release, real = threading.Event(), sockets.getaddrinfo

        def getaddrinfo(host, port, family=0, kind=0, proto=0, flags=0):
            if flags & sockets.AI_NUMERICHOST:
                return real(host, port, family, kind, proto, flags)
            release.wait(60)
            raise sockets.gaierror(-3, "late")

        monkeypatch.setattr(sockets, "getaddrinfo", getaddrinfo)
        with pytest.raises(TimeoutError, match=r"node9:5: the name is not resolved within 0\.2 s"):
            ManagementSocket(Target("node9", 5), Deadline(0.2))
        release.set()

    def test_each_address_of_a_name_is_tried(self, monkeypatch):
        with SocketBroker() as broker:
            refused, good = ("127.0.0.2", broker.port), ("127.0.0.1", broker.port)
            monkeypatch.setattr("qpidd_py.cli.client_socket.resolve", lambda *_: [refused, good])
            with ManagementSocket(Target("both", broker.port), Deadline(60)) as socket:
                assert socket.request("broker.info")["name"] == "fake"
