"""The AMQP 0-9-1 broker; knows nothing of HA."""
