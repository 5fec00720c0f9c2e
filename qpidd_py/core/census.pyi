from qpidd_py.core.queue import Queue

class Told:
    queue: Queue
    born: int
    changed: int
    def __init__(self, queue: Queue) -> None: ...

def look(queues: list[Told], number: int, after: int) -> tuple[bytearray, bytearray]: ...
