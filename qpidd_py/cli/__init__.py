"""Command-line tools, and their common parts: address, login, output."""
