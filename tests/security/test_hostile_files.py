"""Files that somebody has spoiled: the broker says in one line what is wrong and ends with 1; the file stays as it is,
and with the right one everything is there again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_method
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.security.users import hash_password
from tests.fuzz.target import judge_words
from tests.security.peers import Raw
from tests.support.memory import publish_octets
from tests.support.process import BrokerProcess
from tests.support.slow import mostly_slow

MESSAGES = 3
STATE, USERS, CONFIGURATION, JOURNAL = "data/ha-state.json", "users.yaml", "qpidd.conf", "data/journal"
SPOILED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "state of garbage": (STATE, lambda octets: Random(1).randbytes(1 << 20)),
    "users nested deeply": (USERS, lambda octets: b"[" * 100_000),
    "options of garbage": (CONFIGURATION, lambda octets: Random(3).randbytes(1 << 16)),
    "journal with an octet changed": (JOURNAL, lambda octets: octets[:60] + bytes([octets[60] ^ 1]) + octets[61:]),
    "state of zeros": (STATE, lambda octets: bytes(len(octets))),
    "state of another program": (STATE, lambda octets: b'{"version": 9}\n' * 100),
    "state with a vote that was changed": (STATE, lambda octets: octets.replace(b'"epoch":', b'"epoch":1')),
    "users cut off": (USERS, lambda octets: octets[:-40]),
    "users of garbage": (USERS, lambda octets: Random(2).randbytes(1 << 16)),
    "users as a list": (USERS, lambda octets: b"- anna\n- ben\n"),
    "an option that is none": (CONFIGURATION, lambda octets: octets + b"journl=yes\n"),
    "a line of a mebibyte": (CONFIGURATION, lambda octets: octets + b"ha-safety=" + b"x" * (1 << 20) + b"\n"),
    "journal with zeros in front": (JOURNAL, lambda octets: bytes(512) + octets[512:]),
}
"""One of each file first: these are what `make test` runs."""


def broker_in(folder: Path) -> BrokerProcess:
    broker = BrokerProcess(folder, "--config", str(folder / CONFIGURATION), name="broker")
    broker.data_dir = folder / "data"
    return broker


def promote(broker: BrokerProcess) -> None:
    with ManagementSocket(Target("127.0.0.1", broker.port), Deadline(20)) as connection:
        connection.request("ha.promote", {}, Deadline(20))


def fill(broker: BrokerProcess) -> None:
    with Raw(broker.port) as peer:
        peer.log_in()
        for method in (commands.Channel.Open(), commands.Queue.Declare(queue="kept", durable=True)):
            peer.send(encode_method(1, method))
            peer.frame()
        peer.send(encode_method(1, commands.Confirm.Select()))
        peer.frame()
        peer.send(b"".join(publish_octets(b"x", "kept") for _ in range(MESSAGES)))
        while peer.frame().delivery_tag < MESSAGES:
            pass


def waiting(broker: BrokerProcess) -> int:
    with Raw(broker.port) as peer:
        peer.log_in()
        peer.send(encode_method(1, commands.Channel.Open()))
        peer.frame()
        peer.send(encode_method(1, commands.Queue.Declare(queue="kept", passive=True)))
        return int(peer.frame().message_count)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a member that was primary and has confirmed messages."""
    folder = tmp_path_factory.mktemp("original")
    configure(folder)
    broker = broker_in(folder)
    with broker:
        promote(broker)
        fill(broker)
        broker.kill()
    return folder


def configure(folder: Path) -> None:
    (folder / USERS).write_text(f"guest: {hash_password('guest', log2n=4)}\n")
    (folder / CONFIGURATION).write_text(
        "journal=yes\nha-cluster=yes\nha-replicate=all\nha-safety=availability\nha-brokers-url=127.0.0.1:1\nha-address=127.0.0.1:1\n"
        f"user-file={folder / USERS}\n"
    )


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    configure(copy)
    return copy


@pytest.mark.parametrize("what", mostly_slow(list(SPOILED), 4))
def test_each_is_told_in_one_line_and_nothing_is_lost(what: str, folder: Path) -> None:
    name, spoil = SPOILED[what]
    file = folder / name if name != JOURNAL else min((folder / JOURNAL).glob("*.journal"))
    right = file.read_bytes()
    file.write_bytes(spoil(right))
    assert file.read_bytes() != right, "the test has spoiled nothing"
    broker = broker_in(folder)
    try:
        broker.spawn()
        assert broker.wait() == 1, broker.log
        told = [line for line in broker.log.splitlines() if line.startswith("qpidd: ") or "critical:" in line]
        assert len(told) == 1 and len(told[0]) <= 4096, broker.log[:4096]
        assert file.name in told[0] or "option" in told[0], told
        judge_words(broker.log)
        assert file.read_bytes() == spoil(right), "it was changed"
        file.write_bytes(right)
        broker.start()
        promote(broker)
        assert waiting(broker) == MESSAGES
    finally:
        broker.close()
