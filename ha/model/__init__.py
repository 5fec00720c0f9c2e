"""What every part of a member may know: votes, sets, views, positions, the records of the log.  Pure."""
