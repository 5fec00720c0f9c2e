"""Files of messages that a broker held and its cluster lacks: written, listed, restored."""
