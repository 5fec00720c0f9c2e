"""The resource agent ocf:qpid:qpidd, apart from its few lines in resource.d.  Standard library only.

Modules of their own are compiled once; a long script would be compiled at each call, and monitors are called all the
time.  For the same reason what only some calls need is imported where it is used, above all what imports `enum` or `re`
(signal, json, subprocess); `typing` is imported by nobody.
"""
