"""Exchanges, queues, bindings, client connections: the broker without I/O.  Knows nothing of HA."""
