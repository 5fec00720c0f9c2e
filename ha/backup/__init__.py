"""A backup: finds the primary, joins, follows its log, salvages what the cluster lacks.  Pure."""
