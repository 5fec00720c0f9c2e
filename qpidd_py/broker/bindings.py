"""Binding and unbinding: the rules of AMQP, and Qpid's exclusive bindings.                                     Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from qpidd_py.broker.access import check_ours, check_source, find_exchange, refuse
from qpidd_py.broker.arguments import REPLICATE, check_binding_arguments
from qpidd_py.broker.common import Rules
from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.endings import Endings
from qpidd_py.broker.exchange import FAILOVER, Binding, Exchange, binding_key
from qpidd_py.broker.operation_log import OperationLog
from qpidd_py.broker.operations import binding_operation
from qpidd_py.broker.qpid_arguments import EXCLUSIVE_BINDING
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.routing import RoutingTable
from qpidd_py.core.engine import Engine
from qpidd_py.core.shadows import copy_first
from qpidd_py.errors import PageError, ReplyCode


class Bindings:
    """Of one virtual host."""

    def __init__(
        self,
        engine: Engine,
        configuration: Configuration,
        operation_log: OperationLog,
        endings: Endings,
        routing: RoutingTable,
        rules: Rules,
    ) -> None:
        self._engine = engine
        self._configuration = configuration
        self._host = configuration.host
        self._operation_log = operation_log
        self._endings = endings
        self._routing = routing
        self._rules = rules

    def bind(
        self, source: str, destination: DeclaredQueue | Exchange, routing_key: bytes, arguments: Mapping[str, Any]
    ) -> int:
        """The position to wait for."""
        exchange = self._bindable(source, destination)
        check_binding_arguments(arguments, f"binding of exchange '{source}' in vhost '{self._host}'", exchange.type)
        exchange.check(routing_key, arguments, self._host)
        binding = Binding(exchange, destination, routing_key, dict(arguments))
        existing = exchange.find(destination, binding.key)
        others = exchange.of_key(routing_key) if arguments.get(EXCLUSIVE_BINDING) else []
        if existing is not None:
            replaced = self._unbind_others(existing, others)
            return self._engine.changed if replaced else self._operation_log.unchanged(existing.position)
        if exchange.initial and exchange.shadow is not None:
            self._bring_last(binding, exchange.shadow)
        if exchange.replicated and destination.replicated and arguments.get(REPLICATE) != "none":
            self._configuration.create_binding(
                binding, *self._operation_log.append(binding_operation("bind", binding.key, arguments))
            )
        else:
            self._configuration.create_binding(binding, 0, b"")
        bound = self._rules.failover_bound
        if source == FAILOVER and bound is not None and isinstance(destination, DeclaredQueue):
            bound(destination)
        return self._engine.changed if self._unbind_others(binding, others) else binding.position

    def _bring_last(self, binding: Binding, shadow: DeclaredQueue) -> None:
        """The exchange's last message, to a queue that gets a binding (`shadow.py`)."""
        try:
            copy_first(self._engine, shadow.core, lambda _, key, header: self._routing.initial(binding, key, header))
        except PageError as error:
            text = f"the last message of exchange '{binding.source.name}' in vhost '{self._host}' cannot be read"
            raise refuse(ReplyCode.RESOURCE_ERROR, text) from error

    def _unbind_others(self, exclusive: Binding, others: Iterable[Binding]) -> bool:
        """Behind the new binding, so that a fail-over in between finds one too many and not one too few.  Whether any
        of them was replicated."""
        gone = [binding for binding in others if binding is not exclusive]
        for binding in gone:
            self._drop_binding(binding)
        return any(binding.position for binding in gone)

    def _drop_binding(self, binding: Binding) -> None:
        if binding.position:
            self._operation_log.append(binding_operation("unbind", binding.key, binding.arguments))
        self._configuration.drop_binding(binding)

    def unbind(
        self,
        source: str,
        destination: DeclaredQueue | Exchange | None,
        routing_key: bytes,
        arguments: Mapping[str, Any],
    ) -> int:
        """The position to wait for; neither a binding nor a source or destination that is not there is an error (see
        `delete_queue`)."""
        if source and (destination is None or source not in self._configuration.exchanges):
            return self._operation_log.unchanged(self._engine.changed)
        exchange = self._bindable(source, destination)
        assert destination is not None
        binding = exchange.find(destination, binding_key(exchange, destination, routing_key, arguments))
        if binding is None:
            return self._operation_log.unchanged(self._engine.changed)
        self._drop_binding(binding)
        self._endings.end_exchanges([exchange])
        return self._engine.changed if binding.position else 0

    def _bindable(self, source: str, destination: DeclaredQueue | Exchange | None) -> Exchange:
        check_source(source)
        if isinstance(destination, Exchange):
            check_source(destination.name)
        exchange = find_exchange(self._configuration.exchanges, source, self._host)
        if isinstance(destination, Exchange):
            check_ours(destination, f"exchange '{destination.name}'", self._engine.passive)
        return exchange
