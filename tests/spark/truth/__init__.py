"""Incidents whose truth is known, because they are made: written in true time, logged by clocks that are wrong."""
