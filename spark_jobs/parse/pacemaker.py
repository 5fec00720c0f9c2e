"""pacemaker.log of Pacemaker 2.0 and 2.1: heads in `heads`, kinds in `facts.pacemaker` (pure)."""

from spark_jobs.parse.lines import parse_file

__all__ = ["parse_file"]
