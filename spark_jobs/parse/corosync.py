"""corosync.log of Corosync 2.4 and 3.1: heads in `heads`, kinds in `facts.corosync` (pure)."""

from spark_jobs.parse.lines import parse_file

__all__ = ["parse_file"]
