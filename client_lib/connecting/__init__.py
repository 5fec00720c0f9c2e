"""Finding the primary and staying with it: what to try when, the life of the connection, and all use of what pika keeps
to itself."""
