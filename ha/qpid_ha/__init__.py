"""The command `qpid-ha`."""
