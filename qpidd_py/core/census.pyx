# cython: language_level=3, boundscheck=False, wraparound=False
"""Which queues have other numbers than at the last look, for management.

Messages that come and go note nothing here: a look compares a queue's numbers with those of the look before, 0.1 us
each.  A row is 56 octets, little-endian: number, consumers (the highest bit: publishers wait), and `ready`, `unacked`,
`bytes`, `ready_bytes`, `enqueued`, `dequeued`.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from qpidd_py.core.queue cimport Queue
from qpidd_py.core.watch cimport Watch
from qpidd_py.core.wire cimport putle32, putle64

cdef enum:
    ROW = 56
    STOPPED = 0x80000000


cdef class Told:
    """What the last look found."""
    cdef readonly Queue queue
    cdef readonly uint64_t born         # the number of the first look; 0 = none yet
    cdef readonly uint64_t changed      # of the last one that found other numbers
    cdef uint8_t row[ROW]

    def __init__(self, Queue queue not None):
        self.queue = queue


cdef void write_row(Queue queue, uint8_t* p):
    cdef Watch watch = queue.watch
    putle32(p, queue.number)
    putle32(p + 4, <uint32_t>len(queue.consumers) | (STOPPED if watch is not None and watch.stopped else 0))
    putle64(p + 8, queue.ready)
    putle64(p + 16, queue.unacked)
    putle64(p + 24, queue.bytes)
    putle64(p + 32, queue.ready_bytes)
    putle64(p + 40, queue.enqueued)
    putle64(p + 48, queue.dequeued)


def look(list queues, uint64_t number, uint64_t after):
    """The look `number` at these (Told): the numbers of all, 4 octets each, and the rows of those that have changed
    behind the look `after`."""
    cdef size_t i, changed = 0
    cdef Told each
    numbers, rows = bytearray(4 * len(queues)), bytearray(ROW * len(queues))
    cdef uint8_t* n = numbers
    cdef uint8_t* row = rows            # the next one is written there, and stays if it is wanted
    for i in range(<size_t>len(queues)):
        each = queues[i]
        write_row(each.queue, row)
        memcpy(n + 4 * i, row, 4)
        if not each.born or memcmp(row, each.row, ROW):
            memcpy(each.row, row, ROW)
            each.born, each.changed = each.born or number, number
        if each.changed > after:
            changed += 1
            row += ROW
    del rows[ROW * changed:]
    return numbers, rows
