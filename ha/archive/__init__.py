"""Backup and restore: configuration and messages of a running broker to an archive, and back into an empty cluster."""
