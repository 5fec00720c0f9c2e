"""After the primary has died a client waits at a backup: one attempt, and the promotion admits it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pamqp.commands as commands
import pytest

from ha.shell.waiting_clients import PATIENCE
from qpidd_py.amqp.codec import encode_method
from tests.security.peers import Raw, start_ok
from tests.support.members import TIME, Members
from tests.support.wait import wait_for

FEW = 8


class Client:
    """Sends the whole opening, and a channel.open behind it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open()

    def open(self) -> None:
        self.opened = time.monotonic()
        self._peer = Raw(self._port)
        self._peer.begin()
        self._peer.send(start_ok("guest", "guest"))
        assert self.answer().name == "Connection.Tune"
        tune_ok, opening = commands.Connection.TuneOk(0, 0, 0), commands.Connection.Open()
        self._peer.send(
            encode_method(0, tune_ok) + encode_method(0, opening) + encode_method(1, commands.Channel.Open())
        )

    def answer(self) -> Any:
        return self._peer.frame()

    def close(self) -> None:
        self._peer.close()


@contextmanager
def clients(port: int, count: int = FEW) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Client(port))) for _ in range(count)]


def orphan(members: Members) -> None:
    """Nobody is primary, and the backups have noticed it."""
    members.level()
    members.brokers["a"].kill()
    wait_for(lambda: not any(members.ask(name, "ha.query")["primary"] for name in "bc"), TIME, "they have noticed it")


def decided(client: Client) -> Any:
    """The answer, after as many refusals as a slow machine has time for: each client has waited for all of them."""
    while "the primary is not known" in getattr(answer := client.answer(), "reply_text", ""):
        assert time.monotonic() - client.opened > 0.9 * PATIENCE, "refused at once"
        client.close()
        client.open()
    return answer


@pytest.mark.parametrize("promoted", ["b", "c"])
def test_the_promotion_admits_who_waits_and_the_other_backup_tells_where(members: Members, promoted: str) -> None:
    orphan(members)
    with clients(members.brokers["b"].port) as waiting:
        members.ask("b", "ha.status")  # after them: all have come
        assert members.promote_newest(promoted, *"bc".replace(promoted, "")) == promoted
        answers = [decided(client) for client in waiting]
        if promoted == "b":
            assert {each.name for each in answers} == {"Connection.OpenOk"}
            assert {client.answer().name for client in waiting} == {"Channel.OpenOk"}
        else:
            where = f"the primary is {members.brokers['c'].address}"
            assert {(each.reply_code, where in each.reply_text) for each in answers} == {(320, True)}


def test_where_nobody_is_promoted_they_are_refused_in_the_end(members: Members) -> None:
    orphan(members)
    with clients(members.brokers["b"].port) as waiting:
        answers = [client.answer() for client in waiting]
        assert time.monotonic() - waiting[-1].opened > 0.9 * PATIENCE
    texts = {(each.reply_code, each.reply_text.partition("; ")[2]) for each in answers}
    assert texts == {(320, "the primary is not known")}


def test_who_leaves_while_he_waits_disturbs_nobody(members: Members) -> None:
    orphan(members)
    with clients(members.brokers["b"].port) as waiting:
        for client in waiting[1:]:
            client.close()
        members.promote_newest("b")
        assert decided(waiting[0]).name == "Connection.OpenOk"
    assert members.ask("b", "ha.status")["state"] in ("recovering", "active")
