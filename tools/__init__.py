"""Development tools; not installed."""
