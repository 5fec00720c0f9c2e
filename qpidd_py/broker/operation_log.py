"""What a virtual host changes, in the log of its broker; and what an answer waits for that changes nothing.    Pure."""

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.host_settings import within
from qpidd_py.broker.operations import Operation
from qpidd_py.core.engine import Engine
from qpidd_py.errors import InvariantError
from qpidd_py.security.entries import HOST


class OperationLog:
    """Of one virtual host."""

    def __init__(self, engine: Engine, host: str = HOST) -> None:
        self._engine = engine
        self._host = host

    def append(self, operation: Operation) -> tuple[int, bytes]:
        """Its position, and it encoded."""
        if self._engine.passive:
            raise InvariantError(f"a backup decides {operation['op']}")
        payload = encode_table(within(operation, self._host))
        return self._engine.log_config(payload), payload

    def unchanged(self, position: int) -> int:
        """What an answer waits for that changes nothing: `position` is that of the object, 0 if it is not replicated.
        A deposed primary does not know what the new one has changed meanwhile, so the answer is no safer than a confirm
        of the present turn."""
        return self._engine.witness() if position else 0

    def sealed(self) -> int:
        """What an answer waits for that may have changed nothing: the log's end, with an operation of this turn."""
        self._engine.witness()
        return self._engine.flush()
