# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Blocks of memory from the system, and blocks that are touched before they are needed.

Theory.  The first touch of memory is where the system finds and clears it: 0.2 ms for a huge page at best, 6 ms and more
when it must move other pages for one or when a hypervisor has to find it first.  A queue that grows would have the loop
wait for that at each segment.  So a thread touches blocks ahead, without the interpreter:

    take: a block that is ready, else NULL (the caller maps one itself: it never waits for the thread).  As many are wanted
        as were taken since the last tick, at most `most`; the second one starts the thread
    the thread: as long as fewer blocks are ready than are wanted, it maps one, touches it, and puts it there
    rest (each tick): what is more than was taken since the last one goes back

A process whose queues do not grow has no block ahead.  While the reserve of memory is used up (`memory`) the thread maps
nothing and `rest` gives all back: at most the one block that was on its way comes out of the reserve.  The thread
fails silently when there is no memory: then `take` has nothing, and its caller gets the error.
"""
from libc.stdlib cimport calloc, free, malloc

from qpidd_py.core.memory cimport is_scarce

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* p, size_t n, int protection, int flags, int fd, long offset)
    int munmap(void* p, size_t n)
    int madvise(void* p, size_t n, int advice)
    int MADV_HUGEPAGE, PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_attr_init(pthread_attr_t* attributes)
    int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t size)
    int pthread_attr_destroy(pthread_attr_t* attributes)
    int pthread_create(pthread_t* thread, pthread_attr_t* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* lock, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* lock)
    int pthread_mutex_trylock(pthread_mutex_t* lock)
    int pthread_mutex_unlock(pthread_mutex_t* lock)
    int pthread_cond_init(pthread_cond_t* change, void* attributes)
    int pthread_cond_signal(pthread_cond_t* change)
    int pthread_cond_wait(pthread_cond_t* change, pthread_mutex_t* lock)

cdef size_t HUGE = 2 << 20
cdef size_t MAPPED = 1 << 20            # octets; smaller blocks are the allocator's
cdef size_t PAGE = 4096
cdef size_t STACK = 128 << 10


cdef void* fresh(size_t size) noexcept nogil:
    """Memory that goes back to the system when it is given back: large blocks are mapped, on the border of a huge page
    if one fits in."""
    cdef char* p
    cdef size_t before, mapped = size + (HUGE if size >= HUGE else 0)
    if size < MAPPED:
        return malloc(size)
    p = <char*>mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if <void*>p == MAP_FAILED:
        return NULL
    if size < HUGE:
        return p
    size = (size + PAGE - 1) & ~(PAGE - 1)
    before = (HUGE - (<size_t>p & (HUGE - 1))) & (HUGE - 1)
    if before:
        munmap(p, before)
    munmap(p + before + size, mapped - before - size)
    madvise(p + before, size, MADV_HUGEPAGE)
    return p + before


cdef void give_back(void* p, size_t size) noexcept nogil:
    if size < MAPPED:
        free(p)
    else:
        munmap(p, size)


cdef void* touched(size_t size) noexcept nogil:
    """A fresh block, or NULL when the system has none or memory is scarce."""
    cdef void* p = NULL if is_scarce() else fresh(size)
    if p != NULL and is_scarce():
        give_back(p, size)
        return NULL
    if p != NULL:
        touch(<char*>p, size)
    return p


cdef void touch(char* p, size_t size) noexcept nogil:
    """Not by MADV_POPULATE_WRITE: that keeps others from mapping memory until it has found the pages."""
    cdef size_t at = 0
    while at < size:
        (<volatile char*>p)[at] = 0
        at += PAGE


# ---- the thread ------------------------------------------------------------------------------------------------------

cdef struct Own:                # under `lock`, but for `size` and `thread`
    pthread_mutex_t lock
    pthread_cond_t change
    pthread_t thread
    size_t size
    void* ready[MOST_AHEAD]
    size_t count
    size_t wanted
    bint ends


cdef void* run(void* argument) noexcept nogil:
    cdef Own* own = <Own*>argument
    cdef void* p
    pthread_mutex_lock(&own.lock)
    while not own.ends:
        if own.count >= own.wanted:
            pthread_cond_wait(&own.change, &own.lock)
            continue
        pthread_mutex_unlock(&own.lock)
        p = touched(own.size)
        pthread_mutex_lock(&own.lock)
        if p == NULL:
            own.wanted = 0
        else:
            own.ready[own.count] = p
            own.count += 1
    while own.count:
        own.count -= 1
        give_back(own.ready[own.count], own.size)
    pthread_mutex_unlock(&own.lock)
    return NULL


cdef class Ahead:
    """Blocks of one size that are ready; used by the loop's thread."""

    def __cinit__(self, size_t size):
        self.size = size

    def __dealloc__(self):
        cdef Own* own = <Own*>self.own
        if own == NULL:
            return
        pthread_mutex_lock(&own.lock)
        own.ends = True
        pthread_cond_signal(&own.change)
        pthread_mutex_unlock(&own.lock)
        with nogil:
            pthread_join(own.thread, NULL)
        free(own)

    cdef void* take(self) noexcept:
        """A block that was touched, or NULL; either way as many are wanted as were taken since the last tick."""
        cdef Own* own
        cdef void* p = NULL
        self.taken += 1
        if self.own == NULL and (self.taken == 1 or not self.most or not self.start()):
            return NULL
        own = <Own*>self.own
        if pthread_mutex_trylock(&own.lock):
            return NULL
        if own.count:
            own.count -= 1
            p = own.ready[own.count]
        own.wanted = min(self.most, max(own.wanted, self.taken))
        pthread_cond_signal(&own.change)
        pthread_mutex_unlock(&own.lock)
        return p

    cdef void rest(self, size_t most) noexcept:
        """A tick has passed; from now on at most so many are ready."""
        cdef Own* own = <Own*>self.own
        self.most = 0 if is_scarce() else min(most, <size_t>MOST_AHEAD)
        if own != NULL and (self.taken or own.wanted or own.count):
            if pthread_mutex_trylock(&own.lock):
                return          # the next tick does it
            own.wanted = min(self.most, self.taken)
            while own.count > own.wanted:
                own.count -= 1
                give_back(own.ready[own.count], self.size)
            pthread_mutex_unlock(&own.lock)
        self.taken = 0

    cdef size_t held(self) noexcept:
        """Octets that are ready; one block more may be on its way."""
        return (<Own*>self.own).count * self.size if self.own != NULL else 0

    cdef bint start(self) noexcept:
        """False when the system has no thread or no memory for it: the next growth tries again."""
        cdef Own* own = <Own*>calloc(1, sizeof(Own))
        cdef pthread_attr_t attributes
        cdef int failed
        if own == NULL:
            return False
        own.size = self.size
        pthread_mutex_init(&own.lock, NULL)
        pthread_cond_init(&own.change, NULL)
        pthread_attr_init(&attributes)
        pthread_attr_setstacksize(&attributes, STACK)
        failed = pthread_create(&own.thread, &attributes, run, own)
        pthread_attr_destroy(&attributes)
        if failed:
            free(own)
            return False
        self.own = own
        return True
