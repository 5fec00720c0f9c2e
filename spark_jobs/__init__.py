"""Analysis of fail-overs from their logs: PySpark jobs, and `failover-report`."""
