"""qpid-send against a session that does what the test says."""

from collections.abc import Iterable

import pytest

from client_lib.cli import send
from client_lib.cli.common import PATIENCE, SLICE
from client_lib.cli.production import EOS, contents
from client_lib.errors import (
    ConnectError,
    InsufficientCapacity,
    Rejected,
    Returned,
    TransactionAborted,
    TransactionUnknown,
)
from tests.unit.client_lib.cli_stand_ins import FakeConnection, FakeSession, FakeWorld


class Case:
    def __init__(self, *words: str, source: Iterable[bytes | None] | None = None) -> None:
        options = send.make_parser().parse_args(["-a", "q;{x:1}", "--report-total", "--json", *words])
        options.messages = 1 if options.messages is None else options.messages
        self.world = FakeWorld()
        self.work = send.Sending(options, self.world, contents(options) if source is None else source)
        connection = FakeConnection(self.world)
        self.work.prepare(connection)  # type: ignore[arg-type]
        self.session: FakeSession = connection.sessions[0]
        self.sender = self.session.senders[0]

    def numbers(self) -> list[object]:
        return [message.properties["sn"] for message in self.sender.sent]

    def total(self) -> dict[str, object]:
        self.work.finish(2)
        return self.world.reports()[-1]


def test_sends_and_reports() -> None:
    case = Case("-m", "3", "--content-string", "x", "--capacity", "7")
    case.work.run()
    assert (case.sender.address, case.sender.capacity, case.session.transactional) == ("q;{x:1}", 7, False)
    assert case.numbers() == [1, 2, 3] and case.work.complete
    total = case.total()
    assert (
        total.items() >= {"messages": 3, "sent": 3, "confirmed": 3, "in_doubt": 0, "refused": 0, "failovers": 2}.items()
    )


def test_rate() -> None:
    case = Case("-m", "11", "--send-rate", "4")
    case.work.run()
    assert case.world.slept == pytest.approx(2.5, abs=0.01)
    assert case.total()["rate"] == pytest.approx(11 / 2.5, abs=0.1)


def test_an_endless_run_ends_with_a_signal_and_its_confirms() -> None:
    case = Case("-m", "0", "--send-rate", "10")
    case.world.stop_at = case.world.now + 1.05
    case.work.run()
    assert case.numbers() == list(range(1, 12))
    assert case.work.finish(0) == 0


def test_a_signal_ends_a_wait_for_room() -> None:
    case = Case("-m", "2")
    case.sender.script += [InsufficientCapacity("full")] * 100
    case.world.stop_at = case.world.now + 1
    case.work.run()
    assert case.numbers() == [] and not case.work.complete
    assert case.world.now <= case.world.stop_at + SLICE


def test_room_is_waited_for() -> None:
    case = Case("-m", "1")
    case.sender.script += [InsufficientCapacity("full")] * 3
    case.work.run()
    assert case.numbers() == [1] and case.work.complete


def test_what_is_not_confirmed_after_a_signal_is_in_doubt() -> None:
    case = Case("-m", "5")
    case.session.settles = False
    case.world.stop_at = case.world.now + 10
    case.work.run()
    assert case.world.now == pytest.approx(case.world.stop_at + PATIENCE, abs=2 * SLICE)
    assert case.work.finish(0) == 5
    assert case.world.reports()[-1]["in_doubt"] == 5


def test_what_was_sent_before_the_connection_was_given_up_is_in_doubt() -> None:
    case = Case("-m", "5")
    case.sender.script += [None, None, ConnectError("gone")]
    with pytest.raises(ConnectError):
        case.work.run()
    assert case.work.finish(0) == 2


@pytest.mark.parametrize("error", [Rejected("no", None), Returned(312, "NO_ROUTE", None)])  # type: ignore[arg-type]
def test_a_refused_message_is_an_error_and_not_in_doubt(error) -> None:
    case = Case("-m", "3")
    case.sender.outcomes += [None, error, None]
    with pytest.raises(type(error)):
        case.work.run()
    assert case.work.finish(0) == 0
    assert case.world.reports()[-1].items() >= {"confirmed": 2, "refused": 1}.items()


