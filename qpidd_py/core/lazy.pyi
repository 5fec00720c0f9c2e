from qpidd_py.core.batch import Page
from qpidd_py.core.paging import Paging
from qpidd_py.core.queue import Queue

class Lazy:
    def __init__(self, paging: Paging) -> None: ...
    def leave(self, queues: dict[Queue, int], octets: int) -> list[Page]: ...
