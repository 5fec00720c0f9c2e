"""One connection over all its fail-overs, and the sessions that use it."""