def test_sending_ends_at_the_first_refusal() -> None:
    def source():
        for number in range(10):
            if number == 3:
                case.session.sync(0.1)
            yield b"x"

    case = Case("-m", "0", source=source())
    case.sender.outcomes += [Rejected("no", None)]  # type: ignore[arg-type]
    with pytest.raises(Rejected):
        case.work.run()
    assert case.numbers() == [1, 2, 3] and not case.work.complete


def test_lines_end_the_run_and_pauses_between_them_do_not() -> None:
    case = Case("-m", "0", source=[b"one", None, None, b"two"])
    case.work.run()
    assert [message.body for message in case.sender.sent] == [b"one", b"two"] and case.work.complete


def test_no_more_lines_are_read_than_wanted() -> None:
    source = iter([b"one", b"two", b"three"])
    case = Case("-m", "2", source=source)
    case.work.run()
    assert list(source) == [b"three"]


def test_a_signal_is_seen_while_there_are_no_lines() -> None:
    def source():
        while True:
            case.world.pass_time(SLICE)
            yield None

    case = Case("-m", "0", source=source())
    case.world.stop_at = case.world.now + 1
    case.work.run()
    assert not case.work.complete


def test_end_of_stream_is_numbered_on() -> None:
    case = Case("-m", "2", "--send-eos", "2")
    case.work.run()
    assert [message.body for message in case.sender.sent][2:] == [EOS, EOS] and case.numbers() == [1, 2, 3, 4]
    assert case.total().items() >= {"messages": 2, "sent": 4, "confirmed": 4}.items()


# ---- transactions


def test_transactions() -> None:
    case = Case("-m", "5", "--tx", "2")
    case.work.run()
    assert case.session.transactional
    assert case.session.did == [1, 2, "commit", 3, 4, "commit", 5, "commit"]
    assert case.total().items() >= {"sent": 5, "confirmed": 5, "in_doubt": 0}.items()


def test_every_second_transaction_is_rolled_back() -> None:
    case = Case("-m", "8", "--tx", "2", "--rollback-frequency", "2")
    case.work.run()
    assert case.session.did == [1, 2, "commit", 3, 4, "rollback", 5, 6, "commit", 7, 8, "rollback"]
    assert case.total().items() >= {"sent": 8, "confirmed": 4, "rolled_back": 4, "in_doubt": 0}.items()


def test_an_aborted_transaction_is_done_again() -> None:
    case = Case("-m", "4", "--tx", "2")
    case.session.commit_script += [None, TransactionAborted("lost"), TransactionAborted("lost again")]
    case.work.run()
    assert case.session.did == [1, 2, "commit", 3, 4, "rollback", 3, 4, "rollback", 3, 4, "commit"]
    assert case.total().items() >= {"sent": 4, "confirmed": 4, "repeated": 4, "in_doubt": 0}.items()


def test_a_transaction_that_is_aborted_in_its_middle_is_done_again_from_its_beginning() -> None:
    case = Case("-m", "3", "--tx", "3")
    case.sender.script += [None, TransactionAborted("lost"), None, TransactionAborted("again")]
    case.work.run()
    assert case.session.did == [1, "rollback", 1, "rollback", 1, 2, 3, "commit"]
    assert case.total().items() >= {"sent": 3, "confirmed": 3, "in_doubt": 0}.items()


def test_an_unknown_commit_leaves_its_messages_in_doubt() -> None:
    case = Case("-m", "6", "--tx", "3")
    case.session.commit_script += [None, TransactionUnknown("lost")]
    with pytest.raises(TransactionUnknown):
        case.work.run()
    assert case.work.finish(0) == 3
    assert case.world.reports()[-1].items() >= {"sent": 6, "confirmed": 3, "in_doubt": 3}.items()


def test_a_transaction_that_was_never_committed_is_not_in_doubt() -> None:
    case = Case("-m", "6", "--tx", "3")
    case.sender.script += [None, ConnectError("gone")]
    with pytest.raises(ConnectError):
        case.work.run()
    assert case.work.finish(0) == 0
