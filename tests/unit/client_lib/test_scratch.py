"""Asking on a channel that may be lost: what happens to the channel, to the question, and to who gave up waiting."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from client_lib import InvalidOption, MalformedAddress, NotFound
from client_lib.addresses.nodes import Node, ending
from client_lib.addresses.operations import Answer, Operation
from client_lib.addresses.scratch import Scratch, start_request, start_undo
from client_lib.connecting.transport import ChannelClosed


class FakeChannel:
    def __init__(self, connection: "FakeConnection", opened: Callable[[Any], None]) -> None:
        self.connection, self.opened = connection, opened
        self.is_open = False
        self.closed: list[Callable[[Any, Exception], None]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.published: list[tuple[Any, ...]] = []
        self.callback: Callable[[Any], None] = lambda _frame: None

    def add_on_close_callback(self, callback: Callable[[Any, Exception], None]) -> None:
        self.closed.append(callback)

    def open_ok(self) -> None:
        self.is_open = True
        self.opened(self)

    def refused(self, code: int, text: str) -> None:
        self.end(ChannelClosed(code, text))

    def end(self, reason: Exception) -> None:
        self.is_open = False
        for callback in self.closed:
            callback(self, reason)

    def close(self) -> None:
        self.is_open = False

    def __getattr__(self, method: str) -> Callable[..., None]:
        def call(**arguments: Any) -> None:
            if "bad" in arguments.values():
                raise ValueError("bad argument")
            self.callback = arguments.pop("callback")
            self.calls.append((method, arguments))

        return call

    def basic_consume(self, queue: str, callback: Callable[..., None], auto_ack: bool) -> None:
        assert auto_ack
        self.deliver = callback

    def basic_publish(self, *arguments: Any) -> None:
        self.published.append(arguments)


class FakeConnection:
    """Also what stands for the session: its commands run at once, and again when told to."""

    def __init__(self) -> None:
        self.channels: list[FakeChannel] = []
        self.restores: dict[object, tuple[Operation, ...]] = {}
        self.command: Future[Any] = Future()
        self.run: Callable[..., None] = lambda *_: None

    def channel(self, on_open_callback: Callable[[Any], None]) -> FakeChannel:
        self.channels.append(FakeChannel(self, on_open_callback))
        return self.channels[-1]

    @property
    def last(self) -> FakeChannel:
        return self.channels[-1]

    def start_command(self, run: Callable[[Any, Callable[[Any], None]], None], what: str) -> Future[Any]:
        self.run = run
        self.again()
        return self.command

    def again(self) -> None:
        """On the next connection."""
        main = FakeChannel(self, lambda _channel: None)
        self.run(main, self._done)

    def _done(self, result: Any) -> None:
        if not self.command.done():
            self.command.set_result(result)


ASK = Operation("queue_declare", {"queue": "q", "passive": True})


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


def test_questions_share_a_channel_until_one_costs_it(connection: FakeConnection) -> None:
    scratch, answers = Scratch(connection.channel(lambda _channel: None)), []
    scratch.ask(ASK, answers.append)
    first = connection.last
    first.open_ok()
    first.callback(None)
    scratch.ask(ASK, answers.append)
    assert connection.last is first
    first.refused(404, "no queue")
    scratch.ask(ASK, answers.append)
    connection.last.open_ok()
    connection.last.callback(None)
    assert answers == [Answer(), Answer(404, "no queue"), Answer()]
    assert (len(connection.channels), first.calls) == (3, [("queue_declare", dict(ASK.arguments))] * 2)
    scratch.close()
    assert not connection.last.is_open


def test_what_cannot_be_sent_is_told(connection: FakeConnection) -> None:
    scratch, answers = Scratch(connection.channel(lambda _channel: None)), []
    scratch.ask(Operation("queue_declare", {"queue": "bad"}), answers.append)
    connection.last.open_ok()
    assert [str(answer) for answer in answers] == ["bad argument"]


def test_a_lost_connection_is_no_answer(connection: FakeConnection) -> None:
    scratch, answers = Scratch(connection.channel(lambda _channel: None)), []
    scratch.ask(ASK, answers.append)
    connection.last.open_ok()
    connection.last.end(ConnectionError("lost"))
    assert answers == []


# ---- an address


def test_a_node_is_restored_from_the_moment_it_is_known(connection: FakeConnection) -> None:
    node = Node(connection, "new; {create: always, delete: always, node: {type: queue}}")
    steps = node.sending()
    future = next(steps)
    connection.last.open_ok()
    assert not connection.restores
    connection.last.callback(None)
    assert [operation.method for operation in connection.restores[node]] == ["queue_declare"]
    assert not connection.last.is_open
    with pytest.raises(StopIteration) as stop:
        steps.send(future.result(0))
    assert stop.value.value.routing_key == "new"


def test_closing_undoes_once(connection: FakeConnection) -> None:
    node = Node(connection, "q; {delete: always}")
    steps = node.sending()
    future = next(steps)
    connection.last.open_ok()
    connection.last.callback(None)
    with pytest.raises(StopIteration):
        steps.send(future.result(0))
    connection.command = Future()
    list_of_undo = node.closing()
    undo = next(list_of_undo)
    connection.last.open_ok()
    assert connection.last.calls == [("queue_delete", {"queue": "q"})]
    connection.last.refused(404, "gone already")
    assert undo.result(0) is None
    assert list(node.closing()) == []
    assert not connection.restores


def opened(connection: FakeConnection, address: str, answers: int) -> Node:
    """A receiver's node, after so many times "done"."""
    node = Node(connection, address)
    connection.command = Future()
    steps = node.receiving()
    future = next(steps)
    connection.last.open_ok()
    for _ in range(answers):
        connection.last.callback(None)
    with pytest.raises(StopIteration):
        steps.send(future.result(0))
    return node


