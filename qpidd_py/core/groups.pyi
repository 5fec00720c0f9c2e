from qpidd_py.core.queue import Queue

class Groups:
    key: str
    @property
    def count(self) -> int: ...

def group_by(queue: Queue, key: str) -> None: ...
