"""A backup: finds the primary, joins, takes its log, puts aside what the cluster lacks.  Pure."""
