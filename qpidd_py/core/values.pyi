from qpidd_py.core.queue import Queue

class LastValues:
    key: str
    @property
    def notes(self) -> int: ...

def keep_last_of(queue: Queue, key: str) -> None: ...
