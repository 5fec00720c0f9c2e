"""The offsets of clocks: pairs of readings, the search, the corrected axis, the job."""
