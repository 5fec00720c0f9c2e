"""What every part of a member may use: votes, sets, views, positions, the records of the log.  Pure."""
