"""Signals that ended the broker without a line."""

import signal
from collections.abc import Callable
from pathlib import Path

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.state_dump import MOST, state_dump
from qpidd_py.security.users import hash_password
from tests.security.peers import Raw, start_ok
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for, wait_logged
from tests.unit.broker.peer import Peer

CHEAP = 10


def accepted(broker: BrokerProcess, user: str, password: str) -> bool:
    with Raw(broker.port) as peer:
        peer.begin()
        peer.send(start_ok(user, password))
        return isinstance(peer.frame(), commands.Connection.Tune)


def test_hangup_reads_the_user_file_again(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    anna = f"anna: {hash_password('anna', log2n=CHEAP)}\n"
    file.write_text(anna + f"ben: {hash_password('ben', log2n=CHEAP)}\n")
    broker = make_broker("--user-file", str(file)).start()
    assert accepted(broker, "anna", "anna") and accepted(broker, "ben", "ben")
    file.write_text(anna + f"ben: {hash_password('new', log2n=CHEAP)}\n")
    broker.signal(signal.SIGHUP)
    wait_for(lambda: "user file and certificates are read" in broker.log, what="it is read")
    assert accepted(broker, "anna", "anna") and accepted(broker, "ben", "new")
    assert not accepted(broker, "ben", "ben"), "the digest of the old password is forgotten"
    file.write_text("ben: secret\n")
    broker.signal(signal.SIGHUP)
    wait_for(lambda: "SIGHUP: nothing is changed" in broker.log, what="it is refused")
    assert accepted(broker, "ben", "new")


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR2])
def test_others_stop_it_cleanly(broker: BrokerProcess, number: int) -> None:
    broker.signal(number)
    assert broker.wait() == 0
    wait_logged(broker, f"stopping: {signal.Signals(number).name}")


def test_user_1_writes_the_state(broker: BrokerProcess) -> None:
    with Raw(broker.port) as peer:
        peer.log_in()
        broker.signal(signal.SIGUSR1)
        wait_for(lambda: "state: connection" in broker.log, what="the state")
    wait_logged(broker, "state: serving, epoch", "user 'guest'")


def test_the_state_is_bounded() -> None:
    broker = Broker()
    peers = [Peer(broker) for _ in range(50)]
    peers[0].open_channel()
    for number in range(50):
        peers[0].call(1, commands.Queue.Declare(queue=f"{number}-" + "x" * 200))
    lines = list(state_dump(broker))
    assert len(lines) == 2 + 2 * MOST
    assert all(len(line) < 400 and line.isprintable() for line in lines)
