"""What is run while the project is worked on; nothing of it is installed."""
