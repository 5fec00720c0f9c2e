"""The rgmanager scripts: each by itself, and under a driver that behaves as rgmanager does."""
