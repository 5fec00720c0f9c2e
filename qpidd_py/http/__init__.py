"""The HTTP API of RabbitMQ's management, in a process of its own next to a broker."""
