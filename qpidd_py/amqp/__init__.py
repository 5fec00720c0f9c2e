"""AMQP 0-9-1 without I/O: constants, field tables, cold methods, handshakes of both sides."""
