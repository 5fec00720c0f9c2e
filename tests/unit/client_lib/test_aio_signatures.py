"""The two APIs have the same names, parameters and defaults."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import client_lib
from client_lib import aio

PLAIN = {"queue_sender", "reject", "release", "unsettled", "available", "opened", "attached", "check_error"}
PLAIN |= {"get_error", "set_async_exception_notify_handler"}
"""What does not wait, and is not awaited."""
PAIRS = [
    (client_lib.Connection, aio.Connection),
    (client_lib.Session, aio.Session),
    (client_lib.Sender, aio.Sender),
    (client_lib.Receiver, aio.Receiver),
]
INNER = {"forked", "in_io_thread", "close_session", "own_loop"}
"""Not for applications."""


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def names_of(kind: type) -> set[str]:
    """Its own, and those of what it extends: the same in another module."""
    return {name for each in kind.__mro__[:2] for name in vars(each) if not name.startswith("_")}


@pytest.mark.parametrize(("threaded", "asynchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_same_names_parameters_and_defaults(threaded: type, asynchronous: type) -> None:
    compared = 0
    for name in sorted(names_of(threaded) - INNER):
        one, other = inspect.getattr_static(threaded, name), inspect.getattr_static(asynchronous, name, None)
        assert other is not None, f"aio.{threaded.__name__} has no {name}"
        assert isinstance(one, property) == isinstance(other, property), name
        if isinstance(one, property) or not callable(getattr(threaded, name)):
            continue
        one, other = getattr(threaded, name), getattr(asynchronous, name)
        assert parameters(one) == parameters(other), name
        assert inspect.iscoroutinefunction(other) is (name not in PLAIN), name
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize(("threaded", "asynchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_nothing_that_only_asyncio_has(threaded: type, asynchronous: type) -> None:
    hooks = {"settled", "report", "arrived"}  # the library's
    names = names_of(asynchronous) - INNER - hooks
    assert [name for name in sorted(names) if not hasattr(threaded, name)] == []


def test_exports() -> None:
    names = {name for name in client_lib.__all__ if not name.startswith("Failover")}  # pika's style has no asyncio
    assert names == set(aio.__all__)
    for name in names:
        same = getattr(client_lib, name) is getattr(aio, name)
        assert same is (name not in {"Connection", "Session", "Sender", "Receiver"}), name
