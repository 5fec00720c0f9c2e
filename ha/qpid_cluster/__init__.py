"""The command `qpid-cluster`: a resource manager for one machine, and configuration for the others."""
