"""qpid-receive against a session that does what the test says."""

import json

import pytest

from client_lib.cli import receive, show
from client_lib.cli.receive import EMPTY_AFTER
from client_lib.cli.sequence import CheckFailed
from client_lib.errors import Returned, TransactionAborted, TransactionUnknown
from client_lib.message import Message
from tests.unit.client_lib.cli_stand_ins import FakeConnection, FakeSession, FakeWorld


def numbered(sn: int, redelivered: bool = False, content: object = None, id: str | None = None) -> Message:
    message = Message(str(sn) if content is None else content, id=id or f"p:{sn}", properties={"sn": sn})
    message.redelivered = redelivered
    return message


class Case:
    def __init__(self, *words: str) -> None:
        self.world = FakeWorld()
        self.work = receive.Receiving(receive.make_parser().parse_args(["-a", "q", *words]), self.world)
        self.connection = FakeConnection(self.world)
        self.work.prepare(self.connection)  # type: ignore[arg-type]
        self.session: FakeSession = self.connection.sessions[0]

    def run(self, *arriving: object) -> str:
        self.session.arriving += arriving
        self.work.run()
        return self.world.printed


def test_prints_acknowledges_and_ends_when_the_queue_is_empty() -> None:
    case = Case("--report-total")
    began = case.world.now
    assert case.run(numbered(1), numbered(2)) == "1\n2\n"
    assert case.session.did == ["acknowledge"]
    assert case.world.now - began == pytest.approx(EMPTY_AFTER)
    assert case.session.receiver_options == {"address": "q", "capacity": 1000}
    assert case.work.finish(0) == 0 and case.work.received == 2


def test_timeout_counts_from_the_last_message() -> None:
    case = Case("--timeout", "3")
    began = case.world.now
    assert case.run(2.8, numbered(1), 2.8, numbered(2)) == "1\n2\n"
    assert case.world.now - began == pytest.approx(2.8 + 2.8 + 3, abs=0.5)


def test_an_outage_is_not_a_time_without_messages() -> None:
    case = Case("--timeout", "1")
    case.connection.is_connected = False
    began, advance = case.world.now, case.world.pass_time

    def pass_time(seconds: float) -> None:
        advance(seconds)
        case.connection.is_connected = case.world.now > began + 30

    case.world.pass_time = pass_time  # type: ignore[method-assign]
    case.run()
    assert case.world.now - began == pytest.approx(31, abs=0.5)


def test_forever_ends_with_a_signal() -> None:
    case = Case("--forever", "--timeout", "1")
    case.world.stop_at = case.world.now + 100
    case.run(numbered(1), 50.0, numbered(2))
    assert case.world.printed == "1\n2\n" and not case.work.complete
    assert case.world.now - case.world.stop_at < 1


def test_a_number_of_messages() -> None:
    case = Case("-m", "2")
    assert case.run(numbered(1), numbered(2), numbered(3)) == "1\n2\n"
    assert case.work.complete and case.session.receiver_options["capacity"] == 2
    assert case.session.did == ["acknowledge"]


def test_ends_at_the_end_of_the_stream() -> None:
    case = Case("-f")
    assert case.run(numbered(1), Message(b"eos"), numbered(2)) == "1\n"
    assert case.work.complete and case.session.did == ["acknowledge"]


def test_ack_frequency() -> None:
    case = Case("--ack-frequency", "2")
    case.run(*(numbered(n) for n in range(1, 6)))
    assert case.session.did == ["acknowledge"] * 3


def test_acknowledges_before_the_window_is_full() -> None:
    """Else the broker waits for us and we wait for it."""
    case = Case("--ack-frequency", "100", "--capacity", "2")
    case.run(*(numbered(n) for n in range(1, 5)))
    assert case.session.did == ["acknowledge"] * 2
    few = Case("-m", "2", "--ignore-duplicates")
    few.run(numbered(1), numbered(1, True), numbered(1, True), numbered(1, True), numbered(2))
    assert few.session.did == ["acknowledge"] * 3, "the window is as small as what is wanted"


def test_acknowledges_when_there_is_nothing_to_do() -> None:
    case = Case("-f")
    case.world.stop_at = case.world.now + 10
    case.run(numbered(1), 5.0, numbered(2))
    assert case.session.did == ["acknowledge"] * 2


def test_never_acknowledges() -> None:
    case = Case("--ack-frequency", "0")
    case.run(*(numbered(n) for n in range(1, 5)))
    assert case.session.did == [] and case.session.receiver_options["capacity"] == 65535


