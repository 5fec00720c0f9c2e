"""Side-by-side measurements of this broker and of a RabbitMQ cluster on the same machine. See README.md."""
