# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a channel sends while an answer to it waits is kept aside, and handled in order, in slices, when that was written.

Changes of the configuration go on meanwhile: their own answers wait behind.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize

from qpidd_py.core.connection cimport AHEAD, EXPECT_FRAMES, MAX_STASH, METHOD_STEPS
from qpidd_py.core.wire cimport configures

from qpidd_py.errors import AmqpError


cdef bint is_aside(Connection c, Channel channel, uint16_t number) except -1:
    """Are frames for this channel kept aside?"""
    return (channel is not None and channel.held) or (number != c.replaying and number in c.stashes)


cdef bint goes_on(Connection c, Channel channel, Frame* f) except -1:
    """Makes a change of the configuration while replies of this channel wait; its own waits behind them.  False if
    the frame has to wait: it is something else, is behind one that waits, or is refused (again, in its turn)."""
    if (channel is None or not 0 < len(channel.answers) < AHEAD or channel.closing or c.state != EXPECT_FRAMES
            or not configures(f) or (f.channel != c.replaying and f.channel in c.stashes)):
        return False
    c.steps -= METHOD_STEPS
    try:
        c.owner.method(f.channel, PyBytes_FromStringAndSize(<const char*>f.payload, f.size))
    except AmqpError:
        return False
    if c.again:
        c.again = False
        return False
    return True


cdef int keep_aside(Connection c, uint16_t number, const uint8_t* p, size_t n) except -1:
    cdef bytearray stash = c.stashes.get(number)
    if stash is None:
        stash = c.stashes[number] = bytearray()
    stash += PyBytes_FromStringAndSize(<const char*>p, n)
    c.stashed += n
    if c.stashed > MAX_STASH and not c.input_paused:
        c.pause_input(True)
    return 0


cdef int release_channel(Connection c, Channel channel) except -1:
    """A held reply was written: frames that the channel sent meanwhile are now handled, in order, as far as the slice
    under way goes."""
    channel.held = False
    c.refresh()
    replay(c, channel.number)
    return c.depart()


cdef int replay(Connection c, uint16_t number) except -1:
    """Until the channel is held again, or the slice is used up."""
    cdef bytearray frames = c.stashes.get(number)
    cdef size_t used = 0
    if frames is None:
        return 0
    c.replaying = number
    try:
        if c.state == EXPECT_FRAMES:
            used = c.parse_frames(<const uint8_t*>PyByteArray_AS_STRING(frames), PyByteArray_GET_SIZE(frames))
    finally:
        c.replaying = 0
    return drop_stash(c, number, used if c.state == EXPECT_FRAMES else c.stashed)


cdef int drop_stash(Connection c, uint16_t number, size_t octets) except -1:
    """The first octets of what was kept aside for a channel are dealt with."""
    cdef bytearray frames = c.stashes.get(number)
    if frames is None:
        return 0
    octets = min(octets, <size_t>PyByteArray_GET_SIZE(frames))
    c.stashed -= octets
    del frames[:octets]
    if not frames:
        del c.stashes[number]
    if c.input_paused and c.may_read():
        c.pause_input(False)
    return 0
