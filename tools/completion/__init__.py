"""Shell completion of the programs, generated from their parsers.

    python -m tools.completion packaging/completion

The files are shipped as they are: at run time a shell reads a list of words, and no Python is started at each Tab.
A test compares the shipped files with what this would write.
"""
