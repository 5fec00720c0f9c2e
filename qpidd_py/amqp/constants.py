"""Constants of AMQP 0-9-1 and the limits that this broker offers in `connection.tune`."""

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8  # octets of a frame that are not payload: type, channel, size, end

FRAME_MIN_SIZE: Final = 4096  # octets; neither peer may negotiate less (specification 4.2.3)
FRAME_MAX: Final = 131072  # octets, the whole frame
CHANNEL_MAX: Final = 2047
HEARTBEAT: Final = 60  # seconds; what we propose

BASIC_CLASS: Final = 60
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
SHORTSTR_MAX: Final = 255  # octets

# Names in the properties of connection.start and connection.start-ok, in addition to the usual ones.
TIME: Final = "qpid.time"  # µs since 1970 by the sender's clock, when it sent this
CLIENT_ID: Final = "qpid.client_id"  # as in the client's own log
CONN_ID: Final = "qpid.conn_id"  # the same
