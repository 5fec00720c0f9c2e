"""System logs and exports of the journal: Pacemaker's, Corosync's and a broker's lines in them (pure)."""

from spark_jobs.parse.lines import parse_file

__all__ = ["parse_file"]
