"""What a primary takes, a backup takes: else one client's argument would cut off every backup, and stop a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qpidd_py.broker import arguments as known
from qpidd_py.broker.exchange import DELAYED, EXCHANGE_TYPES, FAILOVER, PREDECLARED
from qpidd_py.errors import AmqpError
from tests.unit.broker.peer import Replicated

VALUES: tuple[Any, ...] = (
    "soon",
    "",
    -1,
    0,
    1,
    2.5,
    True,
    False,
    None,
    b"\xff",
    [1],
    {"a": 1},
    "direct",
    "none",
    (1 << 63) - 1,
)
NAMES = sorted({*known._CHECKS, "qpid.priorities", "qpid.fairshare-3", "x-of-nobody"})
BOUND = [name for name in PREDECLARED if name]


class Pair:
    """A primary, and a backup that follows it."""

    def __init__(self) -> None:
        self.primary = Replicated()
        self.backup = self.primary.backup()
        self.vhost = self.primary.vhost

    def takes(self, call: Callable[..., Any], *arguments: Any) -> bool:
        """Whether the primary does; then the backup has to."""
        known = len(self.primary.batches)
        try:
            call(*arguments)
        except AmqpError:
            return False
        self.primary.engine.flush()
        for batch in self.primary.batches[known:]:
            self.backup.engine.apply(batch)
        return True


@pytest.mark.parametrize("name", NAMES)
def test_an_argument_of_a_queue(name: str) -> None:
    pair = Pair()
    for n, value in enumerate(VALUES):
        pair.takes(pair.vhost.declare_queue, None, f"q{n}", True, False, False, {name: value})
    assert set(pair.backup.vhost.queues) == {found.name for found in pair.vhost.queues.values() if found.position}


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_an_argument_of_an_exchange(name: str, kind: str) -> None:
    pair = Pair()
    routes = {known.DELAYED_TYPE: "fanout"} if kind == DELAYED else {}
    for n, value in enumerate(VALUES):
        pair.takes(pair.vhost.declare_exchange, f"x{n}", kind, True, False, False, {**routes, name: value})
    assert set(pair.backup.vhost.exchanges) == {
        found.name for found in pair.vhost.exchanges.values() if found.replicated
    } | {FAILOVER}


@pytest.mark.parametrize("source", BOUND)
@pytest.mark.parametrize("name", NAMES)
def test_an_argument_of_a_binding(name: str, source: str) -> None:
    """An application may call a header as it likes."""
    pair = Pair()
    queue = pair.vhost.declare_queue(None, "q", True, False, False, {})[0]
    for value in VALUES:
        pair.takes(pair.vhost.bindings.bind, source, queue, b"1", {name: value})
    wanted = [binding.arguments for binding in pair.vhost.configuration.bindings() if binding.position]
    assert [binding.arguments for binding in pair.backup.vhost.configuration.bindings()] == wanted
    for arguments in wanted:
        assert pair.takes(pair.vhost.bindings.unbind, source, queue, b"1", arguments)
    assert not list(pair.backup.vhost.configuration.bindings())
