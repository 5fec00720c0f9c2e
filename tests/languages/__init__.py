"""Clients in other languages, through kill -9 and SIGSTOP of the primary."""
