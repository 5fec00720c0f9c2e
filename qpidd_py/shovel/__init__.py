"""`qpid-shovel`: moves messages between brokers, as parameters of its broker say; a process of its own."""
