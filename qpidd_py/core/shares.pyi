from qpidd_py.core.queue import Queue

class Shares:
    limits: list[int]

def share_out(queue: Queue, limits: list[int]) -> None: ...