def test_what_is_printed_is_written_before_it_is_acknowledged() -> None:
    case = Case("--ack-frequency", "1")
    order: list[str] = []
    case.session.acknowledge = lambda sync=True: order.append("acknowledge")  # type: ignore[method-assign]
    case.world.out.flush = lambda: order.append(f"flush {case.world.printed!r}")  # type: ignore[method-assign]
    case.run(numbered(1))
    assert order[:2] == ["flush '1\\n'", "acknowledge"]


def test_a_slow_stream_is_printed_as_it_comes() -> None:
    case = Case("--ack-frequency", "100", "--receive-rate", "4")
    flushed: list[str] = []
    case.world.out.flush = lambda: flushed.append(case.world.printed)  # type: ignore[method-assign]
    case.run(*(numbered(n) for n in range(1, 5)))
    assert flushed[:3] == ["1\n2\n", "1\n2\n3\n", "1\n2\n3\n4\n"]


def test_rate() -> None:
    case = Case("--receive-rate", "2", "-m", "5")
    began = case.world.now
    case.run(*(numbered(n) for n in range(1, 6)))
    assert case.world.now - began == pytest.approx(2.0)


# ---- checks


def test_duplicates_are_ignored_and_acknowledged() -> None:
    case = Case("--ignore-duplicates", "--ack-frequency", "2", "-m", "3", "--report-total", "--json")
    case.run(numbered(1), numbered(1, True), numbered(2), numbered(1, True), numbered(3))
    case.work.finish(1)
    *shown, total = case.world.reports()
    assert [each["message"]["content"] for each in shown] == ["1", "2", "3"]
    assert total.items() >= {"messages": 3, "received": 3, "duplicates": 2, "failovers": 1, "in_doubt": 0}.items()
    assert case.session.did == ["acknowledge"] * 3


def test_duplicates_are_shown_unless_ignored() -> None:
    assert Case().run(numbered(1), numbered(1)) == "1\n1\n"
    case = Case("--verify-sequence")
    assert case.run(numbered(1), numbered(1)) == "1\n1\n" and case.work.duplicates == 1


def test_a_failed_check_leaves_the_message_in_the_queue() -> None:
    case = Case("--verify-sequence")
    with pytest.raises(CheckFailed):
        case.run(numbered(1), numbered(3))
    assert case.session.did == [] and case.world.printed == "1\n"


def test_check_redelivered() -> None:
    case = Case("--check-redelivered", "--ignore-duplicates")
    with pytest.raises(CheckFailed):
        case.run(numbered(1), numbered(1, True), numbered(1))


# ---- transactions


def test_transactions() -> None:
    case = Case("--tx", "2", "--capacity", "1")
    case.run(*(numbered(n) for n in range(1, 6)))
    assert case.session.transactional and case.session.receiver_options["capacity"] == 2
    assert case.session.did == ["acknowledge", "commit"] * 3


def test_every_second_transaction_is_rolled_back() -> None:
    case = Case("--tx", "1", "--rollback-frequency", "2", "--ignore-duplicates")
    case.run(numbered(1), numbered(2), numbered(2, True), numbered(3))
    assert case.session.did == ["acknowledge", "commit", "rollback", "acknowledge", "commit", "rollback"]
    assert (case.work.received, case.work.duplicates) == (3, 1)


def test_an_aborted_transaction_is_as_if_it_had_never_been() -> None:
    case = Case("--tx", "2", "--ignore-duplicates", "--verify-sequence", "-m", "4")
    case.session.commit_script += [None, TransactionAborted("lost")]
    case.run(*(numbered(n) for n in (1, 2, 3, 4)), 0.3, numbered(3, True), numbered(4, True), numbered(5))
    assert case.session.did == ["acknowledge", "commit", "acknowledge", "rollback", "acknowledge", "commit"]
    assert (case.work.received, case.work.duplicates, case.work.complete) == (4, 0, True)


def test_an_abort_while_waiting() -> None:
    case = Case("--tx", "3", "--ignore-duplicates")
    case.run(numbered(1), TransactionAborted("lost"), numbered(1, True), numbered(2))
    assert case.session.did == ["rollback", "acknowledge", "commit"]
    assert case.work.received == 2


def test_an_abort_at_the_end() -> None:
    case = Case("--tx", "3")
    case.session.commit_script += [TransactionAborted("lost")]
    case.run(numbered(1), 0.6, numbered(1, True))
    assert case.session.did == ["acknowledge", "rollback", "acknowledge", "commit"]
    assert case.work.received == 1


def test_an_unknown_commit_leaves_its_messages_in_doubt() -> None:
    case = Case("--tx", "2")
    case.session.commit_script += [TransactionUnknown("lost")]
    with pytest.raises(TransactionUnknown):
        case.run(numbered(1), numbered(2))
    assert case.work.finish(0) == 2


