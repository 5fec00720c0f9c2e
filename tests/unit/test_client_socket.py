"""The blocking connection for management requests, when it stays open."""

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
        socket = ManagementSocket(Target("127.0.0.1", broker.port), Deadline(5))
        with socket:
            with pytest.raises(TimeoutError):
                socket.request("ha.first", deadline=Deadline(0.1))
            assert socket.request("ha.second", deadline=Deadline(5)) == "ha.second"


def test_each_request_may_have_its_own_limit():
    with SocketBroker() as broker, ManagementSocket(Target("127.0.0.1", broker.port), Deadline(5)) as socket:
        for _ in range(2):
            assert socket.request("broker.info", deadline=Deadline(5))["name"] == "fake"
        with pytest.raises(RequestRefused, match="unknown method"):
            socket.request("none")
