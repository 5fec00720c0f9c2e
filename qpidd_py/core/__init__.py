"""The data path, in Cython: scan, route by cache, store, deliver, acknowledge, confirm.

`wire` scans and encodes, `batch` holds the log's segments, `queue` the index of waiting messages, `confirms` what waits
for its confirm, `connection` and `channel` speak with clients, `engine` is the turn, `reactor` the sockets.
`README.md` in this folder lists all modules and explains the whole.
"""

from qpidd_py.core.batch import Batch, Page, crc32c, frame_length, link_frame, records
from qpidd_py.core.catchup import Catchup
from qpidd_py.core.channel import Channel, Consumer
from qpidd_py.core.connection import Connection
from qpidd_py.core.engine import Engine
from qpidd_py.core.lazy import Lazy
from qpidd_py.core.paging import Paging, ready_soon, soon
from qpidd_py.core.queue import Queue
from qpidd_py.core.ranges import decode_ids, encode_ids
from qpidd_py.core.reactor import Reactor
from qpidd_py.core.routes import Mark, Route
from qpidd_py.core.runs import IdRuns
from qpidd_py.core.wire import scan

__all__ = [
    "Batch",
    "Catchup",
    "Channel",
    "Connection",
    "Consumer",
    "Engine",
    "IdRuns",
    "Lazy",
    "Mark",
    "Page",
    "Paging",
    "Queue",
    "Reactor",
    "Route",
    "crc32c",
    "decode_ids",
    "encode_ids",
    "frame_length",
    "link_frame",
    "ready_soon",
    "records",
    "scan",
    "soon",
]
