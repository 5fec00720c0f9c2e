from qpidd_py.core.engine import Engine
from qpidd_py.core.queue import Queue

def hand_out(engine: Engine, queue: Queue, id: int) -> None: ...
