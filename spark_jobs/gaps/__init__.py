"""Where evidence is missing: the query, the findings, the job."""
