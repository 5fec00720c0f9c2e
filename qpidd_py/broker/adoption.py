"""A broker that joins, or reads its journal, takes over a configuration whole."""

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.configurations import Configurations
from qpidd_py.broker.exchange import Binding, Exchange
from qpidd_py.broker.host_settings import HOST_KIND
from qpidd_py.broker.numbering import Numbers
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.settings import Key

LOOKS: Final = 16
"""Objects that are compared in a step."""
_T = TypeVar("_T")


def adopt(configurations: Configurations, snapshot: list[tuple[int, bytes]]) -> None:
    """Makes the replicated objects equal to `snapshot`.  Equal objects stay, with their messages."""
    for _ in adopting(configurations, snapshot):
        pass


def adopting(configurations: Configurations, snapshot: list[tuple[int, bytes]]) -> Iterator[None]:
    """The same in steps, one for each object that comes or goes and for LOOKS that stay; others must not change
    replicated ones meanwhile.

    Both position and operation are compared: two brokers that were promoted at the same time may have made different
    objects at one position.  The listing is complete before anything is deleted, since a partial one must not delete a
    queue.
    """
    wanted, records, settings = dict(snapshot), configurations.records, configurations.settings

    def otherwise(position: int) -> bool:
        return wanted.get(position) != records.payload(position)

    def strange(item: DeclaredQueue | Exchange | Binding) -> bool:
        return bool(item.position) and otherwise(item.position)

    def used_otherwise(queue: DeclaredQueue) -> bool:
        return otherwise(queue.used_position)

    def numbered_otherwise(numbers: Numbers) -> bool:
        return otherwise(numbers.position)

    def changed(key: Key) -> bool:
        return otherwise(settings.position(key))

    hosts = [key for key in settings if key.kind == HOST_KIND]
    yield from _each((key for key in settings if key.kind != HOST_KIND), changed, settings.drop)
    for each in configurations:
        yield from _each(each.bindings(), strange, each.drop_binding)
        yield from _each(each.queues.values(), strange, each.drop_queue)
        yield from _each(each.exchanges.values(), strange, each.drop_exchange)
        yield from _each(each.queues.values(), used_otherwise, partial(_unused, each))
        yield from _each(each.numbers(), numbered_otherwise, lambda numbers: numbers.note(0, 0, b""))
        while each.debris:  # its records count as what is here
            each.debris.clear(1)
            yield
    yield from _each(hosts, changed, settings.drop)
    while configurations.clear(1):
        yield
    for number, (position, payload) in enumerate(snapshot):
        if records.payload(position) != payload:
            configurations.apply(position, payload)
            yield
        elif number % LOOKS == 0:
            yield


def _unused(configuration: Configuration, queue: DeclaredQueue) -> None:
    configuration.note_used(queue, 0, b"")


def _each(items: Iterable[_T], wanted: Callable[[_T], bool], call: Callable[[_T], object]) -> Iterator[None]:
    """`call` for those that are wanted, in steps; all are chosen before the first call."""
    for item in (yield from _chosen(items, wanted)):
        call(item)
        yield


def _chosen(items: Iterable[_T], wanted: Callable[[_T], bool]) -> Generator[None, None, list[_T]]:
    """Those that are wanted; yields after each LOOKS."""
    found = []
    for number, item in enumerate(list(items)):
        if number % LOOKS == 0:
            yield
        if wanted(item):
            found.append(item)
    return found
