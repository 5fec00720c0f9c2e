"""The rows of all sources that are no message events: the query, the job."""
