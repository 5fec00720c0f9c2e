"""`failover-report`: one module for each verb.  None of them imports an engine before it needs one."""
