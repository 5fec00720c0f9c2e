"""What became of each message: the query, its reference, causes, the job."""
