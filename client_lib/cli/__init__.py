"""`qpid-send` and `qpid-receive`, with the options that Qpid's administrators know."""
