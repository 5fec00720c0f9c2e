from libc.stdint cimport uint64_t

cdef struct Heap:               # numbers, the smallest first; all 0 is an empty one
    uint64_t* items
    size_t start                # where the smallest lies
    size_t count
    size_t capacity
    uint64_t moves              # of numbers, ever: what the work is counted by
    bint mixed                  # a heap; False: in order from the smallest to the largest, as they were put in

cdef int heap_push(Heap* h, uint64_t number) except -1
cdef void heap_pop(Heap* h) noexcept

cdef inline void heap_clear(Heap* h) noexcept:
    h.start = h.count = 0
    h.mixed = False
