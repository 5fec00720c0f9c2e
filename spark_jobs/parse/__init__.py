"""Logs to events (pure: no Spark, no files, no clock)."""
