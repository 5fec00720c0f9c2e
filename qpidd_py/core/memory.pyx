# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The memory that the core asks for, and a reserve for the moment when the system has no more.

Theory.  An allocation can fail anywhere, also in the middle of an operation of the interpreter, where nothing can be
undone.  So the process keeps a reserve of address space, untouched.  An allocation that fails, of the core or of Python
(more than 512 octets; smaller ones come out of larger ones), gives the reserve back to the system and is tried again.
What was under way is completed; then the broker sheds load: the connection that was served is closed with 506, and
publishers wait until the system has given the reserve again (`MemoryWatch`).

What is larger than the reserve, or fails when it is used up, is the caller's: the core asks for memory *before* it
changes anything, so that a MemoryError leaves queues and log as they were.

The functions that allocate may be called by any thread, the others by that of the loop.
"""
from libc.stdlib cimport calloc, malloc, realloc

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t n, int protection, int flags, int fd, long offset)
    int munmap(void* p, size_t n)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED

cdef extern from *:
    """
    #define take_pointer(p) __atomic_exchange_n(p, NULL, __ATOMIC_SEQ_CST)
    """
    void* take_pointer(void** p) noexcept nogil

cdef extern from "Python.h":
    ctypedef struct PyMemAllocatorEx:
        void* ctx
        void* (*malloc)(void* ctx, size_t n) noexcept nogil
        void* (*calloc)(void* ctx, size_t count, size_t size) noexcept nogil
        void* (*realloc)(void* ctx, void* p, size_t n) noexcept nogil
    ctypedef enum PyMemAllocatorDomain:
        PYMEM_DOMAIN_RAW
    void PyMem_GetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx* allocator)
    void PyMem_SetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx* allocator)

RESERVE = 16 << 20

cdef void* reserve = NULL
cdef size_t reserved = 0
cdef uint64_t used = 0
cdef bint hooked = False
cdef PyMemAllocatorEx raw           # of the interpreter
cdef uint64_t asked = 0             # allocations of the core
cdef uint64_t fail_at = 0, fail_end = 0


# ---- the reserve -----------------------------------------------------------------------------------------------------

def hold_reserve(size_t octets=RESERVE):
    """Takes the reserve, if it is not there; True when it is.  From the first call on, failing allocations use it."""
    global reserve, reserved
    cdef void* p
    _hook()
    if reserve == NULL:
        p = mmap(NULL, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if p == MAP_FAILED:
            return False
        reserved = octets
        reserve = p
    return True


def reserve_uses():
    """How often the reserve was used."""
    return used


cdef uint64_t reserve_used() noexcept nogil:
    return used


cdef bint is_scarce() noexcept nogil:
    """Whether the reserve is used up: what is not needed now must not be asked for, since it would come out of it."""
    return hooked and reserve == NULL


cdef bint use_reserve() noexcept nogil:
    """Gives the reserve back to the system; False if it is used up."""
    global used
    cdef void* p = take_pointer(&reserve)
    if p == NULL:
        return False
    used += 1
    return munmap(p, reserved) == 0


# ---- what the core asks for: NULL when there is nothing, also not in the reserve -------------------------------------

cdef void* mem_new(size_t n) noexcept nogil:
    if planned_failure():
        return NULL
    cdef void* p = malloc(n)
    return malloc(n) if p == NULL and use_reserve() else p


cdef void* mem_zeroed(size_t count, size_t size) noexcept nogil:
    if planned_failure():
        return NULL
    cdef void* p = calloc(count, size)
    return calloc(count, size) if p == NULL and use_reserve() else p


cdef void* mem_resized(void* old, size_t n) noexcept nogil:
    """NULL leaves `old` as it is."""
    if planned_failure():
        return NULL
    cdef void* p = realloc(old, n)
    return realloc(old, n) if p == NULL and use_reserve() else p


# ---- what the interpreter asks for -----------------------------------------------------------------------------------

cdef void* raw_malloc(void* ctx, size_t n) noexcept nogil:
    cdef void* p = raw.malloc(ctx, n)
    return raw.malloc(ctx, n) if p == NULL and use_reserve() else p


cdef void* raw_calloc(void* ctx, size_t count, size_t size) noexcept nogil:
    cdef void* p = raw.calloc(ctx, count, size)
    return raw.calloc(ctx, count, size) if p == NULL and use_reserve() else p


cdef void* raw_realloc(void* ctx, void* old, size_t n) noexcept nogil:
    cdef void* p = raw.realloc(ctx, old, n)
    return raw.realloc(ctx, old, n) if p == NULL and use_reserve() else p


cdef void _hook() noexcept:
    global hooked
    cdef PyMemAllocatorEx mine
    if hooked:
        return
    hooked = True
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &raw)
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &mine)
    mine.malloc, mine.calloc, mine.realloc = raw_malloc, raw_calloc, raw_realloc
    PyMem_SetAllocator(PYMEM_DOMAIN_RAW, &mine)


# ---- for tests -------------------------------------------------------------------------------------------------------

cdef bint planned_failure() noexcept nogil:
    """Whether a test wants this allocation to fail."""
    global asked
    if fail_end == 0:
        return False
    asked += 1
    return fail_at <= asked < fail_end


def plan_failures(uint64_t first, uint64_t count=1):
    """From here on the allocations `first` (counted from 1) and those behind it, `count` in all, fail, as if the reserve
    were used up; `first` 0 ends that.  Answers how many allocations there were since the last call."""
    global asked, fail_at, fail_end
    cdef uint64_t were = asked
    asked = 0
    fail_at = first
    fail_end = first + count if first else 0
    return were
