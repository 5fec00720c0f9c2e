"""Sessions without waiting, shared by threads and asyncio: the life of a channel, what is not confirmed, what was
delivered."""
