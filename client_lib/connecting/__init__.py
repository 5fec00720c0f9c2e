"""Finds the primary and stays connected to it: the order of attempts, the life of the connection, its socket."""
