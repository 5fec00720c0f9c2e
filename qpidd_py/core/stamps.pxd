from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    STAMP_ROOM = 30             # octets by which a stamp makes a content header longer, at most

cdef size_t write_stamped(uint8_t* to, const uint8_t* header, size_t size, const char* name, uint64_t value) noexcept
cdef bytes with_resent(bytes header, size_t frame_max)
cdef size_t fields_at(const uint8_t* header) noexcept
cdef size_t find_field(const uint8_t* p, size_t n, const char* name, size_t* octets) noexcept
cdef const char* DELIVERY_COUNT
cdef const char* ACQUIRED_COUNT
cdef const char* FENCING_TOKEN
