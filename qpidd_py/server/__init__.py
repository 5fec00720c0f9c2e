"""The asyncio shell around the pure broker: sockets and timers."""
