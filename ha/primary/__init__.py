"""The primary: backups arrive, catch up, confirm, fall behind; the in-sync set; relocation.  Pure."""
