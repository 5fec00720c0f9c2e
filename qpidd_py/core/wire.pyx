# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames as the data path sees them, for callers in Python: tests, tools and the differential test."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from qpidd_py.errors import ConnectionException, ReplyCode

_FAULTS = {
    FRAME_BAD_TYPE: "unknown frame type {}",
    FRAME_TOO_LARGE: "frame larger than frame_max {}",
    FRAME_BAD_END: "frame does not end with octet 206",
}


def frame_fault(int answer, int value):
    """The connection exception for a negative answer of the scanner."""
    return ConnectionException(ReplyCode.FRAME_ERROR, "FRAME_ERROR - " + _FAULTS[answer].format(value))


def scan(bytes data, uint32_t frame_max=131072):
    """All complete frames at the front of `data` as (type, channel, start, end) of their payloads.

    Raises ConnectionException 501 for what is not a frame (AMQP 0-9-1 specification, section 4.2.3)."""
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t n = <size_t>PyBytes_GET_SIZE(data)
    cdef size_t at = 0
    cdef Frame frame
    cdef int answer
    frames = []
    while True:
        answer = frame_at(base + at, n - at, frame_max, &frame)
        if answer == FRAME_INCOMPLETE:
            return frames
        if answer < 0:
            raise frame_fault(answer, base[at] if answer == FRAME_BAD_TYPE else <int>frame_max)
        frames.append((frame.type, frame.channel, at + 7, at + 7 + frame.size))
        at += frame.total
