"""Three brokers of ours, and everything that can happen between them and their clients."""

import pytest

from tests.faults.load import Load
from tests.faults.other_styles import Asyncio, PikaStyle
from tests.faults.scenarios import EVERYWHERE
from tests.faults.scene import QpiddScene, addresses
from tests.faults.styles import Transacted
from tests.support.slow import mostly_slow

OTHERS = ("pause", "snap-to-server")
"""Of each style; slow."""


@pytest.mark.parametrize("name", EVERYWHERE)
def test_fault(qpidd: QpiddScene, name: str) -> None:
    qpidd.whole()
    with Load(addresses(qpidd), f"qpidd.{name}") as load:
        load.run_on(50)
        EVERYWHERE[name](qpidd, load)
        qpidd.whole()
        load.run_on(20)
        load.verdict()


@pytest.mark.parametrize("name", mostly_slow(["kill", "cut", "snap-to-client", *OTHERS, "vanish", "hold"], 2))
def test_fault_asyncio(qpidd: QpiddScene, name: str) -> None:
    qpidd.whole()
    with Asyncio() as style, Load(addresses(qpidd), f"asyncio.{name}", style=style) as load:
        load.run_on(50)
        EVERYWHERE[name](qpidd, load)
        qpidd.whole()
        load.run_on(20)
        load.verdict()


@pytest.mark.parametrize("name", mostly_slow(["kill", "cut", "snap-to-client", *OTHERS, "vanish"], 2))
def test_fault_pika_style(qpidd: QpiddScene, name: str) -> None:
    qpidd.whole()
    with Load(addresses(qpidd), f"pika.{name}", style=PikaStyle()) as load:
        load.run_on(50)
        EVERYWHERE[name](qpidd, load)
        qpidd.whole()
        load.run_on(20)
        load.verdict()


@pytest.mark.parametrize("name", mostly_slow(["kill", "snap-to-client", "cut", *OTHERS, "vanish-to-client"], 2))
def test_fault_transacted(qpidd: QpiddScene, name: str) -> None:
    """All of a transaction or nothing; nothing of one that is said to be aborted."""
    qpidd.whole()
    with Load(addresses(qpidd), f"transacted.{name}", style=Transacted()) as load:
        load.run_on(50)
        EVERYWHERE[name](qpidd, load)
        qpidd.whole()
        load.run_on(20)
        assert load.verdict().resent == 0


def test_planned_switch_over(qpidd: QpiddScene) -> None:
    """The primary hands over: nothing is in doubt, so nothing is sent again."""
    qpidd.whole()
    with Load(addresses(qpidd), "qpidd.switch") as load:
        load.run_on(50)
        old = qpidd.active()
        qpidd.cluster.command("promote", qpidd.cluster.backups()[0], timeout=20.0)
        qpidd.relocated(old)
        load.run_on(50)
        report = load.verdict()
        assert (report.resent, report.twice_taken) == (0, 0)
