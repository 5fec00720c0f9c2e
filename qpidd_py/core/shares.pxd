from qpidd_py.core.queue cimport Queue

cdef class Shares:              # how many messages of each level are handed out before a lower one has its turn
    cdef readonly list limits   # lowest level first; 0: none
    cdef list before            # messages that had left each level when the round began

cdef Queue fair_head(Queue queue)