def test_the_end_of_a_session_undoes_in_one_go_what_outlives_it(connection: FakeConnection) -> None:
    topic = "{node: {type: topic}, delete: always}"
    nodes = [opened(connection, f"a; {topic}", 4), None, opened(connection, f"b; {topic}", 4)]
    connection.command = Future()
    (undone,) = list(ending(connection, nodes))
    connection.last.open_ok()
    connection.last.callback(None)
    connection.last.callback(None)
    assert connection.last.calls == [("exchange_delete", {"exchange": "a"}), ("exchange_delete", {"exchange": "b"})]
    assert undone.done() and not connection.restores
    assert list(ending(connection, nodes)) == []


def test_after_a_loss_everything_is_asked_again(connection: FakeConnection) -> None:
    future = next(Node(connection, "t").sending())
    connection.last.open_ok()
    connection.last.refused(404, "no queue")
    connection.last.open_ok()
    connection.last.end(ConnectionError("lost"))
    connection.again()
    connection.last.open_ok()
    connection.last.refused(404, "no queue")
    connection.last.open_ok()
    connection.last.callback(None)
    assert future.result(0).exchange == "t"


def test_an_error_of_the_address_reaches_who_asked(connection: FakeConnection) -> None:
    steps = Node(connection, "q; {node: {type: queue}}").receiving()
    future = next(steps)
    for _ in range(2):
        connection.last.open_ok()
        connection.last.refused(404, "no")
    error = future.exception(0)
    assert isinstance(error, NotFound)
    with pytest.raises(NotFound):
        steps.throw(error)
    assert not connection.restores


def test_who_gives_up_waiting_leaves_nothing_behind(connection: FakeConnection) -> None:
    steps = Node(connection, "new; {create: always, node: {type: queue}}").sending()
    future = next(steps)
    connection.last.open_ok()
    future.cancel()
    with pytest.raises(TimeoutError):
        steps.throw(TimeoutError())
    assert connection.command.cancelled()
    connection.last.callback(None)
    assert not connection.restores


def test_the_end_of_the_session_ends_the_question(connection: FakeConnection) -> None:
    future = start_undo(connection, [Operation("queue_delete", {"queue": "q"})])
    connection.command.set_exception(ConnectionError("closed"))
    assert isinstance(future.exception(0), ConnectionError)


def test_an_address_that_cannot_be_read_is_told_before_anything_is_asked(connection: FakeConnection) -> None:
    with pytest.raises(MalformedAddress):
        Node(connection, "q;")


def test_an_argument_that_pika_cannot_send_is_an_invalid_option(connection: FakeConnection) -> None:
    future = next(Node(connection, "bad").sending())
    connection.last.open_ok()
    with pytest.raises(InvalidOption, match="bad argument"):
        future.result(0)


# ---- management requests


def test_a_request_is_published_and_its_answer_ends_it(connection: FakeConnection) -> None:
    future = start_request(connection, "queue.peek", b"{}")
    channel = connection.last
    channel.open_ok()
    assert channel.published == [("qpid.management", "queue.peek", b"{}")]
    channel.deliver(channel, None, None, b"answer")
    assert (future.result(0), channel.is_open) == (b"answer", False)


def test_a_broker_without_management_is_an_invalid_option(connection: FakeConnection) -> None:
    future = start_request(connection, "queue.peek", b"{}")
    connection.last.open_ok()
    connection.last.refused(404, "no queue 'qpid.management'")
    with pytest.raises(InvalidOption, match=r"queue\.peek: 404"):
        future.result(0)
