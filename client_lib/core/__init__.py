"""Sessions without waiting, shared by threads and asyncio: the life of a channel, unconfirmed messages, deliveries."""