def test_an_unknown_commit_does_not_matter_when_duplicates_are_ignored() -> None:
    case = Case("--tx", "2", "--ignore-duplicates", "--verify-sequence")
    case.session.commit_script += [TransactionUnknown("lost")]
    again = [numbered(1, True), numbered(2, True)]
    assert case.run(numbered(1), numbered(2), *again, numbered(3)) == "1\n2\n3\n"
    assert case.session.did == ["acknowledge", "acknowledge", "commit", "acknowledge", "commit"]
    assert (case.work.received, case.work.duplicates, case.work.finish(0)) == (3, 2, 0)


def test_an_unknown_commit_of_the_last_messages_leaves_them_in_doubt() -> None:
    case = Case("--tx", "2", "--ignore-duplicates", "-m", "2")
    case.session.commit_script += [TransactionUnknown("lost")]
    with pytest.raises(TransactionUnknown):
        case.run(numbered(1), numbered(2))
    assert case.work.finish(0) == 2


# ---- other addresses


def test_says_that_it_is_ready() -> None:
    case = Case("--ready-address", "r")
    (sender,) = case.connection.sessions[1].senders
    assert sender.address == "r" and len(sender.sent) == 1 and not case.connection.sessions[1].transactional


def test_replies_are_sent_when_asked_for() -> None:
    request = Message(b"x", id="i", reply_to="back", properties={"sn": 1})
    assert Case().run(request) and not Case().session.senders
    case = Case("--reply")
    case.run(request, Message(b"y"))
    (sender,) = case.session.senders
    (answer,) = sender.sent
    assert (sender.address, answer.body, answer.correlation_id, answer.id) == ("back", b"x", "i", None)


# ---- output


def test_nothing_is_printed() -> None:
    assert Case("--print-content", "no").run(numbered(1)) == ""


def test_latency() -> None:
    case = Case("--report-total", "--print-content=no")
    message = Message(b"", properties={"ts": 10**18 - 2_500_000})
    case.run(message)
    case.work.finish(0)
    assert case.world.printed.splitlines()[1].split("\t")[1:] == ["2.50", "2.50", "2.50"]


def test_headers_like_qpids() -> None:
    message = Message(
        b"\xff", id="i", subject="s", user_id="u", reply_to="r", correlation_id="c", priority=4, ttl=1.5, durable=True,
        content_type="a/b", properties={"sn": 1, "ok": True, "m": {"a": [1, "x"]}},
    )  # fmt: skip
    message.redelivered = True
    assert show.headers(message) == (
        "Subject: s\nReplyTo: r\nMessageId: i\nCorrelationId: c\nUserId: u\nContentType: a/b\nTTL: 1500\nPriority: 4\n"
        "Durable: true\nRedelivered: true\nProperties: {sn:1, ok:true, m:{a:[1, x]}}\n\n"
    )
    assert show.headers(Message(b"", durable=False)) == "Properties: {}\n\n"
    assert show.content(message) == b"\xff"


@pytest.mark.parametrize(
    ("content", "text", "name"),
    [
        (b"\xff", b"\xff", "binary"),
        ("\u00e4", "\u00e4".encode(), "text"),
        ({"a": 1, "b": [True, "x"]}, b"{a:1, b:[true, x]}", "map"),
        ([1, 2.5], b"[1, 2.5]", "list"),
    ],
)
def test_content(content: object, text: bytes, name: str) -> None:
    assert (show.content(Message(content)), show.object_type(Message(content))) == (text, name)


def test_headers_and_type_come_before_content() -> None:
    case = Case("--print-headers", "yes", "--print-object-type", "yes")
    assert case.run(Message("x", durable=False)) == "Properties: {}\n\nObject: text\nx\n"


def test_json() -> None:
    case = Case("--json", "--print-headers=yes")
    (line,) = case.run(numbered(1, content={"a": b"\xff"})).splitlines()
    found = json.loads(line)["message"]
    assert found.items() >= {"id": "p:1", "redelivered": False, "durable": True, "properties": {"sn": 1}}.items()
    assert found["content"] == {"a": "\ufffd"}
    assert json.loads(show.as_json(Message(b"\xff"), False, True)) == {"message": {"content_base64": "/w=="}}
    assert json.loads(show.as_json(Message(b"text"), False, True)) == {"message": {"content": "text"}}


def test_a_reply_that_cannot_be_routed_is_an_error() -> None:
    case = Case("--reply")
    reply = Message(b"x", reply_to="back")
    sender = case.session.sender("back")
    case.work._repliers["back"] = sender
    sender.script.append(Returned(312, "NO_ROUTE", reply))
    with pytest.raises(Returned):
        case.run(reply)
