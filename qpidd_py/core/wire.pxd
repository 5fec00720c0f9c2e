# Octets of AMQP frames and of our own records.  Everything is inline: the data path never calls out for these.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    FRAME_METHOD = 1
    FRAME_HEADER = 2
    FRAME_BODY = 3
    FRAME_HEARTBEAT = 8
    FRAME_END = 0xCE
    FRAME_OVERHEAD = 8          # type, channel, size and the end octet

cdef enum:                      # class and method ids of the data path
    BASIC_PUBLISH = 0x003C0028
    BASIC_RETURN = 0x003C0032
    GET_OK = 0x003C0047
    BASIC_ACK = 0x003C0050
    BASIC_REJECT = 0x003C005A
    BASIC_NACK = 0x003C0078

cdef enum:                      # of changes that a channel makes while replies to earlier ones wait
    EXCHANGE_DECLARE = 0x0028000A
    EXCHANGE_BIND = 0x0028001E
    QUEUE_DECLARE = 0x0032000A
    QUEUE_BIND = 0x00320014

cdef enum:                      # answers of frame_at
    FRAME_INCOMPLETE = 0
    FRAME_COMPLETE = 1
    FRAME_BAD_TYPE = -1
    FRAME_TOO_LARGE = -2
    FRAME_BAD_END = -3

cdef struct Frame:
    const uint8_t* payload
    size_t total                # octets of the whole frame
    uint32_t size               # octets of the payload
    uint16_t channel
    uint8_t type


cdef inline uint16_t be16(const uint8_t* p) noexcept nogil:
    return <uint16_t>((<uint32_t>p[0] << 8) | p[1])

cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef inline uint64_t be64(const uint8_t* p) noexcept nogil:
    return (<uint64_t>be32(p) << 32) | be32(p + 4)

cdef inline void put16(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>(v >> 8)
    p[1] = <uint8_t>v

cdef inline void put32(uint8_t* p, uint32_t v) noexcept nogil:
    put16(p, v >> 16)
    put16(p + 2, v & 0xFFFF)

cdef inline void put64(uint8_t* p, uint64_t v) noexcept nogil:
    put32(p, <uint32_t>(v >> 32))
    put32(p + 4, <uint32_t>v)

# The log and the replication link are little endian.
cdef inline uint16_t le16(const uint8_t* p) noexcept nogil:
    return <uint16_t>(p[0] | (<uint32_t>p[1] << 8))

cdef inline uint32_t le32(const uint8_t* p) noexcept nogil:
    return p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24)

cdef inline uint64_t le64(const uint8_t* p) noexcept nogil:
    return le32(p) | (<uint64_t>le32(p + 4) << 32)

cdef inline void putle16(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>v
    p[1] = <uint8_t>(v >> 8)

cdef inline void putle32(uint8_t* p, uint32_t v) noexcept nogil:
    putle16(p, v & 0xFFFF)
    putle16(p + 2, v >> 16)

cdef inline void putle64(uint8_t* p, uint64_t v) noexcept nogil:
    putle32(p, <uint32_t>v)
    putle32(p + 4, <uint32_t>(v >> 32))

cdef inline void begin_frame(uint8_t* p, uint8_t frame_type, uint16_t channel, uint32_t size) noexcept nogil:
    p[0] = frame_type
    put16(p + 1, channel)
    put32(p + 3, size)

cdef inline int frame_at(const uint8_t* p, size_t n, uint32_t frame_max, Frame* frame) noexcept nogil:
    """Reads the frame at the front of `n` octets; fills `frame` only when the answer is FRAME_COMPLETE.

    A hostile length is refused before it is waited for: `frame_max` is checked as soon as the size is there."""
    if n == 0:
        return FRAME_INCOMPLETE
    if not (FRAME_METHOD <= p[0] <= FRAME_BODY or p[0] == FRAME_HEARTBEAT):
        return FRAME_BAD_TYPE
    if n < 7:
        return FRAME_INCOMPLETE
    frame.size = be32(p + 3)
    if frame.size > frame_max - FRAME_OVERHEAD:
        return FRAME_TOO_LARGE
    frame.total = <size_t>frame.size + FRAME_OVERHEAD
    if n < frame.total:
        return FRAME_INCOMPLETE
    if p[frame.total - 1] != FRAME_END:
        return FRAME_BAD_END
    frame.type = p[0]
    frame.channel = be16(p + 1)
    frame.payload = p + 7
    return FRAME_COMPLETE

cdef inline bint configures(const Frame* frame) noexcept nogil:
    """Is it a method that declares or binds?"""
    if frame.type != FRAME_METHOD or frame.size < 4:
        return False
    return be32(frame.payload) in (QUEUE_DECLARE, QUEUE_BIND, EXCHANGE_DECLARE, EXCHANGE_BIND)
