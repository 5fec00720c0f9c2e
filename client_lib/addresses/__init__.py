"""Qpid's address strings: their grammar, what they mean over AMQP 0-9-1, and browsing."""
