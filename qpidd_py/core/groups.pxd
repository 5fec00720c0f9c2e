from libc.stdint cimport int64_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef class Group:               # messages with one value of the queue's header
    cdef bytes name
    cdef object owner           # the consumer, or the channel, that holds messages of it; None: it is free
    cdef uint64_t held          # messages that it holds
    cdef list waiting           # heap of ids

cdef class Groups:              # of a queue whose groups are handed out to one client at a time each
    cdef readonly str key
    cdef bytes name
    cdef dict groups            # name -> Group, while it has any message that is noted
    cdef dict holders           # id of a message that is handed out -> Group
    cdef list free              # heap of (id of the first that waits, Group); some are out of date
    cdef dict owned             # owner -> such a heap of its groups
    cdef dict owning            # owner -> how many groups it has
    cdef uint64_t seen          # id of the youngest message that is noted
    cdef uint64_t noted         # messages in `waiting` of all groups, some of which have left
    cdef bint lost              # what waits has to be looked for again
    cdef bint more              # the slice ended before all were noted

cdef enum:
    NONE = -1                   # nothing for this owner
    LATER = -2                  # what is next has to be read first

cdef int64_t next_of_group(Engine engine, Queue queue, object owner, object waiter, bint endless) except -3
cdef int group_taken(Queue queue, uint64_t index, uint64_t next, object owner) except -1
cdef int group_settled(Engine engine, Queue queue, uint64_t id) except -1
cdef int pump_groups(Engine engine, Queue queue, bint now) except -1
