"""What happened in a fail-over, from the logs that it left behind: PySpark jobs, and `failover-report`."""
