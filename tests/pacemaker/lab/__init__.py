"""A real Corosync/Pacemaker cluster on one machine, in namespaces, for tests.

    from tests.pacemaker.lab.lab import Lab

    with Lab(nodes=3, fencing=True) as lab:
        lab.settled(60)
        lab.node(1).run("crm_mon", "-1")

* `lab.py`         what tests use: `Lab`, power, cables, cluster state, logs
* `host.py`        `Node` and `Clients`: run commands there, or be there with `inside()`
* `state.py`       what `crm_mon` says, as data (pure)
* `names.py`       names, addresses and paths of a lab (pure)
* `files.py`       configuration of a lab without `qpid-cluster render` (pure)
* `requirements.py` why there can be no lab here
* `supervisor.py`  one process: network switch and power unit; parent of all nodes
* `node_init.py`   process 1 of a node: mounts, network, provisioning, services
* `mounts.py`      the few system calls that Python lacks
* `files/`         fence agent, toy agent

A node is a set of pid, mount, uts, ipc and net namespaces.  Its disk is an overlay: the machine's own file system
below, a tmpfs above, so that everything may be written and nothing of the machine is touched.  The disk survives a
power cycle; `/run` and `/dev/shm` do not.  All mounts, namespaces and processes end with the supervisor, and the
supervisor ends with the test.
"""
