"""Exchanges, queues, bindings, sessions: the broker without I/O.  Knows nothing of HA."""
