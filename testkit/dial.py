"""A connection of bare pika."""

from __future__ import annotations

import pika


def dial(parameters: pika.ConnectionParameters) -> pika.BlockingConnection:
    """Raises what pika raises for a broker that cannot be reached; for one that accepts and dies in that moment this is
    ValueError, here ConnectionResetError."""
    try:
        return pika.BlockingConnection(parameters)
    except ValueError as error:
        raise ConnectionResetError(str(error)) from error
