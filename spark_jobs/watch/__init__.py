"""Incidents as they come: the stream, its memory, the job."""
