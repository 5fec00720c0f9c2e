"""Command-line tools, and what they share: where to ask, as whom, how to print."""
