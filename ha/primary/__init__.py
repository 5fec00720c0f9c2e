"""The primary: backups that arrive, catch up, confirm, fall behind; the in-sync set; relocation.  Pure."""
