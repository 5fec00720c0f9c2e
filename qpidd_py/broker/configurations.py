"""The configurations of all virtual hosts of a broker, and its settings: one state, as the log has it.           Pure.

An operation about a queue or exchange names its virtual host; `/`, which is always there, is not named.  A virtual host
is a setting (HOST_KIND): it comes before all that is in it, and is never changed, so its position stays before theirs
in a snapshot.  When the setting goes, the virtual host goes, with what is left in it (`Configuration.clear`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from qpidd_py.amqp.fields import FieldError, decode_operation, encode_table
from qpidd_py.broker.common import Common
from qpidd_py.broker.configuration import Configuration, Observer
from qpidd_py.broker.debris import Debris
from qpidd_py.broker.exchange import Binding
from qpidd_py.broker.host_settings import HOST_KIND, host_of
from qpidd_py.broker.operation_rules import check_operation
from qpidd_py.broker.operations import Operation
from qpidd_py.broker.policy_keys import KINDS as POLICIES
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.settings import Key
from qpidd_py.broker.snapshot import decode_snapshot
from qpidd_py.core.engine import Engine
from qpidd_py.errors import LinkError
from qpidd_py.security.entries import HOST

Observe = Callable[[Configuration], Observer]


class Configurations:
    """Of one broker; `hosts`: name -> that of the virtual host."""

    def __init__(
        self, engine: Engine, observe: Observe, gone: Callable[[Configuration], None] = lambda configuration: None
    ) -> None:
        """`observe` gives the observer of each virtual host that comes; `gone` is called before one goes."""
        self.common = Common(engine)
        self.settings = self.common.settings
        self.records = self.common.records
        self._engine = engine
        self._observe = observe
        self._gone = gone
        self._left: deque[Debris] = deque()  # of virtual hosts that are gone
        self._hosts: dict[str, Configuration] = {}
        self.hosts: Mapping[str, Configuration] = self._hosts
        self.settings.watchers.append(self._setting_changed)
        self._come(HOST)

    def __iter__(self) -> Iterator[Configuration]:
        return iter(list(self._hosts.values()))

    def _come(self, host: str) -> None:
        self._hosts[host] = Configuration(self._engine, host, self.common, self._observe)

    def _setting_changed(self, key: Key) -> None:
        if key.kind == HOST_KIND:
            self._host_changed(key.host)
        elif key.kind in POLICIES and key.host in self._hosts:
            self._hosts[key.host].effects.changed(key)

    def _host_changed(self, host: str) -> None:
        there = self.settings.get(Key(HOST_KIND, host, "")) is not None
        if there and host not in self._hosts:
            self._come(host)
        elif not there and host in self._hosts and host != HOST:
            configuration = self._hosts[host]
            self._gone(configuration)
            configuration.clear()
            del self._hosts[host]
            self._left.append(configuration.debris)
            self.clear(0)

    def clear(self, most: int) -> bool:
        """Clears away some of what deleted virtual hosts have left; whether more is left."""
        if self._left:
            self._left[0].clear(most)
            if not self._left[0]:
                self._left.popleft()
        return bool(self._left)

    # ------------------------------------------------------------ a backup follows the log

    def apply(self, position: int, payload: bytes) -> None:
        """One operation of the log.  Raises `LinkError` if it is none."""
        try:
            operation = decode_operation(payload)
            check_operation(operation)
            self._apply(operation, position, payload)
        except (FieldError, LinkError) as error:
            raise LinkError(f"operation at position {position}: {error}") from error

    def _apply(self, operation: Operation, position: int, payload: bytes) -> None:
        kind = operation["op"]
        if kind == "setting.put":
            self.settings.apply_put(operation, position, payload)
        elif kind == "setting.delete":
            self.settings.apply_delete(operation)
        elif kind == "numbers":
            self.common.next_number = max(self.common.next_number, operation["next"])
        elif (host := host_of(operation)) in self._hosts:
            self._hosts[host].apply(operation, position, payload)
        else:
            raise LinkError(f"{kind}: there is no virtual host {host!r:.60}")

    # ------------------------------------------------------------ all of them

    def all_queues(self) -> list[DeclaredQueue]:
        """Those with names, and those of exchanges."""
        return [queue for configuration in self for queue in configuration.all_queues()]

    def bindings(self) -> Iterable[Binding]:
        return chain.from_iterable(configuration.bindings() for configuration in self)

    def snapshot(self) -> list[tuple[int, bytes]]:
        """All replicated objects as the operations that made them, in order; `apply` of each gives the same state."""
        return decode_snapshot(self.encoded())

    def encoded(self) -> bytes:
        """The same in octets (`encode_snapshot`)."""
        numbers = encode_table({"op": "numbers", "next": self.common.next_number})
        debris = bool(self._left) or any(configuration.debris for configuration in self)
        return self.records.encoded(numbers, self._positions() if debris else None)

    def _positions(self) -> list[int]:
        """Of the operations that made what there is: also while records are left of what is not there any more."""
        settings = (position for position in self.settings.positions() if position)
        return [*(position for each in self for position in each.positions()), *settings]
