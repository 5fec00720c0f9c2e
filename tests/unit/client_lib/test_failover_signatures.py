"""Every public name of pika's blocking classes is there, with the same parameters and defaults."""

import inspect

import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from client_lib.failover.channel import FailoverChannel
from client_lib.failover.connection import FailoverConnection

PAIRS = [(BlockingConnection, FailoverConnection), (BlockingChannel, FailoverChannel)]


def public(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def parameters(function) -> list[tuple[str, object, object]]:
    return [(item.name, item.default, item.kind) for item in inspect.signature(function).parameters.values()]


NAMES = [(theirs, ours, name) for theirs, ours in PAIRS for name in public(theirs)]
PROPERTIES_OF_INSTANCES = {"connection", "channel_number"}


@pytest.mark.parametrize(("theirs", "ours", "name"), NAMES, ids=[f"{a.__name__}.{name}" for a, _, name in NAMES])
def test_same_name_same_parameters(theirs, ours, name) -> None:
    original = getattr(theirs, name)
    if name in PROPERTIES_OF_INSTANCES:
        return  # plain attributes of ours; the integration tests read them
    mine = getattr(ours, name)
    if isinstance(original, property):
        assert isinstance(mine, property)
    else:
        assert parameters(mine) == parameters(original)


def test_context_managers_and_numbers() -> None:
    for theirs, ours in PAIRS:
        for name in ("__enter__", "__exit__", "__int__"):
            assert hasattr(ours, name) == hasattr(theirs, name)


def test_every_public_method_of_ours_is_documented() -> None:
    for theirs, ours in PAIRS:
        for name in public(ours):
            member = inspect.getattr_static(ours, name)
            if inspect.isfunction(member) or (name not in public(theirs) and isinstance(member, property)):
                assert member.__doc__, f"{ours.__name__}.{name}"
