"""The high-availability plug-in: one primary, hot backups, promotion on request.  Start with `README.md`."""
