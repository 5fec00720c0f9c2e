"""`qpid-cluster render`: the configuration of a cluster manager for the administrator's own machines.

Pure: a cluster file's specification goes in, the texts of files come out.  Only `writer.py` touches the disk.

    ClusterSpec ─▶ kinds.py      which files belong to which kind
                ├▶ checks.py      what cannot work is refused, with what was found and wanted
                ├▶ broker.py      qpidd.conf of each node
                ├▶ corosync.py    corosync.conf, hosts
                ├▶ pacemaker.py   the resources, constraints and options, each with its reason: one model,
                │    ├▶ cib.py      as XML
                │    ├▶ pcs.py      as pcs commands
                │    └▶ crmsh.py    as crmsh commands
                └▶ rgmanager.py, systemd.py, compose.py, vagrant.py
"""
