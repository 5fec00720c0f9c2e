"""The resource agent ocf:qpid:qpidd, except for its few lines in resource.d.  Standard library only.

Separate modules are compiled once; a long script would be compiled at each call, and monitors are called all the time.
For the same reason modules that only some calls need are imported where they are used, above all those that import
`enum` or `re` (signal, json, subprocess); `typing` is never imported at run time.
"""
