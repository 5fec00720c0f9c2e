"""The outages of clients: the query, its reference, the job."""
