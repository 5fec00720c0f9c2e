"""Connects the pure parts with sockets, files and timers.  Shell."""
