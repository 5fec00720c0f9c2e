"""Rules of an ACL file, as Apache Qpid's brokers have them: read, kept and asked.                              Pure.

words      what can be done (action, object), and by which properties it is told apart
topics     keys with wildcards
hosts      rules about the addresses of clients
rules      one rule, and whether it decides a lookup
rule_set   all rules of a file, indexed
reader     the text of a file -> `RuleSet`
in_force   the rules of one broker, which may be replaced, and what one user may do by them
"""
