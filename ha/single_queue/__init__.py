"""Replication of single queues from another broker or cluster."""
