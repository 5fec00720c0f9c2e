from collections.abc import Callable

from qpidd_py.core.engine import Engine
from qpidd_py.core.queue import Queue
from qpidd_py.core.routes import Route

def copy_first(engine: Engine, queue: Queue, route: Callable[[bytes, bytes, bytes], Route]) -> bool: ...
